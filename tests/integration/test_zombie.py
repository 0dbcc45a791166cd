"""A scheduler that slept through its own replacement: nothing of it becomes visible, and it finds its place again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import IntervalJob, instant_ms, judge
from tests.integration.installation import Installation, eventually, owner_records
from tests.integration.scheduler_process import SchedulerProcess

ANCHOR = "2026-01-01T00:00:00Z"
JOBS = 100
REFUSED = ("another owner", "ProducerFenced", "InvalidProducerEpoch")


@pytest.fixture
def installation(kafka: RunningKafka, prefix: str) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, prefix, partitions=8, slots=2) as made:
        yield made


def define(installation: Installation, topic: str) -> list[IntervalJob]:
    """One hundred jobs, each second, none of whose occurrences may be dropped."""
    document = {
        "schedule": {"every": "PT1S", "anchor": ANCHOR},
        "timing": "exact",
        "misfire": "run_all",
        "grace": "PT10M",
        "target": f"kafka://{topic}",
    }
    jobs = [IntervalJob(job_id=f"z-{number}", every_ms=1000, anchor_ms=instant_ms(ANCHOR)) for number in range(JOBS)]
    installation.request_many({job.job_id: document for job in jobs})
    installation.log(topic).until(lambda found: len(found) >= JOBS)
    return jobs


def owners(installation: Installation) -> dict[bytes | None, str]:
    """Who took which slot last."""
    return {each.key: str(each.document["owner"]) for each in owner_records(installation)}


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_frozen_owner_wakes_after_a_take_over(installation: Installation, tmp_path: Path, rounds: int) -> None:
    topic = installation.create_target("orders")
    with SchedulerProcess(installation, tmp_path / "a") as a, SchedulerProcess(installation, tmp_path / "b") as b:
        a.start().until_owner()
        jobs = define(installation, topic)
        sleeper, other = a, b
        other.start()
        for _ in range(rounds):
            freeze_and_wake(installation, topic, sleeper, other)
            sleeper, other = other, sleeper
        until_ms = time.time_ns() // 1_000_000
        eventually(lambda: not judge(installation, topic, jobs, until_ms=until_ms).missing, what="all occurrences")
        time.sleep(0.2)
        found = judge(installation, topic, jobs, until_ms=until_ms)
        assert found.is_clean, found
        for scheduler in (a, b):
            assert "unexpected; replaying" not in scheduler.log
            assert scheduler.terminate() == 0


def freeze_and_wake(installation: Installation, topic: str, sleeper: SchedulerProcess, other: SchedulerProcess) -> None:
    """Freeze the owner in its work; the other one takes all slots; wake it; it is refused, and shares again."""
    taken = other.log.count(": owned after")
    sleeper.pause()
    eventually(lambda: is_owner_of_all(installation, other), what="the other one owns all slots")
    eventually(lambda: other.log.count(": owned after") > taken, what="the other one works")
    before = len(installation.log(topic).look())
    installation.log(topic).until(lambda found: len(found) > before + JOBS)
    lines = len(sleeper.log)
    sleeper.resume()
    eventually(lambda: any(word in sleeper.log[lines:] for word in REFUSED), what="the sleeper finds out")
    eventually(lambda: shares(installation, sleeper, other), what="each owns one slot")


def is_owner_of_all(installation: Installation, scheduler: SchedulerProcess) -> bool:
    return all(owner.endswith(f":{scheduler.pid}") for owner in owners(installation).values())


def shares(installation: Installation, *schedulers: SchedulerProcess) -> bool:
    """Each of the processes owns one slot."""
    return sorted(owners(installation).values())[:2] == sorted(
        each for each in owners(installation).values() if any(each.endswith(f":{one.pid}") for one in schedulers)
    ) and len(set(owners(installation).values())) == len(schedulers)


@pytest.mark.slow
def test_a_rival_outside_the_group_takes_the_slots_once(installation: Installation, tmp_path: Path) -> None:
    """Two groups that know nothing of each other: fencing decides, nobody fences back at once, nothing is doubled."""
    topic = installation.create_target("orders")
    with (
        SchedulerProcess(installation, tmp_path / "a") as a,
        SchedulerProcess(installation, tmp_path / "b", group="rivals") as b,
    ):
        a.start().until_owner()
        jobs = define(installation, topic)
        b.start().until_owner()
        a.until_logged("ProducerFenced", count=2)
        refused_s = time.monotonic()
        a.until_logged(": owned after", count=3)
        assert time.monotonic() - refused_s > 3, "fenced back without standing back"
        b.terminate()
        until_ms = time.time_ns() // 1_000_000
        eventually(lambda: not judge(installation, topic, jobs, until_ms=until_ms).missing, what="all occurrences")
        found = judge(installation, topic, jobs, until_ms=until_ms)
        assert found.is_clean, found
