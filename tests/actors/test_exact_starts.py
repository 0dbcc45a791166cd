"""The quota of exact starts: over all slots, by the minute, and through crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from noontide.core.cursor import JobState
from noontide.records.topics import Layout
from noontide.testing.builders import cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture
async def two_slots() -> AsyncIterator[MemoryStage]:
    async with MemoryStage(layout=Layout(partitions=8, slots=2)) as stage:
        stage.register("orders")
        stage.configure("tenant/default", {"exact_starts_per_minute_max": 3})
        yield stage


def put(stage: MemoryStage, *numbers: int, at: str = "0 9 * * *", **fields: Any) -> None:
    for number in numbers:
        stage.put(job(f"job-{number}", cron(at), **fields), verdict="1")


def accepted(stage: MemoryStage) -> int:
    return len(stage.jobs())


async def test_no_more_jobs_than_the_quota_insist_on_a_minute_and_the_nearest_free_one_is_named(
    two_slots: MemoryStage,
) -> None:
    put(two_slots, *range(10))
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 3
    refused = two_slots.rejected()
    assert len(refused) == 7
    problem: Any = refused[0]["problems"]
    problem = problem[0]
    assert problem["pointer"] == "/timing"
    assert "the quota of tenant 'default' is full at 2026-03-01T09:00Z: 3 jobs" in problem["message"]
    assert "exact_starts_per_minute_max" in problem["message"]
    assert "the nearest free minute is 2026-03-01T09:01Z" in problem["message"]
    verdicts = [each["verdict"] for each in two_slots.verdicts().values()]
    assert (verdicts.count("accepted"), verdicts.count("refused")) == (3, 7)
    slots = {two_slots.layout.slot_of(two_slots.layout.partition_of(job_id)) for job_id in two_slots.jobs()}
    assert len(slots) == 2 or accepted(two_slots) == 3


async def test_the_minute_before_and_the_minute_after_are_free(two_slots: MemoryStage) -> None:
    put(two_slots, 0, 1, 2)
    put(two_slots, 3, at="59 8 * * *")
    put(two_slots, 4, at="1 9 * * *")
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 5
    put(two_slots, 5, at="0 * * * *")  # would be at nine, too
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 5


async def test_relaxed_jobs_one_offs_and_other_tenants_do_not_count(two_slots: MemoryStage) -> None:
    put(two_slots, *range(6), timing="relaxed")
    put(two_slots, *range(6, 12), tenant="other")
    for number in range(12, 18):
        two_slots.put(job(f"job-{number}", once(START_MS + 9 * HOUR_MS)))
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 18
    put(two_slots, 20, 21, 22)
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 21


async def test_a_job_that_goes_makes_room(two_slots: MemoryStage) -> None:
    put(two_slots, 0, 1, 2)
    await two_slots.run_until_idle()
    two_slots.delete("job-0")
    put(two_slots, 1, timing="relaxed")
    two_slots.put(job("job-2", cron("0 10 * * *")))
    await two_slots.run_until_idle()
    put(two_slots, *range(3, 10))
    await two_slots.run_until_idle()
    assert len([each for each in two_slots.jobs() if each >= "job-3"]) == 3


async def test_a_job_that_is_completed_makes_room(two_slots: MemoryStage) -> None:
    put(two_slots, 0, max_runs=1)
    put(two_slots, 1, ends_at="2026-03-01T12:00:00Z")
    put(two_slots, 2)
    await two_slots.run_until_idle()
    await two_slots.advance(DAY_MS // 2 + HOUR_MS)
    assert two_slots.cursor("job-0").state is JobState.COMPLETED  # type: ignore[union-attr]
    put(two_slots, *range(3, 10))
    await two_slots.run_until_idle()
    assert len([each for each in two_slots.jobs() if each >= "job-3"]) == 2


async def test_an_update_that_leaves_the_schedule_alone_is_never_refused(two_slots: MemoryStage) -> None:
    put(two_slots, 0, 1, 2)
    await two_slots.run_until_idle()
    put(two_slots, 1, payload={"n": 2})
    put(two_slots, 2, at="30 9 * * *")
    put(two_slots, 2, at="0 9 * * *")  # back again: its own place is free
    await two_slots.run_until_idle()
    assert two_slots.rejected() == []
    assert two_slots.jobs()["job-1"]["payload"] == {"n": 2}


async def test_intervals_count_in_every_minute_they_touch(two_slots: MemoryStage) -> None:
    for number in range(3):
        two_slots.put(job(f"often-{number}", every("PT20S")))
    put(two_slots, 0)
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 3
    assert "none within 12 hours" in str(two_slots.rejected()[0]["reason"])


async def test_what_counts_outlives_crashes_and_is_rebuilt_from_the_log(two_slots: MemoryStage) -> None:
    put(two_slots, 0, 1)
    await two_slots.run_until_idle()
    await two_slots.crash(from_log_alone=True)
    put(two_slots, *range(2, 6))
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 3
    await two_slots.crash()
    put(two_slots, *range(6, 9))
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 3


async def test_a_definition_that_waits_for_its_quota_outlives_a_crash(two_slots: MemoryStage) -> None:
    put(two_slots, *range(8))
    for _ in range(12):  # a few cycles at a time, with a crash between them
        for each in two_slots.slots:
            await each.slot.cycle()
        await two_slots.crash(from_log_alone=True)
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 3
    assert len(two_slots.rejected()) == 5


async def test_a_definition_that_is_refused_for_another_reason_does_not_count(two_slots: MemoryStage) -> None:
    put(two_slots, 0, 1)
    await two_slots.run_until_idle()
    for number in range(5):
        two_slots.put(job(f"bad-{number}", cron("0 9 * * *"), lane="nowhere"))
    two_slots.put(job("job-0", cron("0 10 * * *")), **{"if-match": '"api-0-999"'})
    await two_slots.run_until_idle()
    put(two_slots, 2, 3)
    await two_slots.run_until_idle()
    assert sorted(two_slots.jobs()) == ["job-0", "job-1", "job-2"]


async def test_quotas_are_changed_live(two_slots: MemoryStage) -> None:
    put(two_slots, *range(5))
    await two_slots.run_until_idle()
    two_slots.configure("tenant/default", {"exact_starts_per_minute_max": 4})
    put(two_slots, *range(5, 8))
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 4
    two_slots.configure("tenant/default", {})
    put(two_slots, *range(8, 14))
    await two_slots.run_until_idle()
    assert accepted(two_slots) == 10
