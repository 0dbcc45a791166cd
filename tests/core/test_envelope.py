"""Definitions that share everything but id, payload and schedule: read once, and read as if they were read alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.core import envelope
from noontide.core.definition import Definition, DefinitionContext, load_definition, parse_definition
from noontide.core.dst import DEFAULT_DST
from noontide.core.envelope import KEPT_MAX_BYTES, Envelopes, envelope_key
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.instants import parse_instant
from noontide.core.job import Job
from noontide.core.limits import DEFAULT_LIMITS, Limits
from noontide.core.occurrence import EXACT, RELAXED
from noontide.core.payload import decode_members
from noontide.core.schedule import OneOff, Schedule
from noontide.core.schedule_field import LocalTime, ScheduleQuestion, schedule_shape

CREATED_MS = 1_772_366_400_123
SHARED: dict[str, object] = {
    "note": "shared by these tests", "tenant": "billing", "timezone": "Europe/Berlin", "timeout_sec": 90,
    "misfire": "run_all", "grace": "PT1M", "labels": {"a": "b"}, "dst": {"gap": "skip"},
    "starts_at": "2026-01-01T00:00:00", "retry": {"max_attempts": 7}, "target": "kafka://orders",
}  # fmt: skip
SCHEDULES: list[dict[str, object]] = [
    {"run_at": "2027-01-15T09:00:00+02:00"},
    {"run_at": "2027-01-15T09:00:00"},
    {"run_at": "2027-03-28T02:30:00"},
    {"schedule": None, "run_at": "2027-01-15T09:00:00.250Z"},
    {"schedule": {"at": "2027-01-15T09:00:00Z"}},
    {"schedule": {"every": "PT15M", "anchor": "2027-01-15T09:00:00Z"}},
    {"schedule": {"anchor": "2027-01-15T09:00:00", "every": "PT15M"}},
    {"schedule": {"every": "PT15M"}},
    {"schedule": {"every_sec": 900, "anchor": None}},
    {"schedule": "H 2 * * *"},
    {"schedule": ["0 2 * * *", "30 3 * * *"]},
    {"schedule": {"cron": "*/5 * * * *"}},
    {"schedule": {"after_completion": "PT5M"}},
]


def context(key: str | None, limits: Limits = DEFAULT_LIMITS) -> DefinitionContext:
    return DefinitionContext(key=key, tenant=None, created_ms=CREATED_MS, limits=limits)


def parse(fields: Mapping[str, object], key: str | None = "job", limits: Limits = DEFAULT_LIMITS) -> Definition:
    return parse_definition(orjson.dumps(fields), context=context(key, limits))


def alone(fields: Mapping[str, object], monkeypatch: pytest.MonkeyPatch, key: str = "job") -> Definition:
    with monkeypatch.context() as patch:
        patch.setattr("noontide.core.definition._envelopes", Envelopes())
        return parse(fields, key)


def warm(fields: Mapping[str, object]) -> None:
    for key in ("first", "second"):
        parse({**fields, "schedule": "0 6 * * *"}, key)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("payload", [{}, {"payload": None}, {"payload": {"a": [1.50, "é"]}}], ids=str)
def test_a_shared_envelope_changes_nothing(
    schedule: Mapping[str, object], payload: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    warm(SHARED)
    fields = {**payload, **SHARED, **schedule}
    for key in ("job-a", "job-b"):
        found = parse(fields, key)
        assert found == alone(fields, monkeypatch, key)
        assert (found.job.id, load_definition(found.document)) == (key, found.job)
        assert parse_definition(found.document, context=context(key)) == found


def test_an_envelope_is_used_from_the_third_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    make = envelope.Envelope.job
    monkeypatch.setattr("noontide.core.definition._envelopes", Envelopes())

    def noted(self: envelope.Envelope, job_id: str, payload: bytes, schedule: Schedule | None) -> Job:
        used.append(job_id)
        return make(self, job_id, payload, schedule)

    monkeypatch.setattr(envelope.Envelope, "job", noted)
    for key in ("a", "b", "c", "d"):
        parse({"run_at": "2027-01-15T09:00:00Z", "target": "handler:work"}, key)
    assert used == ["c", "d"]


def test_timing_follows_the_schedule_unless_it_is_said() -> None:
    warm(SHARED)
    assert parse({**SHARED, "schedule": "0 6 * * *"}).job.timing == RELAXED
    assert parse({**SHARED, "run_at": "2027-01-15T09:00:00Z"}).job.timing == EXACT
    warm({**SHARED, "timing": "relaxed"})
    assert parse({**SHARED, "timing": "relaxed", "run_at": "2027-01-15T09:00:00Z"}).job.timing == RELAXED


@pytest.mark.parametrize(
    "fields, pointer",
    [
        ({"id": "other", "schedule": "0 6 * * *"}, "/id"),
        ({"id": 5, "schedule": "0 6 * * *"}, "/id"),
        ({"schedule": "61 * * * *"}, "/schedule"),
        ({"schedule": {"every": "PT0.5S", "anchor": "2027-01-15T09:00:00Z"}}, "/schedule/every"),
        ({"run_at": "2027-02-29T09:00:00Z"}, "/run_at"),
        ({"run_at": "2027-02-28T09:00:00Z", "schedule": "0 6 * * *"}, "/run_at"),
        ({}, "/schedule"),
        ({"payload": "x" * DEFAULT_LIMITS.payload_max_bytes, "run_at": "2027-02-28T09:00:00Z"}, "/payload"),
    ],
)
def test_problems_are_found_in_a_known_envelope_too(fields: Mapping[str, object], pointer: str) -> None:
    warm(SHARED)
    with pytest.raises(InvalidDefinition) as refused:
        parse({**SHARED, **fields})
    assert {problem.pointer for problem in refused.value.problems} == {pointer}


def test_without_a_key_the_id_comes_from_the_document_or_is_missed() -> None:
    warm(SHARED)
    assert parse({**SHARED, "schedule": "0 6 * * *", "id": "own"}, key=None).job.id == "own"
    with pytest.raises(InvalidDefinition, match="is missing"):
        parse({**SHARED, "schedule": "0 6 * * *"}, key=None)


def test_an_envelope_does_not_leak_between_limits_tenants_and_prefixes() -> None:
    warm(SHARED)
    fields = {**SHARED, "schedule": "0 6 * * *"}
    with pytest.raises(InvalidDefinition, match="must be a whole number from 1 to 2"):
        parse(fields, limits=Limits(attempts_max=2))
    ours = context("job")
    for other in (dataclasses.replace(ours, tenant="orders"), dataclasses.replace(ours, topic_prefix="orders")):
        with pytest.raises(InvalidDefinition):
            parse_definition(orjson.dumps(fields), context=other)


def test_a_job_may_not_follow_itself_however_often_it_is_sent() -> None:
    fields = {"after": ["a"], "target": "handler:work"}
    for key in ("b", "c", "d"):
        assert parse(fields, key).job.after == ("a",)
    with pytest.raises(InvalidDefinition, match="must not name the job itself"):
        parse(fields, "a")


def test_unknown_fields_are_warned_about_each_time() -> None:
    fields = {"schedule": "0 6 * * *", "target": "handler:work", "x-team": "y"}
    expected = (Problem("/x-team", "is not a known field"),)
    assert [parse(fields, key).warnings for key in "abcd"] == [expected] * 4


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "KEPT_MAX", 2)
    kept, job = Envelopes(), parse({**SHARED, "schedule": "0 6 * * *"}).job
    keys: list[tuple[object, ...]] = [("a",), ("a",), ("b",)]
    for key in keys:
        kept.keep(key, job, {"id": job.id, "schedule": "0 6 * * *"})
    assert kept.find(("a",)) is not None
    kept.keep(("c",), job, {"id": job.id, "schedule": "0 6 * * *"})
    assert [kept.find(("a",)), kept.find(("b",)), kept.find(("c",))] == [None] * 3


@pytest.mark.parametrize("length, keyed", [(KEPT_MAX_BYTES, True), (KEPT_MAX_BYTES + 1, False)])
def test_an_envelope_at_the_limit_and_one_byte_more(length: int, keyed: bool) -> None:
    raw = orjson.dumps({"id": "job", "note": "x" * (length - len('note""'))})
    given = decode_members(raw, limits=DEFAULT_LIMITS)
    key = envelope_key(given.texts, limits=DEFAULT_LIMITS, tenant=None, topic_prefix="")
    assert (key is not None) == keyed


two = st.integers(0, 61).map("{:02}".format)
near_instants = st.builds(
    "{:04}-{}-{}{}{}:{}:{}{}{}".format,
    st.integers(0, 9_999) | st.sampled_from([1, 9_999]),
    two, two, st.sampled_from(["T", "T", "T", " ", "t"]), two, two, two,
    st.sampled_from(["", ".1", ".123", ".999999", ".9999", ","]),
    st.sampled_from(["Z", "z", "", "+00:00", "-23:59", "+23:59", "+24:00", "+05:60", "-00:30", "+0530"]),
)  # fmt: skip
real_instants = st.builds("{}{}".format, st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds")),
                          st.sampled_from(["Z", "+00:00", "-23:59", "+23:59", "+05:30"]))  # fmt: skip


def instant_or_problems(text: str) -> int | tuple[Problem, ...]:
    try:
        return parse_instant(text, zone="UTC", pointer="/run_at")
    except InvalidDefinition as refused:
        return refused.problems


@given(text=near_instants | real_instants)
def test_instants_in_their_usual_spelling_are_read_as_any_other(text: str) -> None:
    question = ScheduleQuestion(None, b"", text, required=True, job_id="job", created_ms=0, previous=None)
    shape = schedule_shape(question, local=LocalTime("UTC", DEFAULT_DST), limits=DEFAULT_LIMITS)
    expected = instant_or_problems(text)
    if isinstance(expected, int):
        assert (shape.value, shape.document, shape.problems) == (OneOff(at_ms=expected), {"at": text}, ())
    else:
        assert (shape.value, shape.problems) == (None, expected)
