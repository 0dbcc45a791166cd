"""A run whose request had a trace context goes on in it: on the lane, in the lease, in the result, after a restart."""

from __future__ import annotations

import pytest
from tests.actors.workers import claims, end, handler, now, only, say

from noontide.core.tracing import attempt_context, dispatch_context, parts_of, result_context
from noontide.ports.record_log import Incoming
from noontide.records.worker_events import Outcome
from noontide.testing.builders import every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RUN = b"a:20260301T000000Z"


def contexts(records: list[Incoming]) -> list[str]:
    return [dict(record.headers).get("traceparent", b"").decode() for record in records]


@pytest.mark.parametrize("again", ["", "crash", "from the log"])
async def test_a_run_of_workers_goes_on_in_the_trace_of_its_request(stage: MemoryStage, again: str) -> None:
    stage.put(handler("a", once(START_MS + 1_000)), traceparent=GIVEN)
    await stage.run_until_idle()
    if again:
        await stage.crash(from_log_alone=again == "from the log")
    await stage.advance(1_000)
    run_id = only(stage).run_id.encode()
    assert contexts(stage.records("noontide.runs.default")) == [dispatch_context(run_id, GIVEN)]
    assert [invitation.traceparent for invitation in stage.invitations()] == [GIVEN]
    await say(stage, claims((run_id.decode(), 1)))
    await say(stage, end(run_id.decode(), 1))
    assert contexts(stage.records("noontide.results")) == [result_context(run_id, 1, GIVEN)]
    assert parts_of(result_context(run_id, 1, GIVEN))[0] == parts_of(GIVEN)[0]


async def test_every_attempt_has_a_dispatch_of_its_own(stage: MemoryStage) -> None:
    stage.put(now(retry={"max_attempts": 2, "backoff": ["PT1S"]}), traceparent=GIVEN)
    await stage.run_until_idle()
    await say(stage, claims((RUN.decode(), 1)))
    await say(stage, end(RUN.decode(), 1, Outcome.FAILED))
    await stage.crash(from_log_alone=True)
    await stage.advance(1_000)
    offered = contexts(stage.records("noontide.runs.default"))
    assert offered == [dispatch_context(RUN, GIVEN, attempt) for attempt in (1, 2)]
    assert [invitation.traceparent for invitation in stage.invitations()] == [GIVEN, GIVEN]
    assert len({parts_of(attempt_context(RUN, token, GIVEN)) for token in (1, 2)}) == 2


@pytest.mark.parametrize("to", ["orders", "elsewhere"])
async def test_a_record_for_a_topic_goes_on_in_the_trace_of_its_request(stage: MemoryStage, to: str) -> None:
    stage.put(job("a", once(START_MS), to=to), traceparent=GIVEN)
    stage.put(job("b", once(START_MS), to=to))
    await stage.run_until_idle()
    assert contexts(stage.delivered(to)) == [
        dispatch_context(RUN, GIVEN) if record.key == b"a" else dispatch_context(b"b" + RUN[1:])
        for record in stage.delivered(to)
    ]
    assert len(stage.delivered(to)) == 2


async def test_a_trigger_brings_its_own_and_other_runs_have_none(stage: MemoryStage) -> None:
    stage.put(handler("a", every("PT10S")), traceparent=GIVEN)
    await stage.run_until_idle()
    other = GIVEN.replace("4bf9", "aaaa")
    stage.request("a", b"{}", headers={"kind": "trigger", "traceparent": other})
    await stage.run_until_idle()
    assert [invitation.traceparent for invitation in stage.invitations()] == [other]
    await say(stage, claims((only(stage).run_id, 1)))
    await say(stage, end(only(stage).run_id, 1))
    await stage.advance(10_000)
    by_schedule = stage.invitations()[-1]
    assert by_schedule.traceparent == ""
    assert contexts(stage.records("noontide.runs.default"))[-1] == dispatch_context(by_schedule.run_id.encode())


async def test_a_context_that_cannot_be_read_is_none(stage: MemoryStage) -> None:
    stage.put(now(), traceparent="00-nothing")
    await stage.run_until_idle()
    assert [invitation.traceparent for invitation in stage.invitations()] == [""]
    assert stage.rejected() == []
