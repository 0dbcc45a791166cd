"""The row of a job says what its definition says."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.definition import DefinitionContext, load_definition, parse_definition
from noontide.core.job import Job
from noontide.core.occurrence import spread_offset
from noontide.core.partitioner import partition_for
from noontide.core.policies import MisfireRule, Overlap
from noontide.records.job_row import JobRow, TargetKind, decode_job_row, encode_job_row, with_payload

CONTEXT = DefinitionContext(key=None, tenant=None, created_ms=1_772_323_200_000)
MINIMAL = {"id": "a", "schedule": {"every": "PT1H"}, "target": {"topic": {"name": "orders"}}}


def _row(**fields: object) -> tuple[Job, bytes, JobRow]:
    definition = parse_definition(orjson.dumps({**MINIMAL, **fields}), context=CONTEXT)
    row = encode_job_row(definition.job, definition.document, etag="api-1-2", created_ms=CONTEXT.created_ms)
    return definition.job, row, decode_job_row(row)


def test_everything_a_dispatch_needs() -> None:
    job, _, row = _row(
        tenant="billing", misfire="run_all", run_all_max=7, grace="PT90S", overlap="queue", max_runs=3,
        ends_at="2027-01-01T00:00:00Z", payload={"n": 1}, calendar={"exclude": ["x"]},
    )  # fmt: skip
    assert (row.tenant, row.target_kind, row.target, row.target_text) == ("billing", 0, "orders", "kafka://orders")
    assert (row.misfire_rule, row.overlap_rule) == (MisfireRule.RUN_ALL, Overlap.QUEUE)
    assert (row.run_all_max, row.grace_ms, row.max_runs, row.calendars) == (7, 90_000, 3, 1)
    assert (row.ends_at_ms, row.etag, row.created_ms) == (1_798_761_600_000, "api-1-2", CONTEXT.created_ms)
    assert row.payload == b'{"n":1}'
    assert row.schedule_key == "every:3600000:1772323200000"
    assert row.spread_ms == spread_offset("a", timing=job.timing, period_ms=3_600_000)
    assert load_definition(row.document) == job


def test_defaults() -> None:
    _, _, row = _row()
    assert (row.misfire_rule, row.overlap_rule, row.grace_ms) == (MisfireRule.RUN_ONCE, Overlap.SKIP, 60_000)
    assert (row.max_runs, row.calendars, row.payload, row.key) == (0, 0, b"null", b"a")
    assert row.ends_at_ms > 2**60


@pytest.mark.parametrize("rule", list(MisfireRule))
@pytest.mark.parametrize("overlap", list(Overlap))
def test_every_rule_comes_back(rule: MisfireRule, overlap: Overlap) -> None:
    _, _, row = _row(misfire=rule, overlap=overlap)
    assert (row.misfire_rule, row.overlap_rule) == (rule, overlap)


@pytest.mark.parametrize(
    "target, kind, text",
    [
        ({"topic": {"name": "t"}}, TargetKind.TOPIC, "kafka://t"),
        ({"http": {"url": "https://example.com/x"}}, TargetKind.HTTP, "https://example.com/x"),
        ({"handler": "report"}, TargetKind.HANDLER, "handler:report"),
    ],
)
def test_every_kind_of_target_comes_back(target: object, kind: TargetKind, text: str) -> None:
    _, _, row = _row(target=target)
    assert (row.target_kind, row.target_text) == (kind, text)


@pytest.mark.parametrize("key", ["k", "\u20ac", "a b", "x" * 200])
def test_the_record_key_decides_the_partition(key: str) -> None:
    _, _, row = _row(target={"topic": {"name": "t", "key": key}})
    assert row.key == key.encode()
    assert row.key_hash % 17 == partition_for(key.encode(), 17)


PAYLOADS = [
    b'{"b":1,"a":2}', b"[1.50,1e300]", b'"\\u20ac"', b"0", b"null", b"{}", b'""', b"1", b'"orders"', b"-0",
    b'{"payload":{"payload":1}}', b'"id"', b" 1 ", b'{ "spaced" : [ 1 , 2 ] }',
]  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("follows", [b"", b',"priority":1', b',"note":"orders"', b',"labels":{"payload":"1"}'])
def test_the_payload_is_kept_byte_for_byte(payload: bytes, follows: bytes) -> None:
    raw = orjson.dumps(MINIMAL)[:-1] + b',"payload":' + payload + follows + b"}"
    definition = parse_definition(raw, context=CONTEXT)
    row = decode_job_row(encode_job_row(definition.job, definition.document, etag="e", created_ms=0))
    assert row.payload == definition.job.payload == payload.strip()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(payload=json_values, note=st.text(alphabet="abc1 ", max_size=10))
def test_any_payload_comes_back(payload: object, note: str) -> None:
    job, _, row = _row(payload=payload, note=note)
    assert orjson.loads(row.payload) == payload
    assert load_definition(row.document) == job


@given(payload=json_values, other=json_values)
def test_another_payload_changes_nothing_else(payload: object, other: object) -> None:
    _, encoded, row = _row(payload=payload, note="n", tenant="t")
    changed = decode_job_row(with_payload(encoded, "a", orjson.dumps(other)))
    assert orjson.loads(changed.payload) == other
    same = row._replace(payload=b"", document=b"")
    assert changed._replace(payload=b"", document=b"") == same
    before, after = load_definition(row.document), load_definition(changed.document)
    assert {**_fields(before), "payload": None} == {**_fields(after), "payload": None}


def test_a_payload_by_hand_where_there_was_none() -> None:
    _, encoded, _ = _row()
    assert decode_job_row(with_payload(encoded, "a", b'{"n":1}')).payload == b'{"n":1}'


@pytest.mark.parametrize(
    "fields",
    [
        {"grace": "P30D"},
        {"timing": {"window": "P7D"}},
        {"max_runs": 1_000_000_000},
        {"run_all_max": 10_000},
        {"ends_at": "9999-12-31T23:59:59Z"},
        {"payload": "x" * 200_000},
    ],
)
def test_the_largest_values_fit(fields: dict[str, object]) -> None:
    job, _, row = _row(**fields)
    assert load_definition(row.document) == job


def _fields(job: Job) -> dict[str, object]:
    return {name: getattr(job, name) for name in Job.__slots__}
