"""Idempotency keys: the same request again changes nothing and gets the same answer; another one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

import orjson

from noontide.actors.effects import Effects
from noontide.actors.request_input import Input
from noontide.core.errors import Conflict
from noontide.records import rows, state
from noontide.records.requests import Define, Request


class Accepted(NamedTuple):
    """What an accepted request did. repeated: nothing, since it had been made before.

    backfill: from, to, runs, skipped and dry_run of one.
    """

    etag: str | None = None
    run_id: str | None = None
    repeated: bool = False
    backfill: dict[str, object] | None = None


def wanted_guard(partition: int, item: Input) -> Iterator[bytes]:
    """The row that says what the request's idempotency key was used for."""
    key = item.idempotency_key
    if key is not None and item.key is not None:
        yield _row_key(partition, state.guard_record_key(item.key, key))


def made_before(request: Request, item: Input, effects: Effects, *, partition: int) -> Accepted | None:
    """The answer to the same request when it was made before. Raises Conflict when the key was for another one."""
    key = request.terms.idempotency_key
    if key is None or item.key is None:
        return None
    value = effects.find(_row_key(partition, state.guard_record_key(item.key, key)))
    if value is None:
        return None
    guard = state.decode_guard(value)
    if guard.body != _fingerprint(request, item):
        raise Conflict.of("/idempotency_key", "was used for another request about this job")
    return Accepted(guard.etag, guard.run_id, repeated=True, backfill=guard.backfill)


def remember(
    request: Request, accepted: Accepted, item: Input, effects: Effects, *, partition: int, retention_ms: int
) -> None:
    """Keep the answer under the request's idempotency key, if it has one."""
    key = item.idempotency_key
    if key is None or item.key is None:
        return
    guard = state.Guard(_fingerprint(request, item), accepted.etag, accepted.run_id, accepted.backfill)
    value = state.encode_guard(guard, at_ms=item.appended_ms)
    record_key = state.guard_record_key(item.key, key)
    effects.put_guard(partition, record_key, value, forget_ms=item.appended_ms + retention_ms)


def _row_key(partition: int, record_key: bytes) -> bytes:
    return rows.guard_key(partition, record_key[len(state.GUARD) :])


def _fingerprint(request: Request, item: Input) -> str:
    """What makes a request the same: its kind and its value, whatever the order of its members and its white space."""
    value = request.document if isinstance(request, Define) else item.value or b"null"
    said = orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)
    return sha256(type(request).__name__.encode() + b"\n" + said).hexdigest()
