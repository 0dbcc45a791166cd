"""Topics that nobody registered: sent after the commit, retried with backoff, buried when it is over."""

from __future__ import annotations

import orjson
import pytest
from tests.actors.lines import HOUR_MS, dues_s, history

from noontide.core.run import RunState
from noontide.testing.builders import every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS


def _headers(stage: MemoryStage, topic: str = "elsewhere") -> list[dict[str, bytes]]:
    return [dict(record.headers) for record in stage.delivered(topic)]


async def test_a_run_is_live_until_its_record_is_acknowledged(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", once(START_MS + 5_000), to="elsewhere", payload={"n": 1}))
    await stage.advance(5_000)
    run = stage.leases()["a:20260301T000005Z"]
    assert (run.state, run.attempt, run.token) == (RunState.QUEUED, 1, 1)
    assert history(stage, "a") == []
    await stage.send()
    assert history(stage, "a") == [(5, "succeeded")]
    assert stage.leases() == {}
    (headers,) = _headers(stage)
    assert headers["noontide-run"] == b"a:20260301T000005Z"
    assert headers["noontide-attempt"] == b"1"


async def test_fixed_delays_are_waited_to_the_millisecond(stage: MemoryStage) -> None:
    stage.sicken("elsewhere", noticed=False)
    retry = {"backoff": ["PT10S", "PT30S"]}
    stage.put(job("a", once(START_MS), to="elsewhere", retry=retry))
    await stage.run_until_idle()
    for wait_ms, attempt in ((10_000, 1), (30_000, 2)):
        (run,) = stage.leases().values()
        assert (run.state, run.attempt, run.reason) == (RunState.RETRY_WAIT, attempt, "the topic is sick")
        assert run.not_before_ms == stage.clock.now_ms() + wait_ms
        await stage.advance(wait_ms - 1)
        assert next(iter(stage.leases().values())).attempt == attempt
        if attempt == 2:
            stage.log.faults.accept("elsewhere")
        await stage.advance(1)
    assert history(stage, "a") == [(0, "succeeded")]
    (line,) = stage.executions("a")
    assert (line["attempt"], line["token"]) == (3, 3)
    assert [headers["noontide-attempt"] for headers in _headers(stage)] == [b"3"]


async def test_after_the_last_attempt_it_is_dead_and_its_payload_is_kept(stage: MemoryStage) -> None:
    stage.sicken("elsewhere", noticed=False)
    retry = {"max_attempts": 3, "backoff": ["PT1S"]}
    stage.put(job("a", once(START_MS), to="elsewhere", retry=retry, payload={"n": 7}))
    await stage.advance(HOUR_MS)
    (line,) = stage.executions("a")
    assert (line["state"], line["attempt"], line["reason"]) == ("dead", 3, "max_attempts: the topic is sick")
    (letter,) = stage.dead_letters()
    assert letter["run_id"] == "a:20260301T000000Z"
    assert (letter["reason"], letter["error"], letter["attempt"]) == ("max_attempts", "the topic is sick", 3)
    assert letter["job"]["payload"] == {"n": 7}  # type: ignore[index]
    assert stage.leases() == {}


async def test_an_error_that_waiting_does_not_heal_buries_it_at_once(stage: MemoryStage) -> None:
    stage.create_topic("narrow", max_message_bytes=100)
    stage.put(job("a", once(START_MS), to="narrow", payload="x" * 200))
    await stage.run_until_idle()
    (line,) = stage.executions("a")
    assert (line["state"], line["attempt"]) == ("dead", 1)
    assert str(line["reason"]).startswith("permanent: ")
    assert stage.dead_letters()[0]["reason"] == "permanent"


async def test_at_most_once_is_never_tried_again(stage: MemoryStage) -> None:
    stage.sicken("elsewhere", noticed=False)
    stage.put(job("a", once(START_MS), to="elsewhere", guarantee="at_most_once"))
    await stage.advance(HOUR_MS)
    (line,) = stage.executions("a")
    assert (line["state"], line["attempt"]) == ("dead", 1)
    assert str(line["reason"]).startswith("outcome unknown")


async def test_at_most_once_is_not_sent_again_after_a_crash(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", once(START_MS), to="elsewhere", guarantee="at_most_once"))
    await stage.run_until_idle()
    await stage.crash()
    assert stage.slots[0].under_way == []
    assert history(stage, "a") == [(0, "dead")]


@pytest.mark.parametrize("from_log_alone", [True, False])
async def test_what_was_not_acknowledged_is_sent_again_after_a_crash(stage: MemoryStage, from_log_alone: bool) -> None:
    stage.holds_sends = True
    stage.put(job("a", once(START_MS), to="elsewhere"))
    await stage.run_until_idle()
    await stage.crash(from_log_alone=from_log_alone)
    await stage.send()
    assert stage.run_ids("elsewhere") == ["a:20260301T000000Z"]
    assert history(stage, "a") == [(0, "succeeded")]


async def test_a_crash_between_the_arrival_and_the_note_of_it_gives_the_record_twice_and_one_end(
    stage: MemoryStage,
) -> None:
    stage.holds_sends = True
    stage.put(job("a", once(START_MS), to="elsewhere"))
    await stage.run_until_idle()
    await stage.slots[0].send()  # arrived, but the slot does not get to note it
    await stage.crash()
    await stage.send()
    assert stage.run_ids("elsewhere") == ["a:20260301T000000Z"] * 2
    assert history(stage, "a") == [(0, "succeeded")]


async def test_a_wait_survives_a_crash(stage: MemoryStage) -> None:
    stage.sicken("elsewhere", noticed=False)
    stage.put(job("a", once(START_MS), to="elsewhere", retry={"backoff": ["PT10S"]}))
    await stage.advance(4_000)
    await stage.crash(from_log_alone=True)
    stage.log.faults.accept("elsewhere")
    await stage.advance(5_999)
    assert stage.delivered("elsewhere") == []
    await stage.advance(1)
    assert dues_s(stage, "elsewhere") == [0]


async def test_a_topic_that_does_not_exist_yet_is_waited_for(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS), to="tomorrow", retry={"backoff": ["PT10S"]}))
    await stage.advance(5_000)
    stage.create_topic("tomorrow")
    await stage.advance(5_000)
    assert dues_s(stage, "tomorrow") == [0]


async def test_a_sick_topic_holds_up_nobody_else(stage: MemoryStage) -> None:
    stage.sicken("elsewhere", noticed=False)
    stage.put(job("a", every("PT10S"), to="elsewhere"))
    stage.put(job("b", every("PT10S")))
    await stage.advance(30_000)
    assert dues_s(stage) == [10, 20, 30]


async def test_a_run_whose_topic_is_registered_meanwhile_goes_there_once(stage: MemoryStage) -> None:
    stage.sicken("elsewhere", noticed=False)
    stage.put(job("a", once(START_MS), to="elsewhere", retry={"backoff": ["PT10S"]}))
    await stage.advance(5_000)
    stage.register("elsewhere")
    await stage.advance(10_000)
    (run,) = stage.leases().values()
    assert str(run.reason).startswith("topic elsewhere: ")
    stage.heal("elsewhere")
    await stage.advance(HOUR_MS)
    assert stage.run_ids("elsewhere") == ["a:20260301T000000Z"]
    assert history(stage, "a") == [(0, "succeeded")]


async def test_a_run_whose_topic_is_withdrawn_meanwhile_is_sent_after_the_commit(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", once(START_MS)))
    await stage.run_until_idle()
    stage.configure("target/orders", None)
    stage.heal("orders")
    await stage.run_until_idle()
    assert stage.run_ids("orders") == ["a:20260301T000000Z"]
    assert stage.leases() == {}


@pytest.mark.parametrize(
    "target, text",
    [
        ({"http": {"url": "https://example.com/hook"}}, "https://example.com/hook"),
        ({"handler": "report"}, "handler:report"),
    ],
)
async def test_runs_for_workers_wait_and_say_so(stage: MemoryStage, target: dict[str, object], text: str) -> None:
    stage.put({"id": "a", "schedule": {"every": "PT10S"}, "timing": "exact", "target": target})
    await stage.advance(25_000)
    (run,) = stage.leases().values()
    assert (run.state, run.target, run.lane) == (RunState.QUEUED, text, "express")
    assert history(stage, "a") == [(20, "skipped")]
    await stage.crash(from_log_alone=True)
    assert len(stage.leases()) == 1
    stage.cancel("a")
    await stage.run_until_idle()
    assert stage.leases() == {}


async def test_the_dead_letter_of_a_run_by_hand_has_its_own_payload(stage: MemoryStage) -> None:
    stage.sicken("elsewhere", noticed=False)
    stage.put(job("a", every("PT1H"), to="elsewhere", payload=1, retry={"max_attempts": 1}))
    stage.trigger("a", payload=2)
    await stage.run_until_idle()
    assert orjson.loads(orjson.dumps(stage.dead_letters()[0]["job"]))["payload"] == 2
