"""Requests: keys, headers, kinds, commands, CloudEvents."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
import yaml

from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.core.limits import DEFAULT_LIMITS, Limits
from noontide.core.payload import TooLarge
from noontide.core.policies import Overlap
from noontide.records.request_headers import Terms
from noontide.records.requests import (
    CLOUD_EVENT_MAX_BYTES,
    Backfill,
    Cancel,
    Define,
    Delete,
    Redrive,
    Request,
    Trigger,
    decode_request,
)

Headers = list[tuple[str, bytes | None]]
ROOT = Path(__file__).parents[2]
BODY = b'{ "schedule":"0 6 * * *", "payload": 1.0 }'
JOB = "nightly"
RUN = "nightly:20260302T013000Z"


def decode(
    value: object, kind: str | None = None, headers: Headers | None = None, key: bytes | None = b"nightly"
) -> Request:
    raw = value if isinstance(value, bytes | None) else orjson.dumps(value)
    named: Headers = [] if kind is None else [("kind", kind.encode())]
    return decode_request(key=key, value=raw, headers=[*named, *(headers or [])])


def pointers(
    value: object, kind: str | None = None, headers: Headers | None = None, key: bytes | None = b"nightly"
) -> list[str]:
    with pytest.raises(InvalidDefinition) as refused:
        decode(value, kind, headers, key)
    return [problem.pointer for problem in refused.value.problems]


def at(text: str) -> int:
    return parse_instant(text, zone=None, pointer="")


# --- key and kind


def test_a_definition_is_passed_on_byte_for_byte() -> None:
    assert decode(BODY) == decode(BODY, "define") == Define(job_id=JOB, terms=Terms(), document=BODY)


def test_what_is_no_json_is_left_to_the_reader_of_definitions() -> None:
    cases = [json.loads(line) for line in (ROOT / "tests/cases/behaviour.jsonl").read_text().splitlines()]
    for text in next(case for case in cases if case["id"] == "kaf-04")["input"]["values_hex"]:
        request = decode(bytes.fromhex(text))
        assert isinstance(request, Define)
        assert request.document == bytes.fromhex(text)


def test_a_null_value_deletes_unless_a_command_needs_none() -> None:
    assert decode(None) == decode(None, "define") == decode(None, "delete") == Delete(job_id=JOB, terms=Terms())
    assert decode({}, "delete") == decode(b"null", "delete") == Delete(job_id=JOB, terms=Terms())
    assert decode({"tenant": "a"}, "delete") == Delete(job_id=JOB, terms=Terms(tenant="a"))
    assert decode(None, "trigger") == Trigger(job_id=JOB, terms=Terms(), payload=None, reason="")
    assert pointers(None, "backfill") == ["/from", "/to"]
    assert pointers(None, "redrive") == [""]


@pytest.mark.parametrize(
    "key", [None, b"", b"\xff\xfe", b".", b"..", b"a b", "日本".encode(), b"a\n", b"a\x00", b"a" * 201, b"a/b"]
)
def test_kaf_02_keys_that_are_no_job_id(key: bytes | None) -> None:
    for value in (BODY, None):
        assert pointers(value, key=key) == ["/key"]


def test_unknown_kinds_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidDefinition, match='"define", "delete", "trigger", "cancel", "backfill", "redrive"'):
        decode(BODY, "upsert")
    assert pointers(BODY, "Define") == ["/headers/kind"]
    assert pointers(BODY, "") == ["/headers/kind"]


# --- headers


def test_the_last_of_several_headers_counts_and_names_have_no_case() -> None:
    headers: Headers = [("kind", b"define"), ("If-Match", b'"3"'), ("if-match", b"4"), ("KIND", b"trigger")]
    assert decode({}, headers=headers) == Trigger(job_id=JOB, terms=Terms(if_match="4"), payload=None, reason="")


def test_terms() -> None:
    headers: Headers = [
        ("if-match", b'"3"'), ("tenant", b"billing"), ("idempotency-key", b"k"), ("verdict", b"1"),
        ("actor", b"user:ada"), ("other", b"\xff"), ("null", None),
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ]  # fmt: skip
    request = decode(BODY, headers=headers)
    assert request.terms == Terms(
        if_match="3", tenant="billing", idempotency_key="k", wants_verdict=True, actor="user:ada",
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )  # fmt: skip
    assert request.if_match == "3"
    assert decode(BODY, headers=[("if-match", b"*")]).if_match == "*"


@pytest.mark.parametrize(
    "header, value",
    [("if-match", b""), ("if-match", b'"1", "2"'), ("if-match", b'W/"1"'), ("if-match", b'""'), ("if-match", b'"1'),
     ("kind", b"\xff"), ("actor", b"a\x00"), ("actor", b"a" * 1_025), ("verdict", b"yes"), ("tenant", b"a\nb"),
     ("content-type", b"text/plain"), ("content-type", b"application/avro"), ("content-type", b"application/jsonx"),
     ("content-type", b"application/json; charset=utf-16"), ("content-type", b"application/cloudevents-batch+json")],
)  # fmt: skip
def test_refused_headers(header: str, value: bytes) -> None:
    assert pointers(BODY, headers=[(header, value)]) == [f"/headers/{header}"]


@pytest.mark.parametrize(
    "media_type",
    [b"application/json", b"Application/JSON; charset=UTF-8", b"application/vnd.acme.job+json", b"text/json"],
)
def test_accepted_content_types(media_type: bytes) -> None:
    assert decode(BODY, headers=[("content-type", media_type)]) == decode(BODY)


def test_a_value_at_the_limit_and_one_byte_more() -> None:
    most = DEFAULT_LIMITS.definition_max_bytes
    for kind in ("define", "trigger"):
        decode(b"{" + b" " * (most - 2) + b"}", kind)
        with pytest.raises(TooLarge):
            decode(b"{" + b" " * (most - 1) + b"}", kind)


# --- CloudEvents


def test_binary_mode_is_an_ordinary_request_with_more_headers() -> None:
    headers: Headers = [("ce_id", b"1"), ("ce_source", b"/shop"), ("ce_specversion", b"1.0"), ("ce_type", b"reminder")]
    assert decode(BODY, headers=[*headers, ("content-type", b"application/json")]) == decode(BODY)


CLOUD: Headers = [("content-type", b"application/cloudevents+json; charset=utf-8")]


def test_structured_mode_has_the_definition_in_data() -> None:
    event = b'{"specversion":"1.0","id":"1","source":"/shop","type":"reminder", "data" : ' + BODY + b" }"
    assert decode(event, headers=CLOUD) == decode(BODY)
    command = b'{"specversion":"1.0","data":{"reason":"again"}}'
    assert decode(command, "trigger", CLOUD) == Trigger(job_id=JOB, terms=Terms(), payload=None, reason="again")
    assert decode(b'{"data":null}', headers=CLOUD) == Define(job_id=JOB, terms=Terms(), document=b"null")


@pytest.mark.parametrize(
    "event, pointer", [(b"{}", "/data"), (b'{"data_base64":"e30="}', "/data_base64"), (b"[]", ""), (b"\xff", "")]
)
def test_refused_events(event: bytes, pointer: str) -> None:
    assert pointers(event, headers=CLOUD) == [pointer]


def test_an_event_at_the_limit_and_one_byte_more() -> None:
    most = DEFAULT_LIMITS.definition_max_bytes + CLOUD_EVENT_MAX_BYTES
    event = b'{"data":' + BODY + b"}"
    assert decode(event + b" " * (most - len(event)), headers=CLOUD) == decode(BODY)
    with pytest.raises(TooLarge):
        decode(event + b" " * (most - len(event) + 1), headers=CLOUD)


# --- commands


def test_trigger() -> None:
    raw = b'{"payload": {"n" : 1.0, "big":123456789012345678901234567890}, "reason":"again", "tenant":"t"}'
    assert decode(raw, "trigger") == Trigger(
        job_id=JOB,
        terms=Terms(tenant="t"),
        payload=b'{"n" : 1.0, "big":123456789012345678901234567890}',
        reason="again",
    )
    request = decode(b'{"payload":null}', "trigger")
    assert isinstance(request, Trigger)
    assert request.payload == b"null"
    with pytest.raises(TooLarge):
        decode_request(
            key=b"a", value=b'{"payload":"12345"}', headers=[("kind", b"trigger")], limits=Limits(payload_max_bytes=6)
        )


def test_cancel() -> None:
    assert decode({"run_id": RUN, "reason": "r"}, "cancel") == Cancel(job_id=JOB, terms=Terms(), run_id=RUN, reason="r")
    assert decode({}, "cancel") == Cancel(job_id=JOB, terms=Terms(), run_id=None, reason="")
    assert pointers({"run_id": "other:20260302T013000Z"}, "cancel") == ["/run_id"]
    assert pointers({"run_id": "nightly"}, "cancel") == ["/run_id"]
    assert pointers({"run_id": 5, "reason": "\x00"}, "cancel") == ["/run_id", "/reason"]


def test_backfill() -> None:
    least = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-08T00:00:00+01:00"}
    request = decode(least, "backfill")
    assert request == Backfill(
        job_id=JOB, terms=Terms(), from_ms=at("2026-02-01T00:00:00Z"), to_ms=at("2026-02-07T23:00:00Z"),
        overlap=None, reprocess=False, dry_run=False, max_runs=DEFAULT_LIMITS.backfill_max_runs,
    )  # fmt: skip
    more = decode({**least, "overlap": "allow", "reprocess": True, "dry_run": True, "max": 10}, "backfill")
    assert isinstance(more, Backfill)
    assert (more.overlap, more.reprocess, more.dry_run, more.max_runs) == (Overlap.ALLOW, True, True, 10)


@pytest.mark.parametrize(
    "change, pointer",
    [
        ({"from": None}, "/from"),
        ({"to": None}, "/to"),
        ({"from": 1_700_000_000}, "/from"),
        ({"from": "2026-02-01T00:00:00"}, "/from"),
        ({"to": "2026-02-01T00:00:00Z"}, "/to"),
        ({"overlap": "never"}, "/overlap"),
        ({"reprocess": 1}, "/reprocess"),
        ({"dry_run": "yes"}, "/dry_run"),
        ({"max": 0}, "/max"),
        ({"max": True}, "/max"),
        ({"max": 100_001}, "/max"),
        ({"maximum": 5}, "/maximum"),
        ({"max": 5, "max_runs": 5}, "/max_runs"),
    ],
)
def test_refused_backfills(change: dict[str, object], pointer: str) -> None:
    fields = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-08T00:00:00Z", **change}
    assert pointers(fields, "backfill") == [pointer]


def test_redrive() -> None:
    one = decode({"run_id": RUN}, "redrive")
    assert isinstance(one, Redrive)
    assert (one.run_id, one.from_ms, one.to_ms) == (RUN, None, None)
    some = decode({"from": "2026-02-01T00:00:00Z", "max": 5}, "redrive")
    assert isinstance(some, Redrive)
    assert (some.run_id, some.from_ms, some.to_ms, some.max_runs) == (None, at("2026-02-01T00:00:00Z"), None, 5)
    assert pointers({}, "redrive") == [""]
    assert pointers({"max": 5}, "redrive") == [""]
    assert pointers({"run_id": RUN, "max": 5}, "redrive") == ["/run_id"]


@pytest.mark.parametrize("kind", ["trigger", "cancel", "backfill", "redrive"])
@pytest.mark.parametrize(
    "value", [b"", b"null", b"[]", b'"a"', b"{", b"\xff", b"\xef\xbb\xbf{}", b'{"a":NaN}', b"[" * 2000]
)
def test_commands_that_are_no_objects(kind: str, value: bytes) -> None:
    assert pointers(value, kind) == [""]


def test_the_examples_of_the_topic_file_are_requests() -> None:
    examples = yaml.safe_load((ROOT / "topics/requests.yaml").read_text())["examples"]
    decoded = [
        decode_request(
            key=example["key"].encode(),
            value=None if example["value"] is None else orjson.dumps(example["value"]),
            headers=[(name, str(value).encode()) for name, value in example.get("headers", {}).items()],
        )
        for example in examples
    ]
    assert {type(request) for request in decoded} == {Define, Delete, Trigger, Cancel, Backfill, Redrive}
