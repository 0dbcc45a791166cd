"""Triggers and cancels."""

from __future__ import annotations

import pytest
from tests.actors.lines import dues_s, history, reasons

from noontide.testing.builders import after_completion, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS


async def test_a_trigger_runs_now_and_leaves_the_schedule_alone(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), payload={"n": 1}))
    await stage.advance(3_000)
    before = stage.cursor("a")
    offset = stage.trigger("a")
    await stage.run_until_idle()
    assert stage.run_ids("orders") == [f"a:m{offset}"]
    assert stage.delivered("orders")[0].value == b'{"n":1}'
    assert stage.cursor("a") == before
    await stage.advance(7_000)
    assert stage.run_ids("orders")[1:] == ["a:20260301T000010Z"]


async def test_a_trigger_may_bring_its_own_payload(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), payload={"n": 1}))
    stage.trigger("a", payload={"by": "hand"})
    await stage.advance(10_000)
    assert [record.value for record in stage.delivered("orders")] == [b'{"by":"hand"}', b'{"n":1}']


async def test_its_own_payload_survives_a_crash(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", None, after=["x"], payload={"n": 1}))
    stage.trigger("a", payload={"by": "hand"})
    await stage.run_until_idle()
    await stage.crash(from_log_alone=True)
    stage.heal("orders")
    await stage.run_until_idle()
    assert [record.value for record in stage.delivered("orders")] == [b'{"by":"hand"}']


async def test_a_trigger_works_on_a_paused_job(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), paused=True))
    await stage.run_until_idle()
    before = stage.cursor("a")
    stage.trigger("a")
    await stage.advance(30_000)
    assert len(stage.run_ids("orders")) == 1
    assert stage.cursor("a") == before


async def test_a_trigger_counts_for_overlap_and_is_recorded_when_skipped(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", every("PT1H"), to="elsewhere", overlap="skip"))
    first = stage.trigger("a")
    second = stage.trigger("a")
    await stage.run_until_idle()
    assert list(stage.leases()) == [f"a:m{first}"]
    (line,) = stage.executions("a")
    assert (line["run_id"], line["state"]) == (f"a:m{second}", "skipped")


async def test_a_trigger_does_not_count_towards_max_runs(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), max_runs=2))
    stage.trigger("a")
    await stage.advance(60_000)
    assert dues_s(stage) == [0, 10, 20]


async def test_a_trigger_of_nobody_is_refused(stage: MemoryStage) -> None:
    stage.trigger("nobody")
    await stage.run_until_idle()
    assert reasons(stage) == ["(document): there is no job 'nobody'"]


async def test_triggers_from_two_domains_are_two_runs(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    await stage.run_until_idle()
    stage.trigger("a", domain="api")
    stage.request("b", b"{}", domain="public", partition=stage.layout.partition_of("a"))
    stage.trigger("a", domain="public")
    await stage.run_until_idle()
    assert len(set(stage.run_ids("orders"))) == 2


async def test_cancel_ends_a_run_that_waits(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", every("PT10S"), overlap="allow"))
    await stage.advance(20_000)
    stage.cancel("a", run_id="a:20260301T000010Z", reason="not wanted")
    await stage.run_until_idle()
    (line,) = stage.executions("a")
    assert (line["run_id"], line["state"], line["reason"]) == ("a:20260301T000010Z", "cancelled", "not wanted")
    stage.heal("orders")
    await stage.run_until_idle()
    assert dues_s(stage) == [20]


async def test_cancel_without_a_run_ends_them_all(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", every("PT10S"), overlap="queue"))
    await stage.advance(20_000)
    stage.cancel("a")
    await stage.run_until_idle()
    assert history(stage, "a") == [(10, "cancelled"), (20, "cancelled")]
    assert stage.leases() == {}
    assert stage.executions("a")[0]["reason"] == "cancelled by request"


async def test_cancelling_one_lets_the_one_that_waited_for_it_go(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", every("PT10S"), to="elsewhere", overlap="queue"))
    await stage.advance(20_000)
    stage.cancel("a", run_id="a:20260301T000010Z")
    await stage.run_until_idle()
    stage.slots[0].under_way.pop(0)  # the first was under way; it is not what this test looks at
    await stage.send()
    assert dues_s(stage, "elsewhere") == [20]


@pytest.mark.parametrize("run_id", ["a:20260301T000010Z", None])
async def test_cancel_of_what_is_not_live_is_refused(stage: MemoryStage, run_id: str | None) -> None:
    stage.put(job("a", every("PT10S")))
    await stage.advance(10_000)
    stage.cancel("a", **({} if run_id is None else {"run_id": run_id}))
    await stage.run_until_idle()
    assert reasons(stage) == [f"/run_id: {run_id or 'a'!r} is not live: finished, or never claimed"]


async def test_cancel_together_with_recovery_gives_one_end(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", once(START_MS + 10_000)))
    await stage.advance(20_000)
    stage.cancel("a")
    stage.heal("orders")
    await stage.run_until_idle()
    assert len(stage.executions("a")) == 1
    assert len(stage.delivered("orders")) == (0 if history(stage, "a") == [(10, "cancelled")] else 1)


async def test_cancel_together_with_an_acknowledgement_gives_one_end(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", once(START_MS + 10_000), to="elsewhere"))
    await stage.advance(20_000)
    stage.cancel("a")
    await stage.slots[0].send()
    await stage.run_until_idle()
    assert len(stage.executions("a")) == 1


async def test_a_cancelled_run_counts_as_completed(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", after_completion("PT10S"), to="elsewhere"))
    await stage.advance(15_000)
    stage.cancel("a")
    await stage.run_until_idle()
    assert history(stage, "a") == [(10, "cancelled")]
    stage.holds_sends = False
    await stage.advance(10_000)
    assert dues_s(stage, "elsewhere")[-1] == 25
