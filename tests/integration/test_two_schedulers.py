"""Two schedulers share the slots; when one ends, however it ends, the other has them all and the jobs go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import IntervalJob, Judgement, due_ms, instant_ms, judge
from tests.integration.installation import Installation, eventually, owner_records
from tests.integration.scheduler_process import SchedulerProcess

from noontide.adapters.kafka.membership import SESSION_TIMEOUT_MS

ANCHOR = "2026-01-01T00:00:00Z"
JOBS = 80


@pytest.fixture
def installation(kafka: RunningKafka, prefix: str) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, prefix, partitions=8, slots=4) as made:
        yield made


def owned_by(installation: Installation, scheduler: SchedulerProcess) -> int:
    """How many slots name the process as their owner."""
    latest = {each.key: str(each.document["owner"]) for each in owner_records(installation)}
    return sum(owner.endswith(f":{scheduler.pid}") for owner in latest.values())


def define(installation: Installation, topic: str) -> list[IntervalJob]:
    document = {
        "schedule": {"every": "PT1S", "anchor": ANCHOR},
        "timing": "exact",
        "misfire": "run_all",
        "target": f"kafka://{topic}",
    }
    jobs = [IntervalJob(job_id=f"two-{number}", every_ms=1000, anchor_ms=instant_ms(ANCHOR)) for number in range(JOBS)]
    installation.request_many({job.job_id: document for job in jobs})
    return jobs


def settled(installation: Installation, topic: str, jobs: list[IntervalJob]) -> Judgement:
    until_ms = time.time_ns() // 1_000_000
    eventually(lambda: not judge(installation, topic, jobs, until_ms=until_ms).missing, what="all occurrences")
    time.sleep(0.2)
    return judge(installation, topic, jobs, until_ms=until_ms)


def worst_lateness_ms(installation: Installation, topic: str, since_ms: int) -> int:
    """How late the latest record was among those that fell due since a time."""
    since = [each for each in installation.log(topic).look() if due_ms(each) >= since_ms]
    return max((each.at_ms - due_ms(each) for each in since), default=0)


def test_slots_are_shared_handed_over_and_taken_over(installation: Installation, tmp_path: Path) -> None:
    topic = installation.create_target("orders")
    with (
        SchedulerProcess(installation, tmp_path / "a") as a,
        SchedulerProcess(installation, tmp_path / "b") as b,
    ):
        a.start().until_owner()
        jobs = define(installation, topic)
        joined_ms = time.time_ns() // 1_000_000
        b.start()
        eventually(lambda: owned_by(installation, a) == owned_by(installation, b) == 2, what="two slots each")
        settled(installation, topic, jobs)
        assert worst_lateness_ms(installation, topic, joined_ms) < SESSION_TIMEOUT_MS

        left_ms = time.time_ns() // 1_000_000
        assert a.terminate() == 0
        eventually(lambda: owned_by(installation, b) == 4, what="all slots after a clean end")
        settled(installation, topic, jobs)
        assert worst_lateness_ms(installation, topic, left_ms) < SESSION_TIMEOUT_MS

        a.start()
        eventually(lambda: owned_by(installation, a) == owned_by(installation, b) == 2, what="two slots each again")
        killed_ms = time.time_ns() // 1_000_000
        b.kill()
        eventually(lambda: owned_by(installation, a) == 4, what="all slots after kill -9")
        found = settled(installation, topic, jobs)
        assert found.is_clean, found
        assert worst_lateness_ms(installation, topic, killed_ms) < 4 * SESSION_TIMEOUT_MS
        assert "unexpected; replaying" not in a.log


def test_a_process_that_finds_another_number_of_partitions_refuses_to_start(
    installation: Installation, tmp_path: Path
) -> None:
    installation.grow_topic(installation.name("jobs"), 12)
    with SchedulerProcess(installation, tmp_path / "data") as scheduler:
        scheduler.start()
        assert scheduler.exit_code() == 1
        line = scheduler.log.strip().splitlines()[-1]
        assert "jobs" in line
        assert "12" in line
        assert "8" in line
        assert "Traceback" not in scheduler.log


def test_a_layout_that_is_not_the_one_of_its_topics_is_refused(installation: Installation, tmp_path: Path) -> None:
    """`config/meta` was overwritten by somebody: nobody works on with other slots than the topics have."""
    installation.configure("meta", {"partitions": 8, "slots": 2, "version": 1})
    with SchedulerProcess(installation, tmp_path / "data") as scheduler:
        scheduler.start()
        assert scheduler.exit_code() == 1
        assert "slots" in scheduler.log or "partitions" in scheduler.log
        assert "Traceback" not in scheduler.log
