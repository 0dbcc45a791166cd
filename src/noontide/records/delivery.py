"""The record that a topic target receives: the user's payload and key, and headers that say which run this is.

Headers are CloudEvents attributes in binary mode (`ce_*`) and our own (`noontide-*`); consumers may use either.
"""

from __future__ import annotations

from collections.abc import Callable

from noontide.core.instants import instant_bytes
from noontide.core.tracing import dispatch_context

RECORD_OVERHEAD_BYTES = 1_300
"""Bound of what headers and framing add to key and payload, for size checks (ids of 200 bytes stand four times)."""

_TRACE_AT = 4
_FIXED = [("ce_specversion", b"1.0"), ("ce_type", b"noontide.run"), ("content-type", b"application/json")]


def delivery_headers(
    *, run_id: bytes, job_id: bytes, due_ms: int, attempt: int, trace: str = ""
) -> list[tuple[str, bytes]]:
    """Headers of one delivery. The run id is the idempotency key; `due` is the nominal time (RFC 3339).

    trace: see `core.run.Run`.
    """
    headers = headers_of(due_ms=due_ms, attempt=attempt)(run_id, job_id)
    if trace:
        headers[_TRACE_AT] = (headers[_TRACE_AT][0], traceparent(run_id, trace))
    return headers


def headers_of(*, due_ms: int, attempt: int) -> Callable[[bytes, bytes], list[tuple[str, bytes]]]:
    """As `delivery_headers`, for many runs of one instant: a function of run id and job id."""
    due = ("noontide-due", instant_bytes(due_ms))
    fixed = (("ce_time", instant_bytes(due_ms)), *_FIXED)
    attempts = ("noontide-attempt", b"%d" % attempt)

    def headers(run_id: bytes, job_id: bytes) -> list[tuple[str, bytes]]:
        return [
            ("noontide-run", run_id),
            ("noontide-job", job_id),
            due,
            attempts,
            ("traceparent", traceparent(run_id)),  # at _TRACE_AT
            ("ce_id", run_id),
            ("ce_source", b"/noontide/jobs/" + job_id),
            *fixed,
        ]

    return headers


def traceparent(run_id: bytes, trace: str = "", attempt: int = 1) -> bytes:
    """A W3C trace context whose ids follow from the run id, so that a replayed cycle writes the same bytes."""
    return dispatch_context(run_id, trace, attempt).encode()
