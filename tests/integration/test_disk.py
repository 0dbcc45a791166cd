"""Disks that are full or damaged: the slots go to others and come back, an index is wiped and made anew."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import IntervalJob, instant_ms, judge
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess

ANCHOR = "2026-01-01T00:00:00Z"
JOBS = [IntervalJob(job_id=f"disk-{number}", every_ms=1000, anchor_ms=instant_ms(ANCHOR)) for number in range(20)]
EVERY = {"schedule": {"every": "PT1S", "anchor": ANCHOR}, "timing": "exact", "misfire": "run_all"}
SETTINGS = (
    "checkpoint_ms=500",
    "disk_failed_ms=1000",
    "disk_calm_ms=3000",
    "disk_probe_ms=200",
    "warming_retry_ms=500",
)


@pytest.fixture
def installation(kafka: RunningKafka, prefix: str) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, prefix, partitions=8, slots=2) as made:
        yield made


@contextmanager
def full_disk(scheduler: SchedulerProcess) -> Iterator[None]:
    """The process can write nothing: no file may grow."""
    before = resource.prlimit(scheduler.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(scheduler.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(scheduler.pid, resource.RLIMIT_FSIZE, before)


def slots_of(scheduler: SchedulerProcess, installation: Installation) -> set[int]:
    """The slots it works on, by what it said last on `owners`."""
    latest = {each.key: each.document for each in installation.log("owners").look() if b"/" not in (each.key or b"")}
    return {
        int(str(said["slot"]))
        for said in latest.values()
        if str(said["owner"]).endswith(f":{scheduler.pid}") and said["phase"] in ("working", "handing over")
    }


def assert_all_is_well(installation: Installation, topic: str) -> None:
    """What is due by now is delivered, each once."""
    until_ms = time.time_ns() // 1_000_000
    eventually(lambda: not judge(installation, topic, JOBS, until_ms=until_ms).missing, what="all occurrences")
    found = judge(installation, topic, JOBS, until_ms=until_ms)
    assert found.is_clean, found


def test_the_slots_of_a_full_disk_go_to_others_and_come_back(installation: Installation, tmp_path: Path) -> None:
    topic = installation.create_target("orders")
    with (
        SchedulerProcess(installation, tmp_path / "a", settings=SETTINGS) as a,
        SchedulerProcess(installation, tmp_path / "b", settings=SETTINGS) as b,
    ):
        a.start().until_owner()
        installation.request_many({job.job_id: {**EVERY, "target": f"kafka://{topic}"} for job in JOBS})
        b.start()
        eventually(lambda: len(slots_of(a, installation)) == len(slots_of(b, installation)) == 1, what="one slot each")
        with full_disk(a):
            eventually(lambda: len(slots_of(b, installation)) == 2, what="b has the slots of a")
            assert_all_is_well(installation, topic)
        eventually(lambda: len(slots_of(a, installation)) == len(slots_of(b, installation)) == 1, what="a is back")
        assert_all_is_well(installation, topic)
        assert a.terminate() == b.terminate() == 0


def test_a_damaged_index_is_wiped_and_made_anew(installation: Installation, tmp_path: Path) -> None:
    topic = installation.create_target("orders")
    with SchedulerProcess(installation, tmp_path / "a") as scheduler:
        scheduler.start().until_owner()
        installation.request_many({job.job_id: {**EVERY, "target": f"kafka://{topic}"} for job in JOBS})
        installation.log(topic).until(lambda found: len(found) > len(JOBS))
        assert scheduler.terminate() == 0
        files = [each for each in scheduler.data.rglob("*.sst") if each.stat().st_size]
        assert files
        for each in files:
            each.write_bytes(b"\xff" * each.stat().st_size)
        scheduler.start().until_owner()
        assert_all_is_well(installation, topic)
        assert scheduler.terminate() == 0


@pytest.mark.slow
def test_one_that_is_alone_keeps_its_slots_and_goes_on_when_there_is_room(
    installation: Installation, tmp_path: Path
) -> None:
    topic = installation.create_target("orders")
    with SchedulerProcess(installation, tmp_path / "a", settings=SETTINGS) as scheduler:
        scheduler.start().until_owner()
        installation.request_many({job.job_id: {**EVERY, "target": f"kafka://{topic}"} for job in JOBS})
        installation.log(topic).until(lambda found: len(found) > len(JOBS))
        with full_disk(scheduler):
            time.sleep(8)  # several times what makes it unfit
            assert scheduler.running
        assert_all_is_well(installation, topic)
        assert scheduler.terminate() == 0
