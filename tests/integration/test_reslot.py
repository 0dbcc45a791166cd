"""The number of slots is changed while nothing runs: nothing is lost, nothing happens twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.conftest import RunningKafka
from tests.integration.expectations import IntervalJob, instant_ms, judge
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess

from noontide.adapters.kafka import reslot as reslot_module
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.topics import check_layout, read_meta
from noontide.apps.cli.main import main
from noontide.records.topics import Layout
from noontide.testing.checker import check

ANCHOR = "2026-01-01T00:00:00Z"
EVERY = {"schedule": {"every": "PT1S", "anchor": ANCHOR}, "timing": "exact", "misfire": "run_all", "run_all_max": 1_000}
JOBS = [IntervalJob(job_id=f"r-{number}", every_ms=1000, anchor_ms=instant_ms(ANCHOR)) for number in range(24)]


@pytest.fixture
def installation(kafka: RunningKafka, prefix: str) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, prefix, partitions=8, slots=2) as made:
        yield made


def reslot(installation: Installation, slots: int) -> Result:
    arguments = ["--bootstrap", installation.bootstrap, "--prefix", installation.layout.prefix]
    return CliRunner().invoke(main, ["partitions", "reslot", str(slots), "--yes", *arguments])


def layout_now(installation: Installation) -> Layout:
    connection = KafkaConnection(installation.bootstrap)
    meta = read_meta(connection, installation.layout)
    assert meta is not None
    assert meta.moving is None
    check_layout(connection, meta.layout(installation.layout.prefix))
    return meta.layout(installation.layout.prefix)


def run_one_of_each(installation: Installation, topic: str, scheduler: SchedulerProcess) -> int:
    """Run until each job is due once more and all that is due has been delivered, end cleanly; returns until when."""
    until_ms = time.time_ns() // 1_000_000 + 1_000
    eventually(lambda: not judge(installation, topic, JOBS, until_ms=until_ms).missing, what="all occurrences")
    assert scheduler.terminate() == 0
    return until_ms


def work_for_a_while(installation: Installation, topic: str, data: Path, slots: int) -> int:
    """One more scheduler, until each job has run once more; returns the time up to which all is delivered."""
    with SchedulerProcess(installation, data) as scheduler:
        scheduler.start().until_logged("owned after", count=slots)
        return run_one_of_each(installation, topic, scheduler)


def test_more_slots_and_fewer_again(installation: Installation, tmp_path: Path) -> None:
    topic = installation.create_target("orders")
    with SchedulerProcess(installation, tmp_path / "data") as scheduler:
        scheduler.start().until_owner()
        installation.request_many({job.job_id: {**EVERY, "target": f"kafka://{topic}"} for job in JOBS})
        installation.request_many({"waits": {**EVERY, "target": "handler:nobody", "schedule": {"every": "PT1H"}}})
        installation.request_many({"late": {"schedule": {"at": "2031-01-01T00:00:00Z"}, "target": f"kafka://{topic}"}})
        installation.log(topic).until(lambda found: len(found) > len(JOBS))
        assert reslot(installation, 8).exit_code == 1, "a scheduler is running"
        run_one_of_each(installation, topic, scheduler)
    for slots, former in ((8, (2,)), (2, (2, 8))):
        done = reslot(installation, slots)
        assert done.exit_code == 0, done.output
        now = layout_now(installation)
        assert (now.slots, now.former_slots) == (slots, former)
        until_ms = work_for_a_while(installation, topic, tmp_path / "data", slots)
    report = check(KafkaConnection(installation.bootstrap), now, until_ms=until_ms)
    assert report.ok, report
    assert report.expected >= len(JOBS) * 3, "each job at least once with each number of slots"
    assert not report.duplicates
    assert reslot(installation, 2).exit_code == 1, "there are 2 already"


class Interrupted(Exception):
    """Somebody pulled the plug."""


SLOW = [pytest.param(step, marks=pytest.mark.slow) for step in ("_fence", "_stage", "_remake", "_forget_owners")]


@pytest.mark.parametrize("where", ["_fill", *SLOW])
def test_a_change_that_was_interrupted_goes_on(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    topic = installation.create_target("orders")
    with SchedulerProcess(installation, tmp_path / "data") as scheduler:
        scheduler.start().until_owner()
        installation.request_many({job.job_id: {**EVERY, "target": f"kafka://{topic}"} for job in JOBS})
        installation.log(topic).until(lambda found: len(found) > len(JOBS))
        assert scheduler.terminate() == 0
    step = getattr(reslot_module._Reslot, where)

    def half(self: object) -> None:
        step(self)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(reslot_module._Reslot, where, half)
        assert isinstance(reslot(installation, 4).exception, Interrupted)
    with SchedulerProcess(installation, tmp_path / "data") as scheduler:
        scheduler.start()
        assert scheduler.exit_code() == 1
        assert "partitions reslot 4" in scheduler.log
    assert "not finished" in reslot(installation, 8).output
    assert reslot(installation, 4).exit_code == 0
    assert layout_now(installation) == replace(installation.layout, slots=4, former_slots=(2,))
    until_ms = work_for_a_while(installation, topic, tmp_path / "data", 4)
    assert judge(installation, topic, JOBS, until_ms=until_ms).is_clean
