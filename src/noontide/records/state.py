"""Records of the `state` topic: cursors, definitions of live runs, verdicts, positions. Keys are typed by a prefix."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import orjson

from noontide.core.cursor import Cursor, JobState

CURSOR, RUN, DEAD, VERDICT, GUARD, POSITION = (b"cursor/", b"run/", b"dead/", b"verdict/", b"guard/", b"__pos/")
LIMITER, PERMITS, RATE = (b"limiter/", b"permits/", b"rate/")
EDGE, AFTER, JOIN, WAVE, STREAK, BACKFILL = (b"edge/", b"after/", b"join/", b"wave/", b"streak/", b"backfill/")
EXACT, HELD = (b"exact/", b"held/")
NOTES = (LIMITER, PERMITS, RATE, EDGE, AFTER, JOIN, WAVE, STREAK, BACKFILL, EXACT, HELD)
"""Facts that a slot keeps in memory as a whole; each is a row of its own beside the record."""
TZDATA = b"__tzdata"
"""Key of the time zone release that the slot's cursors were computed with; the value is its name, such as 2026a."""


_STATES = {state: state.encode() for state in JobState}


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
    return cursor_form(cursor) % (cursor.runs, cursor.accepted_ms)


def cursor_form(cursor: Cursor) -> bytes:
    """As `encode_cursor`, with `%d` in the place of `runs` and `accepted_ms`, in which jobs of one schedule differ."""
    state, due_ms, start_ms, _, generation, last_due_ms, _, reason = cursor
    due = b"" if due_ms is None else b',"due":%d' % due_ms
    start = b"" if start_ms is None else b',"start":%d' % start_ms
    last_due = b"" if last_due_ms is None else b',"last_due":%d' % last_due_ms
    why = b"" if reason is None else b',"reason":' + orjson.dumps(reason).replace(b"%", b"%%")
    return b'{"state":"%s"%s%s,"n":%%d,"gen":%d,"accepted":%%d%s%s}' % (
        _STATES[state], due, start, generation, last_due, why,
    )  # fmt: skip


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


def limiter_record_key(limiter: str, tenant: str, slot: int) -> bytes:
    """`limiter/<slot>/<tenant>/<limiter>`: what a limiter has given to one slot for one tenant."""
    return b"%s%d/%s/%s" % (LIMITER, slot, tenant.encode(), limiter.encode())


def limiter_key_parts(key: bytes) -> tuple[str, str, int]:
    """(limiter, tenant, slot): inverse of `limiter_record_key`."""
    slot, tenant, limiter = key[len(LIMITER) :].decode().split("/", 2)
    return limiter, tenant, int(slot)


def permits_record_key(limiter: str, tenant: str) -> bytes:
    """`permits/<tenant>/<limiter>`: what a slot has of a limiter for one tenant."""
    return b"%s%s/%s" % (PERMITS, tenant.encode(), limiter.encode())


def permits_key_parts(key: bytes) -> tuple[str, str]:
    """(limiter, tenant): inverse of `permits_record_key`."""
    tenant, limiter = key[len(PERMITS) :].decode().split("/", 1)
    return limiter, tenant


def rate_record_key(limiter: str) -> bytes:
    """`rate/<limiter>`: how far a limiter has used its starts per second."""
    return RATE + limiter.encode()


def encode_counts(**counts: int) -> bytes | None:
    """JSON of counts; None, which removes the record, when all are 0."""
    return orjson.dumps(counts) if any(counts.values()) else None


def decode_counts(value: bytes, *names: str) -> tuple[int, ...]:
    """The counts of these names."""
    fields = orjson.loads(value)
    return tuple(fields[name] for name in names)


def verdict_record_key(origin: str) -> bytes:
    """`verdict/<topic>/<partition>/<offset>` of the request that was judged."""
    return VERDICT + origin.encode()


def encode_verdict(*, etag: str | None, problems: list[dict[str, str]], at_ms: int, **more: object) -> bytes:
    """JSON of a verdict: accepted (with the new ETag, if the job has one) or refused (with problems).

    more: run_id, repeated, refusal, backfill; None is left out.
    """
    verdict = "refused" if problems else "accepted"
    return orjson.dumps({"verdict": verdict, "at": at_ms, **_present(etag=etag, problems=problems or None, **more)})


class Guard(NamedTuple):
    """What an idempotency key was used for. body: SHA-256 of kind and value, hexadecimal."""

    body: str
    etag: str | None = None
    run_id: str | None = None
    backfill: dict[str, object] | None = None


def guard_record_key(job_id: bytes, idempotency_key: str) -> bytes:
    """`guard/<job id>/<hash of the key>`."""
    return GUARD + job_id + b"/" + sha256(idempotency_key.encode()).hexdigest()[:32].encode()


def guarded_job_id(record_key: bytes) -> bytes:
    """The job id in a guard's key."""
    return record_key[len(GUARD) :].rpartition(b"/")[0]


def encode_guard(guard: Guard, *, at_ms: int) -> bytes:
    """JSON of a guard."""
    return orjson.dumps({**_present(**guard._asdict()), "at": at_ms})


def decode_guard(value: bytes) -> Guard:
    """Inverse of `encode_guard`."""
    fields = orjson.loads(value)
    return Guard(fields["body"], fields.get("etag"), fields.get("run_id"), fields.get("backfill"))


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
