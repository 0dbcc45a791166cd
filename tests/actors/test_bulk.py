"""What is alike is decided together: what is written is the same as when each run is decided by itself."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.actors.workers import W1, W2, grants, handler, say

from noontide.actors.bulk import Successes
from noontide.actors.volley import Volley
from noontide.ports.record_log import Incoming
from noontide.records.worker_events import End, Frame, Outcome
from noontide.records.worker_inbox import decode_answer
from noontide.testing.builders import Document, cron, every, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

_SCHEDULES = (
    once(START_MS + 30_000),
    once(START_MS + 30_007),
    every("PT10S"),
    every("PT20S", anchor_ms=START_MS),
    cron("*/20 * * * * *", seconds=True),
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "timing": st.sampled_from(["exact", "relaxed"]),
        "max_runs": st.integers(1, 3),
        "overlap": st.sampled_from(["allow", "queue", "skip", "replace"]),
        "tenant": st.sampled_from(["a", "b"]),
        "priority": st.sampled_from([0, 9]),
        "lane": st.sampled_from(["default", "bulk"]),
        "target": st.sampled_from(
            [{"handler": "other"}, {"http": {"url": 'https://example.com/"etag":"-?%s'}}, {"handler": 'say "é" 100%'}]
        ),
        "payload": st.sampled_from([None, {"n": 1}, "x" * 500]),
        "guarantee": st.just("at_most_once"),
        "timeout": st.sampled_from(["PT20S", "PT5M"]),
        "queue_deadline": st.just("PT15S"),
        "concurrency_key": st.just("k"),
        "complete_by": st.just("PT1M"),
        "pause_after_failures": st.just(1),
        "after": st.just(["j0"]),
    },
)
_JOBS = st.lists(st.tuples(st.sampled_from(_SCHEDULES), _FIELDS), min_size=1, max_size=10)
_OUTCOMES = st.lists(
    st.tuples(
        st.sampled_from([*[Outcome.SUCCEEDED] * 6, *Outcome]),
        st.sampled_from([b"", b"", b'{"a": 1}', b"\xff", b'"%s"' % (b"x" * 70_000)]),
        st.sampled_from([None, None, None, 503]),
        st.sampled_from([0, 0, 0, 0, 1]),
        st.booleans(),
    ),
    min_size=1,
    max_size=7,
)  # fmt: skip
_Fate = tuple[Outcome, bytes, int | None, int, bool]
_TOPICS = (
    "executions", "state", "leases", "results", "dead-letters", "runs.default", "runs.bulk", "worker-inbox",
    "alerts", "audit", "jobs",
)  # fmt: skip


class _Workers:
    """Two who claim all they are offered, some of it twice, and end all they are granted as it is their fate."""

    def __init__(self, stage: MemoryStage, fates: list[_Fate]) -> None:
        self._stage, self._fates = stage, fates
        self._offered = 0
        self._ended: set[tuple[str, str, int, int, int]] = set()

    def speak(self) -> None:
        offered = [(each.run_id, each.attempt) for each in self._stage.invitations()]
        claims = sorted(offered[self._offered :])  # what falls due at one instant has no order
        held = {(worker, *grant): None for worker in (W1, W2) for grant in sorted(grants(self._stage, worker))}
        self._offered = len(offered)
        new = [grant for grant in held if grant not in self._ended]
        self._ended.update(new)
        again = claims[::3]
        self._stage.say(Frame(worker=W1, claims=[*claims, *again], ends=self._ends(W1, new)))
        self._stage.say(Frame(worker=W2, claims=claims[::2], ends=self._ends(W2, new), beats=[("x", 1)]))

    def _ends(self, worker: str, held: list[tuple[str, str, int, int, int]]) -> list[End]:
        ends = []
        for number, (holder, run_id, _, token, _) in enumerate(held):
            outcome, result, status, older, twice = self._fates[number % len(self._fates)]
            end = End(run_id=run_id, token=token - older, outcome=outcome, status=status)
            if result:
                end.result = msgspec.Raw(result)
            if holder == worker:
                ends += [end, end] if twice else [end]
        return ends


async def _written(documents: list[Document], fates: list[_Fate]) -> dict[str, list[tuple[object, ...]]]:
    async with MemoryStage() as stage:
        stage.configure("lane/bulk", {})
        stage.configure("tenant/b", {"max_running": 2})
        for document in documents:
            stage.put(document)
        workers = _Workers(stage, fates)
        for _ in range(12):
            await stage.advance(5_000)
            workers.speak()
        await stage.run_until_idle()
        assert stage.slots[0].doubts == 0
        found = {topic: stage.records(f"noontide.{topic}") for topic in _TOPICS}
        return {topic: sorted(map(_comparable, records), key=repr) for topic, records in found.items()}


def _comparable(record: Incoming) -> tuple[object, ...]:
    if record.topic == "noontide.worker-inbox":  # what is said at once has no order
        said = decode_answer(record.value or b"")
        return said.worker, *(sorted(each) for each in (said.grants, said.denied, said.cancels, said.lost))
    return record.partition, record.key, record.value, tuple(record.headers)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_JOBS, _OUTCOMES)
async def test_together_or_one_by_one(jobs: list[tuple[Document, Document]], fates: list[_Fate]) -> None:
    documents = [handler(f"j{number}", schedule, **fields) for number, (schedule, fields) in enumerate(jobs)]
    together = await _written(documents, fates)
    with ExitStack() as stack:
        stack.enter_context(patch.object(Volley, "claim", lambda _self, due, _keys, _scene: due))
        stack.enter_context(patch("noontide.actors.partition.offer_ready", lambda _number, runs, _scene: runs))
        stack.enter_context(patch("noontide.actors.lease_keeper.grant_alike", lambda heard, *_: heard.frame.claims))
        stack.enter_context(patch.object(Successes, "close", lambda _self, _ends, place, _heard: place))
        one_by_one = await _written(documents, fates)
    for topic in _TOPICS:
        assert together[topic] == one_by_one[topic], topic


async def test_plain_runs_are_decided_together(stage: MemoryStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(*_arguments: object, **_more: object) -> None:
        raise AssertionError("decided by itself")

    for name in ("firing.Firing.fire", "partition.hand_out", "lease_keeper.LeaseKeeper._claim"):
        monkeypatch.setattr(f"noontide.actors.{name}", alone)
    monkeypatch.setattr("noontide.actors.lease_keeper.LeaseKeeper._end", alone)
    for number in range(600):
        stage.put(handler(f"j{number}", once(START_MS + 10_000) if number % 2 else every("PT10S")))
    await stage.advance(10_000)
    claimed = ended = 0
    for _ in range(8):
        claims = [(each.run_id, each.attempt) for each in stage.invitations()][claimed:]
        held = grants(stage)[ended:]
        claimed, ended = claimed + len(claims), ended + len(held)
        ends = [End(run_id=run_id, token=token, outcome=Outcome.SUCCEEDED) for run_id, _, token, _ in held]
        await say(stage, Frame(worker=W1, claims=claims, ends=ends))
    assert len(stage.results()) == 600
    assert not stage.leases()
