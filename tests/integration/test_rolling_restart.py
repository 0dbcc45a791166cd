"""Three schedulers under load are restarted one after the other: nothing waits for a timeout."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import IntervalJob, due_ms, instant_ms, judge
from tests.integration.installation import Installation, Seen, eventually
from tests.integration.scheduler_process import SchedulerProcess
from tests.integration.test_disk import slots_of

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.membership import SESSION_TIMEOUT_MS
from noontide.testing.checker import check

ANCHOR = "2026-01-01T00:00:00Z"
JOBS = [IntervalJob(job_id=f"roll-{number}", every_ms=1000, anchor_ms=instant_ms(ANCHOR)) for number in range(400)]
EVERY = {"schedule": {"every": "PT1S", "anchor": ANCHOR}, "timing": "exact", "misfire": "run_all"}
SLOTS = 6


@pytest.fixture
def installation(kafka: RunningKafka, prefix: str) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, prefix, partitions=24, slots=SLOTS) as made:
        yield made


def largest_gap_ms(records: list[Seen]) -> int:
    """The longest time between two records of one job, beyond its interval."""
    times: dict[bytes | None, list[int]] = defaultdict(list)
    for each in records:
        times[each.key].append(each.at_ms)
    return max(later - earlier for found in times.values() for earlier, later in pairwise(sorted(found))) - 1_000


@pytest.mark.slow
def test_three_schedulers_are_restarted_one_after_the_other(installation: Installation, tmp_path: Path) -> None:
    topic = installation.create_target("orders")
    with ExitStack() as ends:
        all_ = [ends.enter_context(SchedulerProcess(installation, tmp_path / name)) for name in "abc"]
        for each in all_:
            each.start()
        share = SLOTS // len(all_)
        shared = lambda: all(len(slots_of(each, installation)) == share for each in all_)  # noqa: E731
        eventually(shared, what="two slots each")
        installation.request_many({job.job_id: {**EVERY, "target": f"kafka://{topic}"} for job in JOBS})
        installation.log(topic).until(lambda found: len({each.key for each in found}) == len(JOBS))
        begun_ms = time.time_ns() // 1_000_000
        for each in all_:
            assert each.terminate() == 0
            each.start()
            eventually(shared, what="two slots each again")
        until_ms = time.time_ns() // 1_000_000
        eventually(lambda: not judge(installation, topic, JOBS, until_ms=until_ms).missing, what="all occurrences")
        found = judge(installation, topic, JOBS, until_ms=until_ms)
        assert found.is_clean, found
        assert check(KafkaConnection(installation.bootstrap), installation.layout, until_ms=until_ms).ok
    records = [each for each in installation.log(topic).look() if due_ms(each) >= begun_ms]
    late_ms = max(each.at_ms - due_ms(each) for each in records)
    print(f"rolling restart: {len(records):,} runs, largest gap {largest_gap_ms(records)} ms, latest {late_ms} ms")
    assert late_ms < SESSION_TIMEOUT_MS
