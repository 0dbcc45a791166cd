"""Records of the `state` topic: cursors, the definitions of live runs, verdicts and positions. Keys are typed by a prefix."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from noontide.core.cursor import Cursor, JobState

CURSOR, RUN, VERDICT, POSITION = (b"cursor/", b"run/", b"verdict/", b"__pos/")


class Position(NamedTuple):
    """What an owner has consumed: the next offset per input (topic name without prefix), and its cycle's number."""

    inputs: dict[str, int]
    config: int
    cycle: int


def cursor_record_key(job_id: bytes) -> bytes:
    """`cursor/<job id>`."""
    return CURSOR + job_id


def encode_cursor(cursor: Cursor) -> bytes:
    """JSON of a cursor; absent fields are left out. Times are milliseconds since the epoch."""
    if cursor.state is JobState.ACTIVE and cursor.due_ms is not None and cursor.reason is None:
        return b'{"state":"active","due":%d,"start":%d,"n":%d,"gen":%d,"accepted":%d%s}' % (
            cursor.due_ms,
            cursor.start_ms or 0,
            cursor.runs,
            cursor.generation,
            cursor.accepted_ms,
            b"" if cursor.last_due_ms is None else b',"last_due":%d' % cursor.last_due_ms,
        )
    return orjson.dumps(
        {
            "state": cursor.state,
            **_present(due=cursor.due_ms, start=cursor.start_ms),
            "n": cursor.runs,
            "gen": cursor.generation,
            "accepted": cursor.accepted_ms,
            **_present(last_due=cursor.last_due_ms, reason=cursor.reason),
        }
    )


def decode_cursor(value: bytes) -> Cursor:
    """Inverse of `encode_cursor`."""
    fields = orjson.loads(value)
    return Cursor(
        JobState(fields["state"]),
        fields.get("due"),
        fields.get("start"),
        fields["n"],
        fields["gen"],
        fields.get("last_due"),
        fields["accepted"],
        fields.get("reason"),
    )


def position_record_key(name: int | str) -> bytes:
    """`__pos/<partition>`, or `__pos/slot-<n>` for the mailbox of a slot."""
    return POSITION + str(name).encode()


def encode_position(position: Position) -> bytes:
    """JSON of a position."""
    return orjson.dumps({"inputs": position.inputs, "config": position.config, "cycle": position.cycle})


def decode_position(value: bytes) -> Position:
    """Inverse of `encode_position`."""
    fields = orjson.loads(value)
    return Position(fields["inputs"], fields["config"], fields["cycle"])


def verdict_record_key(origin: str) -> bytes:
    """`verdict/<topic>/<partition>/<offset>` of the request that was judged."""
    return VERDICT + origin.encode()


def encode_verdict(*, etag: str | None, problems: list[dict[str, str]], at_ms: int) -> bytes:
    """JSON of a verdict: accepted (with the new ETag, if the job has one) or refused (with problems)."""
    verdict = "refused" if problems else "accepted"
    return orjson.dumps({"verdict": verdict, "at": at_ms, **_present(etag=etag, problems=problems or None)})


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
