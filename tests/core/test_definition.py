"""Definitions: what is accepted, what it becomes, and what is said about what is not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import orjson
import pytest

from noontide.core.definition import (
    Definition,
    DefinitionContext,
    TooLarge,
    load_definition,
    parse_definition,
)
from noontide.core.dst import DstRule
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.ids import id_from_idempotency_key
from noontide.core.instants import format_instant, parse_instant
from noontide.core.job import Job
from noontide.core.limits import Limits
from noontide.core.occurrence import EXACT, RELAXED, Timing
from noontide.core.policies import (
    CalendarRule,
    ExponentialBackoff,
    FixedDelays,
    Guarantee,
    Jitter,
    MisfirePolicy,
    MisfireRule,
    Notify,
    NotifyOn,
    Overlap,
    RetryPolicy,
    UpstreamFailure,
)
from noontide.core.schedule import AfterCompletion, CronSchedule, IntervalSchedule, OneOff, UnionSchedule
from noontide.core.targets import HandlerTarget, HttpTarget

CREATED_MS = parse_instant("2026-03-01T12:00:00.123Z", zone=None, pointer="")
CONTEXT = DefinitionContext(key="nightly", tenant=None, created_ms=CREATED_MS)
CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parents[1] / "cases/behaviour.jsonl").read_text().splitlines())
}
LEAST: dict[str, object] = {"schedule": "0 6 * * *", "target": "handler:work"}
EVERYTHING: dict[str, object] = {
    "id": "nightly",
    "tenant": "billing",
    "schedule": {"cron": "30 2 * * *"},
    "timezone": "Europe/Berlin",
    "dst": {"gap": "skip", "repeat": "both"},
    "timing": {"window": "PT5M"},
    "starts_at": "2026-04-01T00:00:00",
    "ends_at": "2027-04-01T00:00:00Z",
    "max_runs": 10,
    "calendar": {"exclude": ["de-holidays"], "include": ["workdays"]},
    "target": {
        "http": {
            "url": "https://example.org/run",
            "method": "PUT",
            "headers": {"X-Team": "x"},
            "auth": {"bearer": {"secret": "token"}},
        }
    },
    "payload": {"any": "JSON"},
    "lane": "heavy",
    "priority": 9,
    "retry": {"max_attempts": 7, "backoff": "exponential", "base": "PT1S", "cap": "PT1M", "jitter": "none"},
    "timeout": "PT1M",
    "lease": "PT60S",
    "queue_deadline": "PT2M",
    "complete_by": "PT3M",
    "guarantee": "at_least_once",
    "misfire": "run_all",
    "grace": "PT10S",
    "run_all_max": 5,
    "overlap": "queue",
    "concurrency_key": "reports",
    "after": ["job-a", "job-b"],
    "on_upstream_failure": "run",
    "pause_after_failures": 3,
    "paused": True,
    "note": "until\nMonday",
    "labels": {"team": "x"},
    "managed_by": "terraform",
    "notify": {"on": ["dead", "overdue"], "to": ["billing-oncall"]},
    "idempotency_key": "order-1",
}


def parse(fields: dict[str, object] | bytes, context: DefinitionContext = CONTEXT) -> Definition:
    return parse_definition(fields if isinstance(fields, bytes) else orjson.dumps(fields), context=context)


def problems(fields: dict[str, object] | bytes, context: DefinitionContext = CONTEXT) -> tuple[Problem, ...]:
    with pytest.raises(InvalidDefinition) as refused:
        parse(fields, context)
    return refused.value.problems


def pointers(fields: dict[str, object] | bytes, context: DefinitionContext = CONTEXT) -> list[str]:
    return [problem.pointer for problem in problems(fields, context)]


# --- what a definition becomes


def test_defaults() -> None:
    job = parse(LEAST).job
    assert (job.id, job.tenant, job.timezone, job.dst) == ("nightly", "default", "UTC", DstRule())
    assert (job.timing, job.lane, job.priority, job.payload) == (RELAXED, "default", 5, b"null")
    assert job.retry == RetryPolicy(
        max_attempts=5, backoff=ExponentialBackoff(base_ms=5_000, cap_ms=3_600_000, jitter=Jitter.FULL)
    )
    assert (job.timeout_ms, job.queue_deadline_ms, job.complete_by_ms) == (300_000, 600_000, None)
    assert job.misfire == MisfirePolicy(rule=MisfireRule.RUN_ONCE, grace_ms=60_000, run_all_max=1_000)
    assert (job.overlap, job.guarantee, job.paused) == (Overlap.SKIP, Guarantee.AT_LEAST_ONCE, False)
    assert (job.starts_at_ms, job.ends_at_ms, job.max_runs, job.after, job.labels) == (None, None, None, (), {})


def test_every_field() -> None:
    definition = parse(EVERYTHING)
    job = definition.job
    assert definition.warnings == ()
    assert isinstance(job.schedule, CronSchedule)
    assert job.schedule.zone.name == "Europe/Berlin"
    assert job.dst == job.schedule.dst == DstRule(gap="skip", repeat="both")
    assert job.timing == Timing(mode="window", window_ms=300_000)
    assert format_instant(job.starts_at_ms or 0) == "2026-03-31T22:00:00.000Z"
    assert format_instant(job.ends_at_ms or 0) == "2027-04-01T00:00:00.000Z"
    assert job.calendar == CalendarRule(exclude=("de-holidays",), include=("workdays",))
    assert isinstance(job.target, HttpTarget)
    assert job.retry == RetryPolicy(
        max_attempts=7, backoff=ExponentialBackoff(base_ms=1_000, cap_ms=60_000, jitter=Jitter.NONE)
    )
    assert job.misfire == MisfirePolicy(rule=MisfireRule.RUN_ALL, grace_ms=10_000, run_all_max=5)
    assert job.notify == Notify(on=(NotifyOn.DEAD, NotifyOn.OVERDUE), to=("billing-oncall",))
    assert (job.after, job.on_upstream_failure) == (("job-a", "job-b"), UpstreamFailure.RUN)
    assert (job.max_runs, job.priority, job.lane, job.note) == (10, 9, "heavy", "until\nMonday")
    assert (job.timeout_ms, job.queue_deadline_ms, job.complete_by_ms) == (60_000, 120_000, 180_000)
    assert (job.tenant, job.concurrency_key, job.managed_by) == ("billing", "reports", "terraform")
    assert (job.paused, job.labels, job.idempotency_key) == (True, {"team": "x"}, "order-1")


def test_the_document_of_everything_says_the_same_and_loads() -> None:
    definition = parse(EVERYTHING)
    assert orjson.loads(definition.document) == EVERYTHING
    assert parse(definition.document) == definition
    assert load_definition(definition.document) == definition.job


def test_every_field_of_a_job_can_be_set() -> None:
    usual, set_ = parse(LEAST).job, parse(EVERYTHING).job
    same = [field.name for field in dataclasses.fields(Job) if getattr(usual, field.name) == getattr(set_, field.name)]
    assert same == ["id", "guarantee"]


def test_null_is_the_same_as_absent() -> None:
    nothing = {field: None for field in EVERYTHING if field not in ("schedule", "target", "payload")}
    assert parse({**nothing, **LEAST}) == parse(LEAST)


@pytest.mark.parametrize(
    "short, long",
    [
        ({"schedule": "0 6 * * *"}, {"schedule": {"cron": "0 6 * * *"}}),
        ({"schedule": ["0 6 * * *", "0 8 * * *"]}, {"schedule": {"cron": ["0 6 * * *", "0 8 * * *"]}}),
        ({"schedule": None, "run_at": "2026-12-24T18:00:00"}, {"schedule": {"at": "2026-12-24T18:00:00"}}),
        (
            {"schedule": {"every_sec": 90}},
            {"schedule": {"every": "PT1M30S", "anchor": "2026-03-01T12:00:00.123Z"}},
        ),
        ({"target": "https://example.org/a"}, {"target": {"http": {"url": "https://example.org/a"}}}),
        ({"target": {"http": "http://example.org"}}, {"target": {"http": {"url": "http://example.org"}}}),
        ({"target": "kafka://orders"}, {"target": {"topic": {"name": "orders"}}}),
        ({"target": {"topic": "orders"}}, {"target": {"topic": {"name": "orders"}}}),
        ({"target": "handler:send_report"}, {"target": {"handler": "send_report"}}),
        ({"timeout_sec": 300}, {"timeout": "PT5M"}),
        ({"timeout_sec": 0.25}, {"timeout": "PT0.25S"}),
        ({"grace_sec": 5}, {"grace": "PT5S"}),
        ({"retry": {"base_sec": 2}}, {"retry": {"base": "PT2S"}}),
        ({"notify": {"to": ["x"], "late_after_sec": 90}}, {"notify": {"to": ["x"], "late_after": "PT1M30S"}}),
        ({"timing": {"window_sec": 60}}, {"timing": {"window": "PT1M"}}),
    ],
)
def test_short_forms_become_long_ones(short: dict[str, object], long: dict[str, object]) -> None:
    definition = parse({**LEAST, **short})
    document = orjson.loads(definition.document)
    assert {field: document[field] for field in long} == long
    assert not {"run_at", "timeout_sec", "grace_sec"} & document.keys()
    assert parse({**LEAST, "schedule": {"cron": "0 6 * * *"}, **long}).job == definition.job
    assert parse(definition.document) == definition


def test_one_offs_are_exact_and_recurring_jobs_relaxed_unless_they_say_otherwise() -> None:
    once: dict[str, object] = {"run_at": "2026-12-24T18:00:00Z", "target": "handler:work"}
    assert parse(once).job.timing == EXACT
    assert parse({**once, "timing": "relaxed"}).job.timing == RELAXED
    assert parse({**LEAST, "timing": "exact"}).job.timing == EXACT


def test_kinds_of_schedules() -> None:
    at_ms = parse_instant("2030-01-01T14:00:00Z", zone=None, pointer="")
    local: dict[str, object] = {
        "run_at": "2030-01-01T09:00:00",
        "timezone": "America/New_York",
        "target": "handler:work",
    }
    assert parse(local).job.schedule == OneOff(at_ms=at_ms)
    after = parse({**LEAST, "schedule": {"after_completion": "PT5M"}}).job.schedule
    assert after == AfterCompletion(delay_ms=300_000)
    assert isinstance(parse({**LEAST, "schedule": ["0 1 * * *", "5 2 * * *"]}).job.schedule, UnionSchedule)


def test_clk_13_local_time_is_utc_without_a_timezone() -> None:
    once: dict[str, object] = {"run_at": CASES["clk-13"]["input"]["run_at"], "target": "handler:work"}
    assert parse(once).job.schedule == OneOff(at_ms=parse_instant("2030-01-01T09:00:00Z", zone=None, pointer=""))


def test_clk_15_digits_beyond_the_millisecond_are_cut() -> None:
    once: dict[str, object] = {"run_at": CASES["clk-15"]["input"]["run_at"], "target": "handler:work"}
    schedule = parse(once).job.schedule
    assert isinstance(schedule, OneOff)
    assert format_instant(schedule.at_ms) == "2030-06-24T14:54:41.634Z"


def test_clk_16_a_leap_second_is_the_next_midnight() -> None:
    once: dict[str, object] = {"run_at": CASES["clk-16"]["input"]["run_at"], "target": "handler:work"}
    assert parse(once).job.schedule == OneOff(at_ms=parse_instant("2017-01-01T00:00:00Z", zone=None, pointer=""))


def test_clk_17_epoch_numbers_are_refused() -> None:
    for run_at in CASES["clk-17"]["input"]["run_at"]:
        assert pointers({"run_at": run_at, "target": "handler:work"}) == ["/run_at"]


def test_a_job_that_only_follows_others_needs_no_schedule() -> None:
    definition = parse({"after": ["a"], "target": "handler:work"})
    assert definition.job.schedule is None
    assert b"schedule" not in definition.document
    assert parse(definition.document) == definition
    assert pointers({"after": [], "target": "handler:work"}) == ["/schedule"]


def test_hashed_expressions_depend_on_the_id() -> None:
    fields: dict[str, object] = {"schedule": "H H * * *", "target": "handler:work"}
    jobs = [
        parse({**fields, "id": f"job-{number}"}, dataclasses.replace(CONTEXT, key=None)).job for number in range(50)
    ]
    assert len({job.schedule.key for job in jobs if job.schedule}) > 40


# --- the anchor of an interval


def test_an_interval_without_an_anchor_counts_from_its_creation() -> None:
    definition = parse({**LEAST, "schedule": {"every": "PT15M"}})
    assert definition.job.schedule == IntervalSchedule(every_ms=900_000, anchor_ms=CREATED_MS)
    assert orjson.loads(definition.document)["schedule"] == {"every": "PT15M", "anchor": "2026-03-01T12:00:00.123Z"}


def test_an_update_that_keeps_the_interval_keeps_its_anchor() -> None:
    first = parse({**LEAST, "schedule": {"every": "PT15M"}})
    later = dataclasses.replace(CONTEXT, created_ms=CREATED_MS + 1_000, previous=first.job)
    same = parse({**LEAST, "schedule": {"every": "PT900S"}, "priority": 1}, later)
    assert same.job.schedule == first.job.schedule
    assert b"12:00:00.123Z" in same.document
    other = parse({**LEAST, "schedule": {"every": "PT16M"}}, later)
    assert other.job.schedule == IntervalSchedule(every_ms=960_000, anchor_ms=CREATED_MS + 1_000)
    said = parse({**LEAST, "schedule": {"every": "PT15M", "anchor": "2026-01-01T00:00:00Z"}}, later)
    assert said.job.schedule != first.job.schedule


# --- payload and unknown fields, byte for byte


@pytest.mark.parametrize(
    "payload",
    [
        b"null", b"false", b"0", b'""', b"[]", b"{}", b"1e2", b"-0", b"0.10", b"123456789012345678901234567890",
        b'{ "b" : 1,\n "a":2 , "a": 3}', b'"\\u00e9\\/ \\u0000"', '"é🚀"'.encode(), b'{"kind":"define"}',
    ],
)  # fmt: skip
def test_the_payload_survives_byte_for_byte(payload: bytes) -> None:
    raw = b'{"schedule":"0 6 * * *", "payload" : ' + payload + b'\n, "target":"handler:work"}'
    definition = parse(raw)
    assert definition.job.payload == payload
    assert b'"payload":' + payload + b"," in definition.document
    assert parse(definition.document) == definition
    assert load_definition(definition.document).payload == payload


def test_unknown_fields_are_kept_and_warned_about_with_the_nearest_name() -> None:
    raw = b'{"scheduel": 1e2, "schedule":"0 6 * * *","target":{"handler":"work","colour":"red"},"x/y~":{ "z":1.0 }}'
    definition = parse(raw)
    assert [(warning.pointer, "did you mean" in warning.message) for warning in definition.warnings] == [
        ("/scheduel", True), ("/x~1y~0", False), ("/target/colour", False),
    ]  # fmt: skip
    assert 'did you mean "schedule"?' in definition.warnings[0].message
    assert b'"scheduel":1e2' in definition.document
    assert b'"x/y~":{ "z":1.0 }' in definition.document
    assert b'"colour":"red"' in definition.document
    assert parse(definition.document) == definition


def test_unknown_fields_are_refused_where_the_context_says_so() -> None:
    strict = dataclasses.replace(CONTEXT, unknown_fields="refuse")
    fields = {**LEAST, "retrys": 1, "dst": {"gab": "skip"}, "schedule": {"cron": "0 6 * * *", "sec": True}}
    assert pointers(fields, strict) == ["/retrys", "/dst/gab", "/schedule/sec"]
    assert [warning.pointer for warning in parse(fields).warnings] == ["/retrys", "/dst/gab", "/schedule/sec"]


def test_there_are_not_more_warnings_than_the_limit_and_a_last_word() -> None:
    fields = {**LEAST, **{f"unknown-{number}": number for number in range(200)}}
    warnings = parse(fields).warnings
    assert len(warnings) == CONTEXT.limits.warnings_max + 1
    assert warnings[-1].message == "has more unknown fields than are listed here"


# --- id and tenant


def test_where_the_id_comes_from() -> None:
    free = dataclasses.replace(CONTEXT, key=None, new_id="made-up")
    assert parse({**LEAST, "id": "said", "idempotency_key": "k"}, free).job.id == "said"
    assert parse({**LEAST, "idempotency_key": "k"}).job.id == "nightly"
    assert parse({**LEAST, "idempotency_key": "k"}, free).job.id == id_from_idempotency_key("default", "k")
    assert parse(LEAST, free).job.id == "made-up"
    assert pointers(LEAST, dataclasses.replace(CONTEXT, key=None)) == ["/id"]


def test_an_id_that_differs_from_the_key_is_refused() -> None:
    assert parse({**LEAST, "id": "nightly"}).job.id == "nightly"
    assert pointers({**LEAST, "id": "Nightly"}) == ["/id"]
    assert pointers({**LEAST, "id": 5}) == ["/id", "/id"]


def test_the_tenant_is_the_credentials() -> None:
    billing = dataclasses.replace(CONTEXT, tenant="billing")
    assert parse(LEAST, billing).job.tenant == "billing"
    assert parse({**LEAST, "tenant": "billing"}, billing).job.tenant == "billing"
    assert pointers({**LEAST, "tenant": "shop"}, billing) == ["/tenant"]
    assert b'"tenant":"billing"' in parse(LEAST, billing).document


# --- what is refused


def test_kaf_04_poison_pills() -> None:
    for text in CASES["kaf-04"]["input"]["values_hex"]:
        assert pointers(bytes.fromhex(text)) == [""]
    assert pointers(b"") == [""]


@pytest.mark.parametrize(
    "raw",
    [b'{"payload":NaN}', b'{"payload":{"x":-Infinity}}', b'{"payload":[1e999]}', b'{"payload":"\\ud800"}',
     b'{"payload":"\xed\xa0\x80"}', b'{"payload":"\x01"}', b'{"payload":01}', b"{} {}", b"{'a':1}", b'{"a":1,}'],
)  # fmt: skip
def test_pay_03_only_strict_json(raw: bytes) -> None:
    (problem,) = problems(raw)
    assert problem.pointer == ""
    assert "is not strict JSON" in problem.message


def test_a_payload_at_the_limit_and_one_byte_more() -> None:
    context = dataclasses.replace(CONTEXT, limits=Limits(payload_max_bytes=100))
    assert len(parse({**LEAST, "payload": "x" * 98}, context).job.payload) == 100
    with pytest.raises(TooLarge) as refused:
        parse({**LEAST, "payload": "x" * 99, "priority": 10}, context)
    assert [problem.pointer for problem in refused.value.problems] == ["/payload", "/priority"]
    with pytest.raises(TooLarge):
        parse({**LEAST, "payload": "é" * 50}, context)  # bytes, not characters


def test_a_definition_at_the_limit_and_one_byte_more() -> None:
    document = parse(LEAST).document
    limits = Limits(payload_max_bytes=0 + 4, envelope_max_bytes=len(document) - 4)
    context = dataclasses.replace(CONTEXT, limits=limits)
    assert parse(document, context).document == document
    with pytest.raises(TooLarge):
        parse(document + b" ", context)


def test_a_document_that_outgrows_the_limit_when_normalised_is_refused() -> None:
    limits = Limits(payload_max_bytes=4, envelope_max_bytes=len(orjson.dumps(LEAST)) - 4)
    with pytest.raises(TooLarge, match="when normalised"):
        parse(LEAST, dataclasses.replace(CONTEXT, limits=limits))


def test_kaf_12_oversize_payloads() -> None:
    for size in CASES["kaf-12"]["input"]["payload_bytes"]:
        with pytest.raises(TooLarge):
            parse({**LEAST, "payload": "x" * size})


def test_nesting_at_the_limit_and_one_level_more() -> None:
    limit = CONTEXT.limits.depth_max

    def nested(levels: int) -> bytes:
        return b'{"schedule":"0 6 * * *","target":"handler:work","payload":' + b"[" * levels + b"]" * levels + b"}"

    assert parse(nested(limit - 1)).job.payload == b"[" * (limit - 1) + b"]" * (limit - 1)
    for levels in (limit, 500, 1_500, 50_000):
        assert pointers(nested(levels)) == [""]
    wide = b'{"schedule":"0 6 * * *","target":"handler:work","payload":[' + b",".join([b"[]"] * 500) + b"]}"
    assert parse(wide).job.payload.count(b"[]") == 500


def test_all_problems_are_named_at_once() -> None:
    fields: dict[str, object] = {
        "schedule": "61 * * * *", "target": {"http": {"url": "ftp://x", "method": "get"}}, "priority": True,
        "misfire": "later", "timeout": "P1M", "retry": {"max_attempts": 0, "base": 5}, "labels": {"a": 1, "b": ""},
        "starts_at": "2026-02-30T00:00:00Z", "lane": "a/b", "max_runs": 1.0, "paused": "yes", "note": "\x00",
        "dst": {"gap": "later"}, "tenant": "", "id": "..",
    }  # fmt: skip
    assert sorted(pointers(fields, dataclasses.replace(CONTEXT, key=None))) == [
        "/dst/gap", "/id", "/labels/a", "/labels/b", "/lane", "/max_runs", "/misfire", "/note", "/paused", "/priority",
        "/retry/base", "/retry/max_attempts", "/schedule", "/starts_at", "/target/http/method", "/target/http/url",
        "/tenant", "/timeout",
    ]  # fmt: skip


REFUSED: list[tuple[dict[str, object], str, str]] = [
    ({"schedule": None}, "/schedule", "is missing"),
    ({"target": None}, "/target", "is missing"),
    ({"schedule": 5}, "/schedule", "cron expression"),
    ({"schedule": {}}, "/schedule", "exactly one of"),
    ({"schedule": {"cron": "0 6 * * *", "every": "PT5M"}}, "/schedule", "exactly one of"),
    ({"run_at": "2030-01-01T00:00:00Z"}, "/run_at", 'beside "schedule"'),
    ({"schedule": {"every": "PT0.999S"}}, "/schedule/every", "at least PT1S"),
    ({"schedule": {"every_sec": 0.5}}, "/schedule/every_sec", "at least PT1S"),
    ({"schedule": {"every_sec": 5, "every": "PT5S"}}, "/schedule/every_sec", "twice"),
    ({"schedule": {"after_completion": "PT0.5S"}}, "/schedule/after_completion", "at least PT1S"),
    ({"schedule": ["0 6 * * *"] * 21}, "/schedule", "list"),
    ({"schedule": {"cron": ["0 6 * * *"] * 21}}, "/schedule/cron", "at most 20"),
    ({"timezone": "CET "}, "/timezone", "CET"),
    ({"timezone": 1}, "/timezone", "IANA"),
    ({"dst": {"gap": "later"}}, "/dst/gap", "next_valid, shift, skip"),
    ({"dst": "skip"}, "/dst", "object"),
    ({"timing": "soon"}, "/timing", '"relaxed", "exact"'),
    ({"timing": {"window": "P8D"}}, "/timing/window", "at most P7D"),
    ({"timing": {}}, "/timing", '"relaxed", "exact"'),
    ({"starts_at": "2027-01-02T00:00:00Z", "ends_at": "2027-01-01T00:00:00Z"}, "/ends_at", "not be earlier"),
    ({"starts_at": 5}, "/starts_at", "unit is ambiguous"),
    ({"starts_at": "2026-02-30T00:00:00Z"}, "/starts_at", "not a date"),
    ({"max_runs": 0}, "/max_runs", "from 1"),
    ({"max_runs": 1.0}, "/max_runs", "whole number"),
    ({"max_runs": True}, "/max_runs", "whole number"),
    ({"calendar": {"exclude": "de"}}, "/calendar/exclude", "list"),
    ({"calendar": {"include": ["a/b"]}}, "/calendar/include/0", "name"),
    ({"calendar": {"include": ["a", "a"]}}, "/calendar/include", "twice"),
    ({"lane": "a b"}, "/lane", "name"),
    ({"lane": ".."}, "/lane", "name"),
    ({"priority": -1}, "/priority", "from 0 to 9"),
    ({"priority": 10}, "/priority", "from 0 to 9"),
    ({"priority": False}, "/priority", "from 0 to 9"),
    ({"priority": 1 << 63}, "/priority", "from 0 to 9"),
    ({"retry": 3}, "/retry", "object"),
    ({"retry": {"max_attempts": 0}}, "/retry/max_attempts", "from 1"),
    ({"retry": {"backoff": "linear"}}, "/retry/backoff", '"exponential"'),
    ({"retry": {"backoff": []}}, "/retry/backoff", "1 to 100"),
    ({"retry": {"backoff": ["PT1S", 5]}}, "/retry/backoff/1", "ISO 8601"),
    ({"retry": {"backoff": ["PT1S"], "base": "PT1S"}}, "/retry/base", "list of delays"),
    ({"retry": {"base": "PT2S", "cap": "PT1S"}}, "/retry/cap", "shorter than base"),
    ({"retry": {"jitter": "some"}}, "/retry/jitter", '"full", "none"'),
    ({"retry": {"base": "PT1S", "base_sec": 1}}, "/retry/base_sec", "twice"),
    ({"timeout": 300}, "/timeout", "_sec"),
    ({"timeout": "P1M"}, "/timeout", "months"),
    ({"timeout": "PT0S"}, "/timeout", "millisecond"),
    ({"timeout": "-PT5M"}, "/timeout", "positive"),
    ({"timeout": "P31D"}, "/timeout", "at most P30D"),
    ({"timeout_sec": "300"}, "/timeout_sec", "number of seconds"),
    ({"timeout_sec": True}, "/timeout_sec", "number of seconds"),
    ({"timeout_sec": 1e300}, "/timeout_sec", "100 years"),
    ({"timeout_sec": -5}, "/timeout_sec", "millisecond"),
    ({"timeout_sec": 5, "timeout": "PT5S"}, "/timeout_sec", "twice"),
    ({"guarantee": "exactly_once"}, "/guarantee", '"at_least_once", "at_most_once"'),
    ({"guarantee": "at_most_once", "retry": {"max_attempts": 2}}, "/retry/max_attempts", "one attempt only"),
    ({"guarantee": "at_most_once", "retry": {"backoff": ["PT1S"]}}, "/retry/backoff", "one attempt only"),
    ({"misfire": "RUN_ONCE"}, "/misfire", '"run_once", "run_all", "skip"'),
    ({"misfire": ["skip"]}, "/misfire", '"run_once"'),
    ({"run_all_max": 10_001}, "/run_all_max", "from 1 to 10000"),
    ({"overlap": "forbid"}, "/overlap", '"skip", "queue", "allow", "replace"'),
    ({"concurrency_key": ""}, "/concurrency_key", "1 to 200"),
    ({"concurrency_key": "a\nb"}, "/concurrency_key", "control"),
    ({"after": "job-a"}, "/after", "list"),
    ({"after": ["a b"]}, "/after/0", "job id"),
    ({"after": ["nightly"]}, "/after", "itself"),
    ({"after": [f"j{number}" for number in range(65)]}, "/after", "at most 64"),
    ({"on_upstream_failure": "fail"}, "/on_upstream_failure", '"skip", "run"'),
    ({"paused": 0}, "/paused", "true or false"),
    ({"note": "a\x00b"}, "/note", "control"),
    ({"note": "x" * 2_001}, "/note", "at most 2000"),
    ({"labels": {"a b": "c"}}, "/labels/a b", "name"),
    ({"labels": {"a": "b\x00"}}, "/labels/a", "control"),
    ({"labels": {str(number): "x" for number in range(65)}}, "/labels", "at most 64"),
    ({"notify": {"on": ["dead"]}}, "/notify/to", "at least one channel"),
    ({"notify": {"on": ["died"], "to": ["x"]}}, "/notify/on/0", '"dead"'),
    ({"notify": {"on": ["nothing_ran"], "to": ["x"]}}, "/notify/nothing_ran_after", "after how long"),
    ({"notify": {"to": ["x"], "late_after": "soon"}}, "/notify/late_after", "PT"),
    ({"notify": {"to": ["x"], "streak": 1}}, "/notify/streak", "from 2 to 1000"),
    ({"tenant": "a/b"}, "/tenant", "name"),
    ({"tenant": ""}, "/tenant", "name"),
    ({"id": ".."}, "/id", "key"),
    ({"idempotency_key": "x" * 201}, "/idempotency_key", "1 to 200"),
]


@pytest.mark.parametrize("fields, pointer, words", REFUSED)
def test_refused_fields_are_named_with_the_accepted_form(fields: dict[str, object], pointer: str, words: str) -> None:
    found = problems({**LEAST, **fields})
    assert {problem.pointer for problem in found} == {pointer}
    assert words in found[0].message


@pytest.mark.parametrize("case", ["cron-70", "cron-72", "cron-73", "cron-74"])
def test_expressions_of_other_dialects_are_refused_by_name_of_the_field(case: str) -> None:
    for cron in CASES[case]["input"]["cron"]:
        assert pointers({**LEAST, "schedule": {"cron": cron}}) == ["/schedule/cron"]
        assert pointers({**LEAST, "schedule": cron}) == ["/schedule"]


def test_tz_16_abbreviations_and_paths_are_no_zones() -> None:
    for zone in CASES["tz-16"]["input"]["timezone"]:
        assert pointers({**LEAST, "timezone": zone}) == ["/timezone"]


def test_int_09_invalid_intervals() -> None:
    for interval in CASES["int-09"]["input"]["interval_seconds"]:
        assert pointers({**LEAST, "schedule": {"every": interval}}) == ["/schedule/every"]
        assert pointers({**LEAST, "schedule": {"every_sec": interval}}) == ["/schedule/every_sec"]


def test_a_list_of_delays_allows_one_attempt_more_and_no_attempt_means_one() -> None:
    retry = parse({**LEAST, "retry": {"backoff": ["PT10S", "PT30S", "PT2M"]}}).job.retry
    assert retry == RetryPolicy(max_attempts=4, backoff=FixedDelays(delays_ms=(10_000, 30_000, 120_000)))
    once = parse({**LEAST, "guarantee": "at_most_once", "retry": {"base": "PT1S"}})
    assert once.job.retry.max_attempts == 1
    assert parse(once.document) == once


def test_loading_ignores_limits_that_were_lowered_since() -> None:
    long = parse({**LEAST, "note": "x" * 2_000, "payload": "x" * 100_000})
    assert load_definition(long.document) == long.job


def test_values_that_are_remembered_do_not_leak_between_limits() -> None:
    tight = dataclasses.replace(CONTEXT, limits=Limits(attempts_max=2))
    assert parse({**LEAST, "retry": {"max_attempts": 3}}).job.retry.max_attempts == 3
    assert pointers({**LEAST, "retry": {"max_attempts": 3}}, tight) == ["/retry/max_attempts"]
    own = dataclasses.replace(CONTEXT, topic_prefix="own.")
    assert pointers({**LEAST, "target": "kafka://noontide.jobs"}) == ["/target/topic/name"]
    assert parse({**LEAST, "target": "kafka://noontide.jobs"}, own).warnings == ()
    assert pointers({**LEAST, "target": "kafka://own.jobs"}, own) == ["/target/topic/name"]
    assert parse({**LEAST, "target": "handler:other"}).job.target == HandlerTarget(name="other")


@pytest.mark.parametrize(
    "members, lane",
    [
        ({"schedule": "0 6 * * *"}, "default"),
        ({"schedule": "0 6 * * *", "timing": "exact"}, "express"),
        ({"schedule": {"every": "PT1M"}, "timing": "exact"}, "express"),
        ({"schedule": "0 6 * * *", "timing": "exact", "lane": "bulk"}, "bulk"),
        ({"schedule": "0 6 * * *", "timing": {"window": "PT1M"}}, "default"),
        ({"run_at": "2030-01-01T00:00:00Z"}, "default"),
        ({"run_at": "2030-01-01T00:00:00Z", "timing": "exact"}, "default"),
    ],
)
def test_who_insists_on_its_minute_goes_to_the_express_lane(members: dict[str, object], lane: str) -> None:
    for number in range(3):  # the third time by what is remembered of the others
        job_id = f"lane-{number}"
        raw = json.dumps({"id": job_id, "target": "handler:x", **members}).encode()
        context = DefinitionContext(key=job_id, tenant=None, created_ms=0)
        definition = parse_definition(raw, context=context)
        assert definition.job.lane == lane
        assert load_definition(definition.document) == definition.job
