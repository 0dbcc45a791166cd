"""The broker dies, freezes or cannot be reached: the scheduler waits, goes on by itself, and ends when told to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.expectations import IntervalJob, Judgement, instant_ms, judge
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.ports.record_log import Doubt, TopicPartition

ANCHOR = "2026-01-01T00:00:00Z"
JOBS = 60
EXIT_WITHIN_S = 30
"""kaf-17."""
SETTINGS = ("commit_timeout_ms=2000",)
"""A commit waits for a third of what it does by default, so that a test does, too."""


class Site(NamedTuple):
    """A broker of its own, an installation on it, and jobs that run each second on a scheduler."""

    kafka: EmbeddedKafka
    installation: Installation
    topic: str
    jobs: list[IntervalJob]
    scheduler: SchedulerProcess

    def grow(self, seconds: int) -> None:
        """Wait for some more seconds' worth of records."""
        before = len(self.installation.log(self.topic).look())
        self.installation.log(self.topic).until(lambda found: len(found) >= before + seconds * JOBS)

    def settled(self) -> Judgement:
        """Everything that fell due until now is there; the judgement on it."""
        until_ms = time.time_ns() // 1_000_000
        eventually(
            lambda: not judge(self.installation, self.topic, self.jobs, until_ms=until_ms).missing,
            what="every occurrence until now",
        )
        time.sleep(0.2)
        return judge(self.installation, self.topic, self.jobs, until_ms=until_ms)


@pytest.fixture
def site(tmp_path: Path, prefix: str) -> Iterator[Site]:
    with (
        EmbeddedKafka(tmp_path / "kafka", fast_start=True) as kafka,
        Installation.create(kafka.bootstrap, prefix) as installation,
        SchedulerProcess(installation, tmp_path / "data", settings=SETTINGS) as scheduler,
    ):
        topic = installation.create_target("orders")
        scheduler.start().until_owner()
        document = {
            "schedule": {"every": "PT1S", "anchor": ANCHOR},
            "timing": "exact",
            "misfire": "run_all",
            "grace": "PT10M",
            "target": f"kafka://{topic}",
        }
        anchor_ms = instant_ms(ANCHOR)
        jobs = [IntervalJob(job_id=f"o-{number}", every_ms=1_000, anchor_ms=anchor_ms) for number in range(JOBS)]
        installation.request_many({job.job_id: document for job in jobs})
        made = Site(kafka, installation, topic, jobs, scheduler)
        made.grow(1)
        yield made
        assert "unexpected; replaying" not in scheduler.log
        assert "Traceback" not in scheduler.log


def test_a_broker_killed_and_started_again_and_sigterm_without_it(site: Site) -> None:
    site.kafka.kill()
    site.scheduler.until_logged("replaying")
    site.kafka.start_broker()
    site.grow(2)
    found = site.settled()
    assert found.is_clean, found
    assert site.scheduler.running

    site.kafka.kill()
    site.scheduler.until_logged("replaying", count=3)
    began_s = time.monotonic()
    assert site.scheduler.terminate(within_s=EXIT_WITHIN_S) == 0
    assert time.monotonic() - began_s < EXIT_WITHIN_S


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [3, 15, 40])
def test_a_broker_that_freezes(site: Site, pause_s: int) -> None:
    """kaf-15: connections stay open and nothing answers; 15 s is beyond the transaction's time limit."""
    site.kafka.pause()
    time.sleep(pause_s)
    site.kafka.resume()
    site.grow(2)
    found = site.settled()
    assert found.is_clean, found
    assert site.scheduler.terminate() == 0


@pytest.mark.slow
def test_sigterm_while_the_broker_is_frozen(site: Site) -> None:
    site.kafka.pause()
    began_s = time.monotonic()
    site.scheduler.terminate(within_s=EXIT_WITHIN_S)
    assert time.monotonic() - began_s < EXIT_WITHIN_S
    site.kafka.resume()


@pytest.mark.slow
def test_sigterm_at_any_moment_of_an_outage(site: Site) -> None:
    """In the middle of a commit, an opening, a replay: whatever it waits for, it ends."""
    for seconds in (0.0, 0.5, 2.0, 5.0, 8.0):
        site.kafka.kill()
        time.sleep(seconds)
        began_s = time.monotonic()
        site.scheduler.terminate(within_s=EXIT_WITHIN_S)
        assert time.monotonic() - began_s < EXIT_WITHIN_S, seconds
        site.kafka.start_broker()
        site.scheduler.start().until_owner()
    found = site.settled()
    assert found.is_clean, found


@pytest.mark.slow
def test_sigterm_before_it_ever_reached_a_broker(tmp_path: Path, prefix: str) -> None:
    """No broker at all: it says so and ends by itself, or when told to."""
    with EmbeddedKafka(tmp_path / "kafka", fast_start=True) as kafka:
        with Installation.create(kafka.bootstrap, prefix) as installation:
            pass
        kafka.kill()
        with SchedulerProcess(installation, tmp_path / "data") as scheduler:
            scheduler.start()
            code = scheduler.terminate(within_s=EXIT_WITHIN_S)
            assert code != 0 or "Traceback" not in scheduler.log
            scheduler.start()
            assert scheduler.exit_code(within_s=60) == 3
            assert "Traceback" not in scheduler.log
            assert kafka.bootstrap in scheduler.log


@pytest.mark.slow
def test_ends_that_nobody_answers_are_no_ends(tmp_path: Path, prefix: str) -> None:
    """The client answers "no offset" instead of an error when time is over; taken for an end it would empty an index.

    Afterwards the leader's epoch is another one, and the ends must be known again at once.
    """
    with EmbeddedKafka(tmp_path / "kafka", fast_start=True) as kafka:
        with Installation.create(kafka.bootstrap, prefix) as installation:
            topic = installation.create_topic("ends")
            installation.produce(topic, key=b"k", value=b"v", partition=1)
        replay = KafkaReplay(KafkaConnection(kafka.bootstrap))
        partitions = [TopicPartition(topic, number) for number in range(2)]
        ends = {partitions[0]: 0, partitions[1]: 1}
        assert replay.end_offsets(partitions) == replay.stable_offsets(partitions) == ends
        kafka.pause()
        with pytest.raises(Doubt):
            replay.end_offsets(partitions)
        kafka.resume()
        kafka.kill()
        kafka.start_broker()
        eventually(lambda: _ends(replay, partitions) == ends, what="the ends are known again")


def _ends(replay: KafkaReplay, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends, nothing when they are in doubt."""
    try:
        return replay.end_offsets(partitions)
    except Doubt:
        return {}
