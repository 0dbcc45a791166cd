"""Properties of definitions: normalising twice is normalising once, payload bytes survive, nothing else is raised."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.definition import DefinitionContext, load_definition, merge_patch, parse_definition
from noontide.core.errors import InvalidDefinition
from noontide.core.ids import is_job_id, parse_run_id, run_id
from noontide.records.requests import Define, decode_request

CONTEXT = DefinitionContext(key=None, tenant=None, created_ms=1_772_366_400_123, new_id="made-up")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
spaces = st.text(" \t\r\n", max_size=3).map(str.encode)
durations = st.integers(1_000, 86_400_000).map(lambda length_ms: f"PT{length_ms // 1000}.{length_ms % 1000:03}S")
seconds = st.integers(1, 100_000) | st.floats(1, 100_000)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,19}", fullmatch=True)
minutes, hours = st.integers(0, 59), st.integers(0, 23)
crons = st.builds("{} {} * * *".format, minutes, hours)
instants = st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z")

schedules = st.one_of(
    crons,
    st.lists(crons, min_size=1, max_size=3),
    st.fixed_dictionaries({"cron": crons | st.lists(crons, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"every": durations}, optional={"anchor": instants}),
    st.fixed_dictionaries({"every_sec": seconds}, optional={"anchor": instants}),
    st.fixed_dictionaries({"at": instants}),
    st.fixed_dictionaries({"after_completion": durations}),
)
targets = st.one_of(
    names.map("handler:{}".format),
    names.map("kafka://{}".format),
    names.map("https://{}.example/run".format),
    st.fixed_dictionaries({"handler": names}),
    st.fixed_dictionaries({"topic": st.fixed_dictionaries({"name": names}, optional={"key": names})}),
    st.fixed_dictionaries(
        {
            "http": st.fixed_dictionaries(
                {"url": st.just("http://a/b")}, optional={"method": st.sampled_from(["GET", "PUT"])}
            )
        }
    ),
)
optional_fields = {
    "id": names,
    "tenant": names,
    "timezone": st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    "dst": st.fixed_dictionaries({}, optional={"gap": st.sampled_from(["next_valid", "shift"])}),
    "timing": st.sampled_from(["relaxed", "exact"]) | st.fixed_dictionaries({"window": durations}),
    "starts_at": instants,
    "max_runs": st.integers(1, 1_000_000) | st.none(),
    "priority": st.integers(0, 9),
    "lane": names,
    "retry": st.fixed_dictionaries(
        {}, optional={"max_attempts": st.integers(1, 100), "cap_sec": st.integers(5, 5_000)}
    ),
    "timeout": durations,
    "queue_deadline_sec": seconds,
    "misfire": st.sampled_from(["run_once", "run_all", "skip"]),
    "grace_sec": seconds,
    "paused": st.booleans(),
    "note": st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=50),
    "labels": st.dictionaries(names, names, max_size=3),
    "notify": st.fixed_dictionaries({"to": st.lists(names, min_size=1, max_size=3, unique=True)}),
    "idempotency_key": names,
    "x-unknown": json_values,
}
definitions = st.fixed_dictionaries({"schedule": schedules, "target": targets}, optional=optional_fields)


@st.composite
def spelled(draw: st.DrawFn, value: object) -> bytes:
    """A JSON text of the value with white space and escapes that a canonical writer would not choose."""
    match value:
        case dict():
            members = [
                draw(spelled(str(name))) + draw(spaces) + b":" + draw(spaces) + draw(spelled(item))
                for name, item in value.items()
            ]
            return b"{" + draw(spaces) + (draw(spaces) + b"," + draw(spaces)).join(members) + draw(spaces) + b"}"
        case list():
            return b"[" + b",".join(draw(spaces) + draw(spelled(item)) for item in value) + b"]"
        case str() if value and value.isascii() and value.isprintable() and draw(st.booleans()):
            return b'"\\u%04x' % ord(value[0]) + orjson.dumps(value[1:])[1:]
        case _:
            return orjson.dumps(value)


@given(fields=definitions)
def test_normalising_is_idempotent(fields: Mapping[str, object]) -> None:
    first = parse_definition(orjson.dumps(fields), context=CONTEXT)
    second = parse_definition(first.document, context=CONTEXT)
    assert second == first
    assert load_definition(first.document) == first.job


@given(fields=definitions, payload=json_values.flatmap(spelled), data=st.data())
def test_the_payloads_bytes_always_survive(fields: dict[str, object], payload: bytes, data: st.DataObject) -> None:
    outer = data.draw(spelled(fields))
    raw = outer[:-1] + b"," + data.draw(spaces) + b'"payload":' + payload + data.draw(spaces) + b"}"
    definition = parse_definition(raw, context=CONTEXT)
    assert definition.job.payload == payload
    assert load_definition(definition.document).payload == payload
    paused = merge_patch(definition.document, {"paused": True, "note": None, "labels": {"a": "b"}})
    job = load_definition(paused)
    assert (job.payload, job.paused, job.note, job.labels["a"]) == (payload, True, "", "b")
    assert load_definition(merge_patch(paused, {"paused": False})).payload == payload


def parses_or_refuses(raw: bytes) -> None:
    try:
        definition = parse_definition(raw, context=CONTEXT)
    except InvalidDefinition as refused:
        problems = refused.problems
    else:
        assert parse_definition(definition.document, context=CONTEXT) == definition
        return
    assert problems
    assert all(problem.message for problem in problems)


@given(raw=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_accepted(raw: bytes) -> None:
    parses_or_refuses(raw)


@given(value=json_values)
def test_arbitrary_json_is_refused_or_accepted(value: object) -> None:
    parses_or_refuses(orjson.dumps(value))


known_fields = st.sampled_from([
    *optional_fields, "schedule", "target", "run_at", "payload", "ends_at", "calendar", "complete_by", "timeout_sec",
    "queue_deadline", "complete_by_sec", "guarantee", "grace", "run_all_max", "overlap", "concurrency_key", "after",
    "on_upstream_failure", "managed_by",
])  # fmt: skip
inner_names = st.sampled_from([
    "cron", "every", "at", "seconds", "anchor", "every_sec", "after_completion", "http", "topic", "handler", "url",
    "name", "method", "headers", "auth", "bearer", "basic", "header", "secret", "username", "gap", "repeat", "window",
    "on", "to", "max_attempts", "backoff", "base", "base_sec", "cap", "jitter", "exclude", "include", "key",
])  # fmt: skip
near_values = st.recursive(
    json_values
    | durations
    | instants
    | crons
    | st.sampled_from(["exponential", "full", "GET", "dead", "1e400", "\x00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(inner_names, inner, max_size=3),
    max_leaves=6,
)


@given(fields=st.dictionaries(known_fields, near_values, max_size=8))
def test_near_misses_are_refused_or_accepted(fields: Mapping[str, object]) -> None:
    parses_or_refuses(orjson.dumps({"schedule": "0 6 * * *", "target": "handler:work", **fields}))


@given(document=definitions, patch=json_values | st.dictionaries(known_fields, near_values, max_size=4))
def test_arbitrary_patches_are_applied_or_refused(document: Mapping[str, object], patch: object) -> None:
    accepted = parse_definition(orjson.dumps(document), context=CONTEXT).document
    try:
        patched = merge_patch(accepted, patch)
    except InvalidDefinition:
        assert not isinstance(patch, dict)
    else:
        parses_or_refuses(patched)


header_names = st.sampled_from(["kind", "if-match", "content-type", "verdict", "ce_id", "actor", "tenant"])
header_values = st.binary(max_size=20) | st.sampled_from(
    [b"define", b"delete", b"trigger", b"cancel", b"backfill", b"redrive", b"application/cloudevents+json", b"1", b"*"]
)


@given(
    key=st.none() | st.binary(max_size=20) | st.just(b"job"),
    value=st.none() | st.binary(max_size=50) | near_values.map(orjson.dumps),
    headers=st.lists(st.tuples(header_names, st.none() | header_values), max_size=5),
)
def test_arbitrary_records_are_requests_or_refused(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    try:
        request = decode_request(key=key, value=value, headers=headers)
    except InvalidDefinition as refused:
        problems = refused.problems
    else:
        assert is_job_id(request.job_id)
        assert not isinstance(request, Define) or value is not None
        return
    assert problems


@given(
    job_id=st.from_regex(r"[A-Za-z0-9._~:@-]{1,200}", fullmatch=True).filter(is_job_id),
    due_ms=st.integers(-62_135_596_800_000, 253_402_300_799_999),
    generation=st.integers(1, 1_000),
)
def test_run_ids_are_unique_because_they_can_be_taken_apart(job_id: str, due_ms: int, generation: int) -> None:
    parsed = parse_run_id(run_id(job_id, due_ms, generation), "")
    assert (parsed.job_id, getattr(parsed, "due_ms", None), getattr(parsed, "generation", None)) == (
        job_id, due_ms, generation,
    )  # fmt: skip
