"""What an owner writes on state, leases, executions and rejected is what the topic files say, field for field."""

from __future__ import annotations

import json
from typing import cast

import pytest
from jsonschema import Draft202012Validator

from noontide.core.cursor import Cursor, JobState
from noontide.core.errors import Problem
from noontide.core.run import Decision, Run, RunState
from noontide.records.config import check_config
from noontide.records.executions import Range, Times, closed, decided, delivered
from noontide.records.leases import decode_lease, encode_lease
from noontide.records.rejected import EXCERPT_MAX_BYTES, Origin, encode_rejected
from noontide.records.state import (
    Position,
    cursor_record_key,
    decode_cursor,
    encode_cursor,
    encode_position,
    encode_verdict,
    position_record_key,
    verdict_record_key,
)
from noontide.records.topic_file import Example
from noontide.records.topics import load_catalogue

AT_MS = 1_772_415_112_004
TIMES = Times(AT_MS - 60_000, AT_MS - 4, AT_MS, AT_MS + 20)


def check(topic: str, value: bytes, *, key: bytes = b"") -> dict[str, object]:
    """The value is valid, and has no field that the file does not describe."""
    file = load_catalogue()[topic]
    schema = cast("dict[str, object]", file.schema_for(key=key.decode()))
    decoded = json.loads(value)
    Draft202012Validator(schema).validate(decoded)
    definitions = cast("dict[str, dict[str, object]]", schema.get("$defs", {}))
    body = definitions[str(schema["$ref"]).rsplit("/", 1)[1]] if "$ref" in schema else schema
    assert decoded.keys() <= cast("dict[str, object]", body["properties"]).keys()
    return cast("dict[str, object]", decoded)


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("full", [False, True])
def test_cursors(state: JobState, full: bool) -> None:
    more = {"due_ms": AT_MS, "start_ms": AT_MS + 5, "last_due_ms": AT_MS - 5} if full else {}
    cursor = Cursor(state, accepted_ms=AT_MS, runs=3, generation=2, reason="why" if full else None, **more)
    decoded = check("state", encode_cursor(cursor), key=cursor_record_key(b"a"))
    assert decoded["state"] == state


def test_active_cursor_on_the_quick_way() -> None:
    check("state", encode_cursor(Cursor(JobState.ACTIVE, AT_MS, AT_MS + 5)), key=cursor_record_key(b"a"))


@pytest.mark.parametrize("name", [41, "slot-5"])
def test_positions(name: int | str) -> None:
    position = Position({"requests.api": 7, "signals/3": 2}, 12, 90)
    check("state", encode_position(position), key=position_record_key(name))


@pytest.mark.parametrize("problems", [[], [{"pointer": "/schedule", "message": "is missing"}]])
def test_verdicts(problems: list[dict[str, str]]) -> None:
    value = encode_verdict(etag=None if problems else "api-1-2", problems=problems, at_ms=AT_MS)
    decoded = check("state", value, key=verdict_record_key("requests.api/1/2"))
    assert decoded["verdict"] == ("refused" if problems else "accepted")


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.QUEUED, RunState.RUNNING, RunState.RETRY_WAIT])
def test_leases(state: RunState) -> None:
    run = Run("a:x", "a", "t", state, AT_MS, AT_MS, AT_MS, "handler:x", 1, 2, AT_MS + 9, "breaker", "a:w")
    check("leases", encode_lease(run))
    check("leases", encode_lease(Run("a:x", "a", "t", state, AT_MS, AT_MS, AT_MS, "handler:x")))


@pytest.mark.parametrize("spread", [0, 60_000])
def test_executions_of_runs(spread: int) -> None:
    times = TIMES._replace(due_ms=TIMES.start_ms - spread)
    value = delivered("a:x", "a", tenant="t", times=times, target="kafka://orders.reminders")
    assert ("start_after" in check("executions", value)) is (spread > 0)
    value = closed("a:x", "a", tenant="t", times=times, state="dead", reason="max_attempts", attempt=5)
    check("executions", value)


@pytest.mark.parametrize("decision", list(Decision))
@pytest.mark.parametrize("span", [None, Range(AT_MS + 60_000, 2)])
def test_executions_that_are_decisions(decision: Decision, span: Range | None) -> None:
    value = decided(
        "a:x", "a", tenant="t", due_ms=AT_MS, at_ms=AT_MS + 5, decision=decision, reason="misfire", span=span
    )
    assert ("until" in check("executions", value)) is (span is not None)


def test_a_delivered_run_is_within_300_bytes() -> None:
    value = delivered(
        "reminder-4711:20260302T013000Z",
        "reminder-4711",
        tenant="orders",
        times=TIMES._replace(due_ms=TIMES.start_ms),
        target="kafka://orders.reminders",
    )
    assert len(value) <= 300


@pytest.mark.parametrize("size", [0, 1, EXCERPT_MAX_BYTES, EXCERPT_MAX_BYTES + 1])
def test_rejections(size: int) -> None:
    origin = Origin(topic="requests.public", partition=3, offset=9)
    problems = [Problem("/schedule/cron", "minute 61 is out of range")]
    decoded = check("rejected", encode_rejected(origin, problems=problems, value=b"x" * size, at_ms=AT_MS))
    assert decoded["size"] == size


@pytest.mark.parametrize(
    "example",
    [example for example in load_catalogue()["state"].examples if str(example.key).startswith("cursor/")],
    ids=lambda example: str(example.about),
)
def test_cursor_examples_are_read_and_written_alike(example: Example) -> None:
    written = json.loads(encode_cursor(decode_cursor(json.dumps(example.value).encode())))
    assert written == example.value


@pytest.mark.parametrize(
    "example",
    [example for example in load_catalogue()["leases"].examples if example.value is not None],
    ids=lambda example: str(example.about),
)
def test_lease_examples_are_read(example: Example) -> None:
    value = cast("dict[str, object]", example.value)
    run = decode_lease(str(example.key).encode(), json.dumps(value).encode())
    assert (run.run_id, run.state, run.token) == (example.key, value["state"], value["token"])


@pytest.mark.parametrize(
    "example",
    [example for example in load_catalogue()["config"].examples if example.value is not None],
    ids=lambda example: str(example.about),
)
def test_config_examples_are_accepted(example: Example) -> None:
    assert check_config(str(example.key), json.dumps(example.value).encode()) == example.value
