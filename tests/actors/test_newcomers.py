"""New jobs of kinds that were met before are accepted the short way; what is written is what `admission` writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from unittest.mock import patch

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from noontide.actors.admission import Admission
from noontide.actors.kinds import Kind, Turn
from noontide.actors.newcomers import Newcomers
from noontide.actors.settings import SchedulerSettings
from noontide.core.envelope import Envelopes
from noontide.core.limits import DEFAULT_LIMITS, Limits
from noontide.core.payload import decode_members, plain_texts
from noontide.ports.record_log import Incoming
from noontide.testing.builders import Document, after_completion, cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

TOPICS = (
    "noontide.jobs", "noontide.state", "noontide.rejected", "noontide.audit", "noontide.signals", "orders",
    "noontide.executions", "noontide.leases",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_met() -> Iterator[None]:
    with patch("noontide.core.definition._envelopes", Envelopes()):
        yield


class Asked(NamedTuple):
    """One request of the mix."""

    key: str
    value: bytes | None
    domain: str = "public"
    headers: tuple[tuple[str, str], ...] = ()
    misplaced: bool = False


_IDS = st.sampled_from([f"job-{number}" for number in range(40)] + [".", "a b", "", "x" * 200])
_PLAIN_SCHEDULES = st.sampled_from([
    once(START_MS + 3_600_000), once(START_MS - 5), every("PT1M", anchor_ms=START_MS), cron("* * * * *"),
    cron("*/20 * * * * *", seconds=True), "30 2 * * *", ["0 1 * * *", "0 2 * * *"], None,
])  # fmt: skip
_SCHEDULES = st.sampled_from([
    once(START_MS + 3_600_000), once(START_MS - 5), every("PT10S"), every("PT1M", anchor_ms=START_MS),
    cron("* * * * *"), cron("*/20 * * * * *", seconds=True), cron("H * * * *"), after_completion("PT15S"),
    "30 2 * * *", ["0 1 * * *", "0 2 * * *"], {"at": "2027-01-15T09:00:00"}, {"at": "2027-01-15T09:00:00.5Z"},
    {"at": "2027-02-30T09:00:00Z"}, {"at": START_MS}, {"every": "PT10S", "anchor": "2026-01-01T00:00:00Z", "at": None},
    {"cron": "0 0 30 2 *"}, None, "never",
])  # fmt: skip
_TARGETS = st.sampled_from([
    {"topic": {"name": "orders"}}, {"topic": {"name": "orders", "key": "all"}}, {"topic": {"name": "closed"}},
    {"handler": "send"}, {"http": {"url": "https://api.example/x?key=1"}}, "kafka://orders", {"topic": {}},
])  # fmt: skip
_TRAITS = st.sampled_from([
    ("timing", "exact"), ("timing", "relaxed"), ("timing", {"window": "PT5M"}), ("tenant", "a"), ("tenant", "b"),
    ("timezone", "Europe/Berlin"), ("max_runs", 2), ("paused", True), ("paused", False), ("lane", "express"),
    ("lane", "unknown"), ("ends_at", "2026-03-01T00:01:30Z"), ("starts_at", "2026-06-01T00:00:00Z"),
    ("calendar", {"exclude": ["holidays"]}), ("guarantee", "at_most_once"), ("complete_by", "PT1M"),
    ("after", ["job-0"]), ("idempotency_key", "once"), ("labels", {"a": "b", "payload": "null"}), ("colour", "red"),
    ("concurrency_key", "c"), ("retry", {"max_attempts": 2}), ("misfire", "run_all"), ("priority", 9),
])  # fmt: skip
_KINDS = st.builds(lambda target, traits: {"target": target, **dict(traits)}, _TARGETS, st.lists(_TRAITS, max_size=3))
_OWN = st.fixed_dictionaries(
    {"schedule": _PLAIN_SCHEDULES | _PLAIN_SCHEDULES | _SCHEDULES},
    optional={
        "run_at": st.sampled_from([None, None, "2027-01-15T09:00:00+02:00", "2027-01-15T09:00:00"]),
        "payload": st.sampled_from([None, {"n": 1.5e3}, 10, "x" * 90, "é", {"deep": [[[[1]]]]}, {"a": 0.25}]),
        "id": st.sampled_from([None, None, None, "job-1"]),
    },
)
_HEADERS = st.sampled_from([
    (), (), (("ce_id", "1"),), (("verdict", "1"),), (("actor", "me"), ("verdict", "1")), (("tenant", "a"),),
    (("idempotency-key", "k"),), (("if-match", "*"),), (("if-none-match", "*"),), (("content-type", "text/xml"),),
    (("content-type", "application/json"), ("kind", "define")), (("kind", "trigger"),), (("verdict", "yes"),),
    (("traceparent", "00-1"),),
])  # fmt: skip


@st.composite
def _mix(draw: st.DrawFn) -> list[Asked]:
    """Requests of few kinds, about few ids; each kind was met before."""
    kinds, often = draw(st.lists(_KINDS, min_size=1, max_size=2)), draw(_HEADERS)
    met = [orjson.dumps({**kind, "schedule": once(START_MS + 3_600_000)}) for kind in (*kinds, *kinds)]
    asked = [Asked(f"met-{number}", value, headers=often) for number, value in enumerate(met)]
    for _ in range(draw(st.integers(1, 40))):
        fields, key = {**draw(_OWN), **draw(st.sampled_from(kinds))}, draw(_IDS)
        for name in ("run_at", "id"):
            if draw(st.integers(0, 3)):
                fields.pop(name, None)
        if fields["schedule"] is None:
            fields = {"run_at": "2027-01-15T09:00:00+02:00", **fields}
            del fields["schedule"]
        if fields.get("id", "") is None and draw(st.booleans()):
            fields["id"] = key
        value = draw(st.sampled_from([orjson.dumps(fields)] * 15 + [None, b"{", b'{"payload":1e999}']))
        domain = draw(st.sampled_from(["public"] * 7 + ["strict"]))
        headers = draw(st.just(often) | st.just(often) | _HEADERS)
        asked.append(Asked(key, value, domain, headers, misplaced=draw(st.integers(0, 15)) == 15))
    return asked


async def _written(asked: list[Asked], *, together: int) -> dict[str, object]:
    """Everything that came of it. together: so many requests are read at a time."""
    async with MemoryStage(domains=["strict"]) as stage:
        stage.register("orders")
        stage.register("closed", tenants=["c"])
        stage.configure("calendar/holidays", {"dates": ["2026-12-25"]})
        stage.configure("domain/strict", {"tenants": ["default", "b"]})
        await stage.run_until_idle()
        for place, each in enumerate(asked, 1):
            home = stage.layout.partition_of(each.key)
            partition = (home + each.misplaced) % stage.layout.partitions
            stage.request(each.key, each.value, domain=each.domain, partition=partition, headers=dict(each.headers))
            if place % together == 0:
                await stage.run_until_idle()
        await stage.advance(61_000)
        slot = stage.slots[0]
        assert slot.doubts == 0
        return {
            **{topic: [*map(_comparable, stage.records(topic))] for topic in TOPICS},
            "rows": slot.index.scan(b"", b"\xff", 1 << 30),
            "counts": {name: count for name, count in slot.slot.counts.items() if count},
        }


def _comparable(record: Incoming) -> tuple[object, ...]:
    return record.partition, record.key, record.value, tuple(record.headers)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_mix(), st.sampled_from([1, 7, 100]))
async def test_the_short_way_or_the_long_one(asked: list[Asked], together: int) -> None:
    short = await _written(asked, together=together)
    with patch.object(Newcomers, "accept", lambda _self, _items, start, *_: start):
        long = await _written(asked, together=together)
    for what, found in long.items():
        assert short[what] == found, what


@pytest.mark.parametrize("schedule", [once(START_MS + 10_000), cron("*/5 * * * * *", seconds=True)], ids=str)
async def test_jobs_of_a_known_kind_are_not_decided_one_by_one(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch, schedule: Document
) -> None:
    for job_id in ("first", "second"):
        stage.put(job(job_id, schedule))
    await stage.run_until_idle()

    def admit(*_arguments: object) -> None:
        raise AssertionError("decided by itself")

    monkeypatch.setattr(Admission, "admit", admit)
    for number in range(20):
        stage.put(job(f"j{number}", schedule, payload={"n": number}), actor="me", verdict="1")
    await stage.run_until_idle()
    assert len(stage.jobs()) == 22
    assert len(stage.verdicts()) == 20
    assert len(stage.records("noontide.audit")) == 20
    assert stage.slots[0].doubts == 0


async def test_one_that_cannot_be_handled_does_not_hold_up_the_others(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Kind.document

    def broken(self: Kind, job_id: bytes, payload: Raw | None, turn: Turn) -> tuple[bytes, int, int]:
        if job_id == b"j3":
            raise ValueError("no")
        return document(self, job_id, payload, turn)

    monkeypatch.setattr(Kind, "document", broken)
    for number in range(6):
        stage.put(job(f"j{number}", every("PT10S", anchor_ms=START_MS)))
    await stage.run_until_idle()
    assert sorted(stage.jobs()) == [f"j{number}" for number in range(6)]
    assert not stage.rejected()


async def test_a_configuration_that_changes_is_heard(stage: MemoryStage) -> None:
    for job_id in ("first", "second", "third"):
        stage.put(job(job_id, once(START_MS + 10_000)))
    await stage.run_until_idle()
    stage.configure("target/orders", {"topic": "orders", "tenants": ["others"]})
    stage.put(job("fourth", once(START_MS + 10_000)))
    await stage.run_until_idle()
    assert sorted(stage.jobs()) == ["first", "second", "third"]
    assert stage.rejected()[0]["problems"][0]["pointer"] == "/target/topic/name"  # type: ignore[index]


# --- texts that are not decoded


_PIECES = st.sampled_from([
    b"{", b"}", b"[", b"]", b":", b",", b'"', b'"a":', b'"payload":', b'"id"', b"1", b"0", b"-1", b"1e5", b"1E999",
    b":-2.5e999", b"[1e400",
    b".5", b"9" * 70, b"9" * 400, b"true", b"nul", b"null", b"NaN", b"\\", b"\\u12", b"\\ud800", b"\xc3\xa9", b"\xff",
    b"\xed\xa0\x80", b"\0", b"\n", b" ", b"\x01", b"\xef\xbb\xbf",
    b"/*", b"x", b'"x"', b"1.5", b"01", b"[1]", b'{"b":2}',
])  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(st.text(max_size=3), _JSON, max_size=4).map(orjson.dumps), st.data())
def test_what_is_not_decoded_could_be(raw: bytes, data: st.DataObject) -> None:
    """Whatever `plain_texts` lets pass is strict JSON with the same texts."""
    for _ in range(data.draw(st.integers(0, 3))):
        at, cut = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 2))
        raw = raw[:at] + data.draw(_PIECES) + raw[at + cut :]
    texts = plain_texts(raw, depth_max=DEFAULT_LIMITS.depth_max)
    if texts is not None:
        found = decode_members(raw, limits=DEFAULT_LIMITS)
        assert [(name, bytes(text)) for name, text in texts.items()] == [
            (name, bytes(text)) for name, text in found.texts.items()
        ]


@pytest.mark.parametrize("raw", [
    b'{"a":"\xff"}', b'{"a":1e999}', b'{"a":[-1.5E+400]}', b'{"a":%b}' % (b"9" * 400), b'{"a":"\xed\xa0\x80"}',
    b"[1]", b"1", b"", b'{"a":' * 65 + b"1" + b"}" * 65, b'{"a":1} x',
])  # fmt: skip
def test_what_is_refused_undecoded(raw: bytes) -> None:
    assert plain_texts(raw, depth_max=DEFAULT_LIMITS.depth_max) is None


@pytest.mark.parametrize(
    "payload", [b"1e5", b"[1E-400]", b"9" * 200, b'"550e8400-e29b-41d4"', b'"at 3e8 m/s"', b'"\xc3\xa9"']
)
def test_what_looks_like_a_number_beyond_a_double_and_is_none(payload: bytes) -> None:
    texts = plain_texts(b'{"payload":%b}' % payload, depth_max=2)
    assert texts is not None
    assert bytes(texts["payload"]) == payload


async def test_a_definition_at_the_limit_and_one_byte_more() -> None:
    settings = SchedulerSettings(definition=Limits(payload_max_bytes=1_000, envelope_max_bytes=200))
    async with MemoryStage(settings=settings) as stage:
        stage.register("orders")
        for number in range(5):
            stage.put(job(f"j{number}", once(START_MS + 10_000), payload="x" * (998 + number // 4)))
        await stage.run_until_idle()
        assert sorted(stage.jobs()) == ["j0", "j1", "j2", "j3"]
        assert stage.rejected()[0]["problems"][0]["pointer"] == "/payload"  # type: ignore[index]
