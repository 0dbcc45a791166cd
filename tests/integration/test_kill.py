"""`kill -9` at any moment, again and again, under load: every occurrence once, none lost, double or early."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import IntervalJob, Judgement, instant_ms, judge
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.testing.checker import check

JOBS = 300
LEAST_MS = 12_000
ANCHOR = "2026-01-01T00:00:00Z"


@dataclass(slots=True, kw_only=True)
class Load:
    """Interval jobs of one and two seconds on a registered topic."""

    installation: Installation
    topic: str
    jobs: list[IntervalJob]
    defined_ms: int = 0

    def define(self) -> None:
        documents = {
            job.job_id: {
                "schedule": {"every": f"PT{job.every_ms // 1000}S", "anchor": ANCHOR},
                "timing": "exact",
                "misfire": "run_all",
                "grace": "PT10M",
                "target": f"kafka://{self.topic}",
                "payload": {"job": job.job_id, "text": "x" * 100},
            }
            for job in self.jobs
        }
        self.installation.request_many(documents)
        self.defined_ms = time.time_ns() // 1_000_000

    def settle(self) -> Judgement:
        """Wait until everything due by now, and for some time, is delivered, and judge it."""
        until_ms = max(time.time_ns() // 1_000_000, self.defined_ms + LEAST_MS)
        topic = self.installation.log(self.topic)

        def is_through() -> bool:
            topic.look()
            return not self.judge(until_ms).missing

        try:
            eventually(is_through, what="every occurrence until now")
        finally:
            self.installation.log("executions").look()
        time.sleep(0.2)  # what would come double comes behind
        shipped = check(KafkaConnection(self.installation.bootstrap), self.installation.layout, until_ms=until_ms)
        found = self.judge(until_ms)
        assert shipped.ok, shipped
        assert (shipped.expected, shipped.unjudged) == (found.expected, {})
        return found

    def judge(self, until_ms: int) -> Judgement:
        return judge(self.installation, self.topic, self.jobs, until_ms=until_ms)


@pytest.fixture
def load(kafka: RunningKafka, prefix: str) -> Iterator[Load]:
    with Installation.create(kafka.bootstrap, prefix, partitions=8, slots=2) as installation:
        topic = installation.create_target("orders", partitions=4)
        anchor_ms = instant_ms(ANCHOR)
        jobs = [
            IntervalJob(job_id=f"load-{number}", every_ms=1000 * (1 + number % 2), anchor_ms=anchor_ms)
            for number in range(JOBS)
        ]
        yield Load(installation=installation, topic=topic, jobs=jobs)


def kill_again_and_again(load: Load, folder: Path, *, kills: int, seed: int) -> Judgement:
    """Each incarnation is in a group of its own, so that it takes every slot at once: the hardest case for fencing.

    Folders: kept as the kill left them, deleted, or replaced by a copy that is some kills old.
    """
    dice = random.Random(seed)
    data, old = folder / "data", folder / "old"
    load.define()
    for number in range(kills):
        with SchedulerProcess(load.installation, data, group=f"g{number}") as scheduler:
            scheduler.start()
            if dice.random() < 0.7:
                scheduler.until_owner()
            else:  # in the middle of a start or a replay
                scheduler.until_logged("slots: ")
                time.sleep(dice.random() * 0.3)
            time.sleep(dice.random() * 0.7)
            scheduler.kill()
        match number % 5:
            case 1:
                shutil.rmtree(old, ignore_errors=True)
                shutil.copytree(data, old) if data.exists() else None
            case 2:
                shutil.rmtree(data, ignore_errors=True)
            case 4 if old.exists():
                shutil.rmtree(data, ignore_errors=True)
                shutil.copytree(old, data)
    with SchedulerProcess(load.installation, data, group="last") as scheduler:
        scheduler.start().until_owner()
        return load.settle()


def test_kills_at_random_moments(load: Load, tmp_path: Path) -> None:
    found = kill_again_and_again(load, tmp_path, kills=12, seed=2)
    assert found.is_clean, found
    assert found.decided == 0
    assert found.delivered >= found.expected > (LEAST_MS // 1_000 - 2) * JOBS * 3 // 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 6))
def test_many_more_kills(load: Load, tmp_path: Path, seed: int) -> None:
    found = kill_again_and_again(load, tmp_path, kills=40, seed=seed)
    assert found.is_clean, found


@pytest.mark.slow
def test_a_killed_process_comes_back_in_its_group(load: Load, tmp_path: Path) -> None:
    """As people start it: the group waits for the session of the dead member to end, then all goes on."""
    load.define()
    with SchedulerProcess(load.installation, tmp_path / "data") as scheduler:
        scheduler.start().until_owner()
        load.installation.log(load.topic).until(lambda found: len(found) > JOBS)
        scheduler.kill()
        began_s = time.monotonic()
        scheduler.start().until_owner()
        assert time.monotonic() - began_s < 25
        found = load.settle()
    assert found.is_clean, found
    assert found.latest_ms < 30_000
