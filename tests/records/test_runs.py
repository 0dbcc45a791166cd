"""Invitations: what workers read is what the definition says."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.policies import Guarantee
from noontide.records.job_row import decode_job_row, encode_job_row
from noontide.records.runs import Invitation, decode_invitation, encode_invitation, standing_part

CONTEXT = DefinitionContext(key=None, tenant=None, created_ms=1_772_323_200_000)
MINIMAL = {"id": "a", "schedule": {"every": "PT1H"}, "target": {"handler": "x"}}


def _invitation(*, times: tuple[int, int] = (5, 5), attempt: int = 1, **fields: object) -> tuple[bytes, Invitation]:
    definition = parse_definition(orjson.dumps({**MINIMAL, **fields}), context=CONTEXT)
    row = decode_job_row(encode_job_row(definition.job, definition.document, etag="e", created_ms=1))
    value = encode_invitation(
        "a:m1", slot=3, times=times, attempt=attempt, rest=row.invitation.encode(), payload=row.payload
    )
    return value, decode_invitation(value)


def test_everything_a_worker_needs() -> None:
    _, offer = _invitation(
        times=(5, 9), attempt=2, tenant="acme", payload=[1, None], timeout="PT1M", retry={"max_attempts": 7},
        target={"http": {"url": "https://api.example/x", "method": "PUT", "headers": {"A": "b"}}},
    )  # fmt: skip
    assert offer == Invitation(
        run_id="a:m1", job_id="a", tenant="acme", slot=3, due_ms=5, start_ms=9, attempt=2, max_attempts=7,
        target={"http": {"url": "https://api.example/x", "method": "PUT", "headers": {"A": "b"}}},
        payload=b"[1,null]", timeout_ms=60_000, lease_ms=30_000, heartbeat_ms=10_000,
        guarantee=Guarantee.AT_LEAST_ONCE,
    )  # fmt: skip


def test_the_spread_start_is_left_out_when_it_is_the_due_time() -> None:
    value, offer = _invitation(times=(5, 5))
    assert b"start_after" not in value
    assert (offer.due_ms, offer.start_ms) == (5, 5)


def test_at_most_once_is_said() -> None:
    assert _invitation(guarantee="at_most_once")[1].guarantee is Guarantee.AT_MOST_ONCE


@pytest.mark.parametrize(
    "text", [b'{"n":1.50}', b'"\\u00e9\\ud83d\\ude00"', b"1e300", b'{"a":1,"a":2}', b'" \\\\\\" "']
)
def test_a_payload_comes_byte_for_byte(text: bytes) -> None:
    document = orjson.dumps(MINIMAL)[:-1] + b',"payload":' + text + b"}"
    definition = parse_definition(document, context=CONTEXT)
    row = decode_job_row(encode_job_row(definition.job, definition.document, etag="e", created_ms=1))
    value = encode_invitation(
        "a:m1", slot=0, times=(1, 1), attempt=1, rest=row.invitation.encode(), payload=row.payload
    )
    assert decode_invitation(value).payload == text


def test_no_payload_is_null() -> None:
    assert _invitation()[1].payload == b"null"


@given(payload=st.recursive(st.none() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=10))
def test_any_payload_leaves_the_rest_alone(payload: object) -> None:
    _, offer = _invitation(payload=payload)
    assert (offer.run_id, offer.attempt, offer.target) == ("a:m1", 1, {"handler": "x"})


def test_the_standing_part_is_members_without_braces() -> None:
    definition = parse_definition(orjson.dumps(MINIMAL), context=CONTEXT)
    part = orjson.loads(b"{" + standing_part(definition.job, definition.document) + b"}")
    assert part["queue_ms"] == 600_000
    assert "payload" not in part


@pytest.mark.parametrize("value", [b"", b"null", b"{}", b"[]", b"\xff", b'{"run_id":1}'])
def test_anything_else_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=".+"):
        decode_invitation(value)
