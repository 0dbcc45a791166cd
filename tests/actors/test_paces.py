"""Targets in trouble are slowed, their runs wait here, and they are left alone again when they are well."""

from __future__ import annotations

from tests.actors.lines import SECOND_MS
from tests.actors.workers import handler

from noontide.core.pace import FREE_PER_SECOND, LEAST_PER_SECOND, START_PER_SECOND, Pace, eased, slowed
from noontide.core.run import RunState
from noontide.records.worker_events import Outcome
from noontide.testing.builders import once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

OK, SLOW = Work(100), Work(100, Outcome.FAILED, "timed out after 1 s")


def put(stage: MemoryStage, count: int, *, at_ms: int = 0, **fields: object) -> None:
    for number in range(count):
        retry = {"max_attempts": 50, "backoff": ["PT1S"]}
        stage.put(handler(f"j{at_ms}-{number}", once(START_MS + at_ms), retry=retry, **fields))


def test_trouble_halves_and_success_adds() -> None:
    pace = slowed(None, now_ms=0, wait_ms=0, why="x")
    assert pace.per_second == START_PER_SECOND / 2
    assert slowed(pace, now_ms=999, wait_ms=0, why="x").per_second == pace.per_second  # one trouble
    assert slowed(pace, now_ms=1_000, wait_ms=0, why="x").per_second == pace.per_second / 2
    for second in range(20):
        pace = slowed(pace, now_ms=1_000 * second + 1_000, wait_ms=0, why="x")
    assert pace.per_second == LEAST_PER_SECOND
    assert slowed(pace, now_ms=50_000, wait_ms=70_000, why="x").next_ms >= 120_000
    well: Pace | None = pace
    successes = 0
    while well is not None:
        well, successes = eased(well, now_ms=60_000), successes + 1
    assert successes <= 2 * FREE_PER_SECOND + 1


async def test_a_sick_target_gets_fewer_and_fewer_runs_and_recovers(stage: MemoryStage) -> None:
    sick = True
    worker = Crew(stage).hire(does=lambda _run: SLOW if sick else OK)
    put(stage, 50)
    await stage.advance(20 * SECOND_MS)
    before = len(worker.starts)
    await stage.advance(60 * SECOND_MS)
    tried = len(worker.starts) - before
    assert 1 <= tried <= 60, "hundreds if it were not slowed: 50 runs, each tried again after a second"
    waiting = [run for run in stage.leases().values() if "is slowed: timed out" in str(run.reason)]
    assert len(waiting) >= 40
    assert all(run.state in (RunState.PENDING, RunState.RETRY_WAIT) for run in waiting)
    sick = False
    await stage.advance(180 * SECOND_MS)
    assert len(stage.executions()) == 50
    assert {line["state"] for line in stage.executions()} == {"succeeded"}


async def test_others_are_not_slowed(stage: MemoryStage) -> None:
    Crew(stage).hire(does=lambda run: SLOW if run.job_id.startswith("j") else OK)
    put(stage, 20)
    await stage.advance(10 * SECOND_MS)
    for number in range(20):
        stage.put({**handler(f"other-{number}", once(START_MS)), "target": {"handler": "other"}})
    await stage.advance(2 * SECOND_MS)
    assert sum(str(line["job_id"]).startswith("other") for line in stage.executions()) == 20


async def test_a_run_that_is_put_off_says_so_in_its_lease(stage: MemoryStage) -> None:
    stage.configure("tenant/t", {"concurrency_max": 3, "concurrency_keys": {"disk": 1}})
    Crew(stage).hire(does=lambda _run: SLOW)
    for second in range(30):
        put(stage, 3, at_ms=second * SECOND_MS, tenant="t", concurrency_key="disk")
        await stage.advance(SECOND_MS)
        remembered = {
            run_id: run.permits
            for partition in stage.slots[0].slot.partitions.values()
            for run_id, run in partition.live.by_id.items()
        }
        assert remembered == {run_id: run.permits for run_id, run in stage.leases().items()}


async def test_a_slowed_target_keeps_no_permits(stage: MemoryStage) -> None:
    stage.configure("tenant/t", {"concurrency_max": 3})
    sick = True
    Crew(stage).hire(does=lambda run: SLOW if sick and run.job_id.startswith("j") else OK)
    put(stage, 10, tenant="t")
    await stage.advance(20 * SECOND_MS)
    for number in range(10):
        document = {**handler(f"other-{number}", once(START_MS), tenant="t"), "target": {"handler": "other"}}
        stage.put(document)
    await stage.advance(5 * SECOND_MS)
    assert sum(str(line["job_id"]).startswith("other") for line in stage.executions()) == 10
    sick = False
    await stage.advance(180 * SECOND_MS)
    assert len(stage.executions()) == 20
