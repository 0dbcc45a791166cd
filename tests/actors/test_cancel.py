"""A run is to stop: at once when nobody works on it, else its worker is told until it stops, or its time is over."""

from __future__ import annotations

import pytest
from tests.actors.lines import reasons
from tests.actors.workers import W1, W2, beats, begin, cancels, claims, denials, end, lost, now, only, say

from noontide.core.run import RunState
from noontide.records.worker_events import Outcome
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work

RUN = "a:20260301T000000Z"
LEASE_MS, PROBE_MS = 30_000, 1_000
BOTH_LOSSES = pytest.mark.parametrize("from_log_alone", [False, True])


async def _cancel(stage: MemoryStage, *, reason: str = "cancelled by request") -> None:
    stage.cancel("a", reason=reason)
    await stage.run_until_idle()


def _line(stage: MemoryStage) -> tuple[object, object]:
    (line,) = stage.executions("a")
    return line["state"], line.get("reason")


async def test_a_queued_run_is_closed_at_once_and_its_claim_denied(stage: MemoryStage) -> None:
    stage.put(now())
    await stage.run_until_idle()
    await _cancel(stage, reason="wrong data")
    assert _line(stage) == ("cancelled", "wrong data")
    await say(stage, claims((RUN, 1)))
    assert denials(stage) == [(RUN, 1, "closed")]
    assert stage.leases() == {}


async def test_a_run_in_the_ready_queue_is_closed_at_once() -> None:
    async with MemoryStage() as stage:
        for number in range(300):
            stage.put(now(f"b{number}"))
        await stage.run_until_idle()
        stage.put(now("a", priority=0))
        await stage.run_until_idle()
        assert stage.leases()[RUN].state is RunState.PENDING
        await _cancel(stage)
        assert _line(stage) == ("cancelled", "cancelled by request")


async def test_a_run_that_waits_for_its_next_attempt_is_closed_at_once(stage: MemoryStage) -> None:
    await begin(stage, retry={"max_attempts": 3, "backoff": ["PT1M"]})
    await say(stage, end(RUN, 1, Outcome.FAILED, error="boom"))
    await _cancel(stage)
    assert _line(stage)[0] == "cancelled"
    await stage.advance(120_000)
    assert len(stage.invitations()) == 1


async def test_a_running_one_is_told_with_every_heartbeat_and_with_its_grant(stage: MemoryStage) -> None:
    await begin(stage)
    await _cancel(stage, reason="wrong data")
    assert (only(stage).state, only(stage).cancel) == (RunState.RUNNING, "wrong data")
    assert stage.executions("a") == []
    await say(stage, beats((RUN, 1)))
    await say(stage, beats((RUN, 1)))
    await say(stage, claims((RUN, 1)))
    assert cancels(stage) == [(RUN, 1, "wrong data")] * 3


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.FAILED, Outcome.HANDED_BACK])
async def test_it_is_closed_as_cancelled_however_its_worker_stops(stage: MemoryStage, outcome: Outcome) -> None:
    """Case rac-04: never a follow-up run."""
    await begin(stage, retry={"max_attempts": 5})
    await _cancel(stage, reason="wrong data")
    await say(stage, end(RUN, 1, outcome, error="stopped"))
    assert _line(stage) == ("cancelled", "wrong data")
    await stage.advance(3_600_000)
    assert len(stage.invitations()) == 1
    assert [result["state"] for result in stage.results()] == ["cancelled"]


async def test_one_that_had_finished_before_it_could_be_stopped_has_succeeded(stage: MemoryStage) -> None:
    await begin(stage)
    await _cancel(stage)
    await say(stage, end(RUN, 1))
    assert _line(stage)[0] == "succeeded"


async def test_a_cancel_after_the_end_is_refused(stage: MemoryStage) -> None:
    await begin(stage)
    await say(stage, end(RUN, 1))
    await _cancel(stage)
    assert len(reasons(stage)) == 1
    assert "not live" in reasons(stage)[0]
    assert len(stage.executions("a")) == 1


async def test_what_comes_after_a_cancel_is_ignored(stage: MemoryStage) -> None:
    """Case rac-07."""
    stage.put(now())
    await stage.run_until_idle()
    await say(stage, claims((RUN, 1)))
    await _cancel(stage)
    await say(stage, end(RUN, 1, Outcome.CANCELLED), end(RUN, 1))
    assert _line(stage)[0] == "cancelled"
    assert stage.slots[0].slot.counts["stale_ends"] == 1


async def test_a_worker_that_ignores_it_loses_the_run_after_the_grace(stage: MemoryStage) -> None:
    await begin(stage)
    await stage.advance(10_000)
    await _cancel(stage, reason="wrong data")
    grace_ms = stage.settings.cancel_grace_ms
    for _ in range(grace_ms // 5_000):
        await say(stage, beats((RUN, 1)))
        assert only(stage).state is RunState.RUNNING
        await stage.advance(5_000)
    await stage.advance(PROBE_MS)
    assert _line(stage) == ("cancelled", "wrong data")
    await say(stage, beats((RUN, 1)))
    assert lost(stage) == [(RUN, 1)]
    assert len(stage.invitations()) == 1


async def test_a_lost_one_is_closed_as_cancelled_not_tried_again(stage: MemoryStage) -> None:
    await begin(stage)
    await stage.advance(25_000)
    await _cancel(stage)
    await stage.advance(5_000 + PROBE_MS)
    assert _line(stage)[0] == "cancelled"
    assert len(stage.invitations()) == 1


@BOTH_LOSSES
async def test_a_cancel_outlives_the_owner(stage: MemoryStage, from_log_alone: bool) -> None:
    await begin(stage)
    await _cancel(stage, reason="wrong data")
    await stage.crash(from_log_alone=from_log_alone)
    await say(stage, beats((RUN, 1)))
    assert cancels(stage) == [(RUN, 1, "wrong data")]
    for _ in range(stage.settings.cancel_grace_ms // 5_000):
        await say(stage, beats((RUN, 1)))
        await stage.advance(5_000)
    await stage.advance(PROBE_MS)
    assert _line(stage) == ("cancelled", "wrong data")


async def test_an_open_run_is_cancelled_at_once(stage: MemoryStage) -> None:
    await begin(stage)
    await say(stage, end(RUN, 1, Outcome.OPEN))
    await _cancel(stage)
    assert _line(stage)[0] == "cancelled"
    await say(stage, end(RUN, 1, worker="api"))
    assert len(stage.executions("a")) == 1


async def test_repeated_cancels_change_nothing(stage: MemoryStage) -> None:
    await begin(stage)
    await _cancel(stage, reason="first")
    before = len(stage.records("noontide.leases"))
    await stage.advance(20_000)
    await say(stage, beats((RUN, 1)))
    await _cancel(stage, reason="second")
    assert only(stage).cancel == "first"
    assert len(stage.records("noontide.leases")) == before
    await stage.advance(stage.settings.cancel_grace_ms - 20_000 + PROBE_MS)
    assert _line(stage) == ("cancelled", "first")


async def test_many_cancels_leave_nothing_behind(stage: MemoryStage) -> None:
    """Case rac-06."""
    crew = Crew(stage)
    crew.hire(W1, does=lambda _run: Work(None), capacity=20)
    for number in range(50):
        stage.put(now(f"b{number}"))
    await stage.run_until_idle()
    for number in range(50):
        stage.cancel(f"b{number}")
    await stage.advance(LEASE_MS + PROBE_MS)
    assert stage.leases() == {}
    assert {line["state"] for line in stage.executions()} == {"cancelled"}
    keeper = stage.slots[0].slot.keeper
    assert keeper.silent_lanes(1 << 60, 0) == []
    assert keeper._held == {}
    stage.put(now("after"))
    await stage.run_until_idle()
    assert "after" in {offer.job_id for offer in stage.invitations()}


async def test_delete_lets_a_running_one_end_and_a_waiting_one_not_begin(stage: MemoryStage) -> None:
    await begin(stage, payload={"n": 1}, retry={"max_attempts": 2, "backoff": ["PT10S"]})
    stage.delete("a")
    await stage.run_until_idle()
    assert only(stage).kept
    await stage.crash(from_log_alone=True)
    await say(stage, end(RUN, 1, Outcome.FAILED, error="boom"))
    await stage.advance(11_000)
    await say(stage, claims((RUN, 2), worker=W2))
    assert stage.invitations()[-1].payload == b'{"n":1}'
    await say(stage, end(RUN, 2, worker=W2))
    assert _line(stage)[0] == "succeeded"
    assert stage.leases() == {}
    assert [key for key in stage._latest("state") if key.startswith(b"run/")] == []


async def test_deleted_while_it_waits_for_its_next_attempt_it_is_cancelled(stage: MemoryStage) -> None:
    await begin(stage, retry={"max_attempts": 2, "backoff": ["PT10S"]})
    await say(stage, end(RUN, 1, Outcome.FAILED, error="boom"))
    stage.delete("a")
    await stage.run_until_idle()
    assert _line(stage) == ("cancelled", "the job was deleted")
