"""An occurrence falls due while a worker is busy with an earlier run of the job."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.actors.lines import history
from tests.actors.workers import W1, beats, claims, end, handler, say

from noontide.core.run import RunState
from noontide.records.worker_events import Outcome
from noontide.testing.builders import cron, every
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, ScriptedWorker, Start, Work
from noontide.testing.virtual_clock import START_MS

BOTH_LOSSES = pytest.mark.parametrize("from_log_alone", [False, True])


def _run(second: int) -> str:
    return f"a:20260301T0000{second:02}Z"


def _begun(worker: ScriptedWorker) -> list[tuple[int, int]]:
    """(due, begin) in seconds after the start."""
    return [(_due_s(start), (start.at_ms - START_MS) // 1_000) for start in worker.starts]


def _due_s(start: Start) -> int:
    text = start.run_id.split("T")[1]
    return int(text[:2]) * 3_600 + int(text[2:4]) * 60 + int(text[4:6])


async def test_skip_runs_every_second_time(stage: MemoryStage) -> None:
    """Case mis-14: every 10 s, 15 s of work."""
    worker = Crew(stage).hire(does=lambda _run: Work(15_000))
    stage.put(handler("a", every("PT10S"), overlap="skip"))
    await stage.advance(66_000)
    assert _begun(worker) == [(10, 10), (30, 30), (50, 50)]
    assert [state for _, state in history(stage, "a")] == ["skipped", "succeeded"] * 3
    assert stage.executions("a")[0]["reason"] == f"overlap: {_run(10)} is running"


async def test_queue_keeps_one_waiting_and_begins_it_when_the_other_ends(stage: MemoryStage) -> None:
    """Cases mis-15 and mis-16: every 5 s, 12 s of work."""
    worker = Crew(stage).hire(does=lambda _run: Work(12_000))
    stage.put(handler("a", every("PT5S"), overlap="queue"))
    await stage.advance(60_000)
    begun = [at_s for _, at_s in _begun(worker)]
    assert begun == [5, 17, 29, 41, 53]
    assert len(stage.leases()) == 2
    waiting = [run for run in stage.leases().values() if run.waits_for]
    assert len(waiting) == 1
    assert waiting[0].state is RunState.PENDING


async def test_allow_lets_all_of_them_run(stage: MemoryStage) -> None:
    worker = Crew(stage).hire(does=lambda _run: Work(25_000))
    stage.put(handler("a", every("PT10S"), overlap="allow"))
    await stage.advance(45_000)
    assert _begun(worker) == [(10, 10), (20, 20), (30, 30), (40, 40)]
    assert [state for _, state in history(stage, "a")] == ["succeeded"] * 2


@BOTH_LOSSES
async def test_replace_waits_until_the_one_before_has_stopped(stage: MemoryStage, from_log_alone: bool) -> None:
    stage.put(handler("a", every("PT10S"), overlap="replace"))
    await stage.advance(10_000)
    await say(stage, claims((_run(10), 1)))
    await stage.advance(10_000)
    live = stage.leases()
    assert live[_run(10)].cancel == f"overlap: replaced by {_run(20)}"
    assert (live[_run(20)].state, live[_run(20)].waits_for) == (RunState.PENDING, _run(10))
    await stage.crash(from_log_alone=from_log_alone)
    await say(stage, beats((_run(10), 1)))
    assert len(stage.invitations()) == 1
    await say(stage, end(_run(10), 1, Outcome.CANCELLED))
    assert [offer.run_id for offer in stage.invitations()] == [_run(10), _run(20)]
    assert history(stage, "a") == [(10, "cancelled")]


async def test_replace_replaces_what_still_waits(stage: MemoryStage) -> None:
    stage.put(handler("a", every("PT10S"), overlap="replace"))
    await stage.advance(10_000)
    await say(stage, claims((_run(10), 1)))
    for _ in range(2):
        await stage.advance(10_000)
        await say(stage, beats((_run(10), 1)))
    assert history(stage, "a") == [(20, "cancelled")]
    assert stage.leases()[_run(30)].waits_for == _run(10)
    await say(stage, end(_run(10), 1, Outcome.CANCELLED))
    assert [offer.run_id for offer in stage.invitations()] == [_run(10), _run(30)]


async def test_replace_does_not_wait_for_a_worker_that_ignores_it(stage: MemoryStage) -> None:
    crew = Crew(stage)
    worker = crew.hire(does=lambda run: Work(None if run.run_id == _run(10) else 1_000))
    worker.obeys_cancels = False
    stage.put(handler("a", every("PT40S", anchor_ms=START_MS + 10_000), overlap="replace"))
    await stage.advance(82_000)
    assert [start.run_id for start in worker.starts] == [_run(10), _run(50)]
    after_s = (worker.starts[1].at_ms - START_MS) // 1_000 - 50
    assert stage.settings.cancel_grace_ms // 1_000 - 3 <= after_s <= stage.settings.cancel_grace_ms // 1_000 + 1
    assert worker.lost == [_run(10)] or _run(10) in worker.held


async def test_a_queued_one_begins_when_the_one_before_is_lost_for_good(stage: MemoryStage) -> None:
    stage.put(handler("a", every("PT10S"), overlap="queue", retry={"max_attempts": 1}))
    await stage.advance(10_000)
    await say(stage, claims((_run(10), 1)))
    await stage.advance(31_000)
    assert (10, "dead") in history(stage, "a")
    assert [offer.run_id for offer in stage.invitations()] == [_run(10), _run(20)]


@BOTH_LOSSES
async def test_at_most_one_runs_though_the_owner_changes(stage: MemoryStage, from_log_alone: bool) -> None:
    """Case mis-18."""
    worker = Crew(stage).hire(does=lambda _run: Work(7_000))
    stage.put(handler("a", every("PT5S"), overlap="skip"))
    for _ in range(20):
        await stage.advance(3_000)
        await stage.crash(from_log_alone=from_log_alone)
        assert len(worker.held) <= 1
    assert [due for due, _ in _begun(worker)] == [5, 15, 25, 35, 45, 55]


@pytest.mark.parametrize("overlap", ["queue", "skip"])
async def test_a_catch_up_runs_in_order_one_after_the_other(stage: MemoryStage, overlap: str) -> None:
    """Case mis-08."""
    stage.put(handler("a", cron("* * * * *"), misfire="run_all", overlap=overlap, grace="PT1S"))
    await stage.run_until_idle()
    await stage.jump(5 * 60_000 + 30_000)
    worker = Crew(stage).hire(does=lambda _run: Work(3_000))
    await stage.advance(29_000)
    begun = [start.run_id for start in worker.starts]
    assert begun == [f"a:20260301T000{minute}00Z" for minute in range(1, 6)]
    times = [start.at_ms for start in worker.starts]
    assert all(later - earlier >= 3_000 for earlier, later in pairwise(times))


async def test_a_catch_up_with_allow_runs_at_once(stage: MemoryStage) -> None:
    """Case mis-05."""
    stage.put(handler("a", every("PT15S"), misfire="run_all", overlap="allow", grace="PT1S"))
    await stage.run_until_idle()
    await stage.jump(76_000)
    worker = Crew(stage).hire(does=lambda _run: Work(5_000))
    await stage.run_until_idle()
    assert [_due_s(start) for start in worker.starts] == [15, 30, 45, 60, 75]


async def test_a_long_run_is_not_doubled_by_its_own_schedule(stage: MemoryStage) -> None:
    """Case mis-17: every quarter of an hour, 40 minutes of work."""
    worker = Crew(stage).hire(W1, does=lambda _run: Work(40 * 60_000))
    stage.put(handler("a", cron("*/15 * * * *"), overlap="skip", timeout="PT1H"))
    await stage.advance(56 * 60_000)
    assert [_due_s(start) // 60 for start in worker.starts] == [15]
    assert [state for _, state in history(stage, "a")] == ["skipped", "skipped", "succeeded"]
