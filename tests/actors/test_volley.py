"""Jobs that fire alike are claimed together; what is written is the same as when each is decided by itself."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noontide.actors.volley import Volley
from noontide.ports.record_log import Incoming
from noontide.testing.builders import Document, after_completion, cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

_SCHEDULES = (
    once(START_MS + 30_000),
    once(START_MS + 30_007),
    every("PT10S"),
    every("PT1M", anchor_ms=START_MS),
    cron("* * * * *"),
    cron("*/20 * * * * *", seconds=True),
    after_completion("PT15S"),
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "timing": st.sampled_from(["exact", "relaxed"]),
        "max_runs": st.integers(1, 3),
        "grace": st.sampled_from(["PT0S", "PT5S"]),
        "misfire": st.sampled_from(["run_once", "run_all", "skip"]),
        "overlap": st.sampled_from(["allow", "queue", "skip"]),
        "tenant": st.sampled_from(["a", "b"]),
        "ends_at": st.just("2026-03-01T00:01:30Z"),
        "payload": st.sampled_from([None, {"n": 1}, "x" * 500]),
        "after": st.just(["j0"]),
        "complete_by": st.just("PT1M"),
        "calendar": st.just({"exclude": ["holidays"]}),
    },
)
_JOBS = st.lists(st.tuples(st.sampled_from(_SCHEDULES), st.sampled_from(["orders", "elsewhere"]), _FIELDS), max_size=12)
_TOPICS = ("orders", "elsewhere", "noontide.executions", "noontide.state", "noontide.leases", "noontide.jobs")


async def _written(documents: list[Document], *, late_ms: int) -> dict[str, list[tuple[object, ...]]]:
    async with MemoryStage() as stage:
        stage.create_topic("elsewhere")
        stage.create_topic("orders", partitions=3, max_message_bytes=1_700)
        stage.register("orders")
        stage.configure("calendar/holidays", {"dates": ["2026-12-25"]})
        for document in documents:
            stage.put(document)
        await stage.advance(60_000)
        await stage.jump(late_ms)
        await stage.advance(60_000)
        assert stage.slots[0].doubts == 0
        return {topic: sorted(map(_comparable, stage.records(topic)), key=repr) for topic in _TOPICS}


def _comparable(record: Incoming) -> tuple[object, ...]:
    return record.partition, record.key, record.value, tuple(record.headers)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_JOBS, st.sampled_from([0, 4_000, 90_000]))
async def test_together_or_one_by_one(jobs: list[tuple[Document, str, Document]], late_ms: int) -> None:
    documents = [
        job(f"j{number}", schedule, to=topic, **fields) for number, (schedule, topic, fields) in enumerate(jobs)
    ]
    together = await _written(documents, late_ms=late_ms)
    with patch.object(Volley, "claim", lambda _self, due, _keys, _scene: due):
        one_by_one = await _written(documents, late_ms=late_ms)
    for topic in _TOPICS:
        assert together[topic] == one_by_one[topic]


async def test_plain_jobs_are_claimed_together(stage: MemoryStage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fire_one(*_arguments: object) -> None:
        raise AssertionError("decided by itself")

    monkeypatch.setattr("noontide.actors.firing.Firing.fire", fire_one)
    for number in range(20):
        stage.put(job(f"j{number}", once(START_MS + 10_000) if number % 2 else every("PT10S")))
    await stage.advance(20_000)
    assert len(stage.delivered("orders")) == 30


async def test_one_that_cannot_be_handled_does_not_hold_up_the_others(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr("noontide.actors.volley.own_of", broken)
    for number in range(5):
        stage.put(job(f"j{number}", every("PT10S")))
    await stage.advance(10_000)
    assert len(stage.delivered("orders")) == 5
    assert len(stage.executions()) == 5


async def test_a_job_changed_or_deleted_in_the_same_cycle(stage: MemoryStage) -> None:
    for job_id in ("kept", "changed", "deleted"):
        stage.put(job(job_id, every("PT10S"), payload={"n": 1}))
    await stage.run_until_idle()
    stage.clock.advance(10_000)
    stage.put(job("changed", every("PT10S"), payload={"n": 2}))
    stage.delete("deleted")
    await stage.run_until_idle()
    # What was due before the request came is still done, once.
    assert sorted((record.key, record.value) for record in stage.delivered("orders")) == [
        (b"changed", b'{"n":1}'), (b"deleted", b'{"n":1}'), (b"kept", b'{"n":1}'),
    ]  # fmt: skip
