"""An occurrence falls due while an earlier run of the job is live: waiting for a sick topic, or under way."""

from __future__ import annotations

import pytest
from tests.actors.lines import dues_s, history

from noontide.core.run import RunState
from noontide.testing.builders import every, job
from noontide.testing.memory_stage import MemoryStage

SLOW = pytest.mark.parametrize("topic", ["orders", "elsewhere"])


def _hold_up(stage: MemoryStage, topic: str) -> None:
    """Runs for this topic stay live: its registered topic is sick, or nothing sent is acknowledged."""
    if topic == "orders":
        stage.sicken(topic)
    else:
        stage.holds_sends = True


async def _let_go(stage: MemoryStage, topic: str) -> None:
    if topic == "orders":
        stage.heal(topic)
        await stage.run_until_idle()
    else:
        await stage.send()


@SLOW
async def test_skip_records_each_with_its_reason(stage: MemoryStage, topic: str) -> None:
    _hold_up(stage, topic)
    stage.put(job("a", every("PT10S"), to=topic, overlap="skip"))
    await stage.advance(30_000)
    assert history(stage, "a") == [(20, "skipped"), (30, "skipped")]
    state = "pending" if topic == "orders" else "queued"
    assert {str(line["reason"]) for line in stage.executions("a")} == {f"overlap: a:20260301T000010Z is {state}"}
    await _let_go(stage, topic)
    await stage.advance(10_000)
    assert dues_s(stage, topic)[0] == 10
    assert history(stage, "a")[2] == (10, "succeeded")


async def test_run_skip_run_skip(stage: MemoryStage) -> None:
    """Case mis-14: every 10 s, 15 s of work."""
    stage.holds_sends = True
    stage.put(job("a", every("PT10S"), to="elsewhere", overlap="skip"))
    for duration_ms in (25_000, 20_000, 20_000):
        await stage.advance(duration_ms)
        await stage.send()
    assert [state for _, state in history(stage, "a")] == ["skipped", "succeeded"] * 3
    assert dues_s(stage, "elsewhere") == [10, 30, 50]
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.due_ms is not None
    assert cursor.due_ms > stage.clock.now_ms()


@SLOW
async def test_queue_keeps_one_waiting(stage: MemoryStage, topic: str) -> None:
    """Cases mis-15 and mis-16."""
    _hold_up(stage, topic)
    stage.put(job("a", every("PT10S"), to=topic, overlap="queue"))
    await stage.advance(45_000)
    assert history(stage, "a") == [(30, "skipped"), (40, "skipped")]
    first, waiting = stage.leases().values()
    assert waiting.waits_for == first.run_id == "a:20260301T000010Z"
    assert waiting.run_id == "a:20260301T000020Z"
    assert waiting.reason == "overlap: waits for a:20260301T000010Z"
    await _let_go(stage, topic)
    await _let_go(stage, topic)
    assert dues_s(stage, topic) == [10, 20]
    assert stage.leases() == {}


@SLOW
async def test_queue_never_runs_two_at_once(stage: MemoryStage, topic: str) -> None:
    _hold_up(stage, topic)
    stage.put(job("a", every("PT5S"), to=topic, overlap="queue"))
    for _ in range(12):
        await stage.advance(5_000)
        at_work = [run for run in stage.leases().values() if run.waits_for is None]
        assert len(at_work) <= 1
        assert len(stage.leases()) <= 2


@SLOW
async def test_a_queued_one_starts_after_a_crash_too(stage: MemoryStage, topic: str) -> None:
    _hold_up(stage, topic)
    stage.put(job("a", every("PT10S"), to=topic, overlap="queue"))
    await stage.advance(20_000)
    await stage.crash(from_log_alone=True)
    await _let_go(stage, topic)
    await _let_go(stage, topic)
    assert dues_s(stage, topic) == [10, 20]


@SLOW
async def test_allow_lets_them_all_live(stage: MemoryStage, topic: str) -> None:
    _hold_up(stage, topic)
    stage.put(job("a", every("PT10S"), to=topic, overlap="allow"))
    await stage.advance(35_000)
    assert len(stage.leases()) == 3
    assert history(stage, "a") == []
    await _let_go(stage, topic)
    assert dues_s(stage, topic) == [10, 20, 30]


@SLOW
async def test_replace_cancels_the_live_one(stage: MemoryStage, topic: str) -> None:
    _hold_up(stage, topic)
    stage.put(job("a", every("PT10S"), to=topic, overlap="replace"))
    await stage.advance(35_000)
    assert history(stage, "a") == [(10, "cancelled"), (20, "cancelled")]
    assert stage.executions("a")[0]["reason"] == "overlap: replaced by a:20260301T000020Z"
    assert list(stage.leases()) == ["a:20260301T000030Z"]
    await _let_go(stage, topic)
    assert dues_s(stage, topic)[-1] == 30
    assert history(stage, "a")[2] == (30, "succeeded")


async def test_a_replaced_run_that_waited_is_never_delivered(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", every("PT10S"), overlap="replace"))
    await stage.advance(35_000)
    stage.heal("orders")
    await stage.run_until_idle()
    assert dues_s(stage) == [30]


async def test_the_acknowledgement_of_a_replaced_run_changes_nothing(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", every("PT10S"), to="elsewhere", overlap="replace"))
    await stage.advance(20_000)
    await stage.send(1)
    assert history(stage, "a") == [(10, "cancelled")]
    assert stage.slots[0].slot.counts["ignored_deliveries"] == 1
    assert stage.leases()["a:20260301T000020Z"].state is RunState.QUEUED


async def test_overlap_is_judged_after_a_crash_as_before(stage: MemoryStage) -> None:
    """Case mis-18."""
    stage.holds_sends = True
    stage.put(job("a", every("PT10S"), to="elsewhere", overlap="skip"))
    await stage.advance(15_000)
    await stage.crash(from_log_alone=True)
    await stage.advance(5_000)
    assert history(stage, "a") == [(20, "skipped")]
    assert len(stage.slots[0].under_way) == 1
