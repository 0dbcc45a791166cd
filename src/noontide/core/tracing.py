"""Traces of runs: ids that follow from the run, so that whoever computes them says the same, also after a replay.

A run whose request carried a W3C trace context goes on in that trace; any other is a trace of its own.

    producer ──> dispatch (owner) ──> attempt (worker) ──> what the handler or target does
                      └───────────────────┴──> result (owner)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

_CONTEXT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = 1


class SpanKind(StrEnum):
    """The kinds of OpenTelemetry that occur here."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """One finished span. parent: "" = none; ids are hexadecimal, times ms since the epoch. error: None = none."""

    name: str
    kind: SpanKind
    trace: str
    span: str
    parent: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    error: str | None = None


def parse_traceparent(text: str | None) -> str:
    """A trace context (W3C Trace Context, version 00) as it is kept; "" for none, or one that cannot be read."""
    found = _CONTEXT.fullmatch(text or "")
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return ""
    return f"00-{found[1]}-{found[2]}-{int(found[3], 16) & _SAMPLED:02x}"


def dispatch_context(run_id: bytes, given: str = "", attempt: int = 1) -> str:
    """The trace context that goes out with a run. given: that of its request, as `parse_traceparent` keeps it.

    A run that is a trace of its own has one for all its attempts.
    """
    own = blake2b(run_id, digest_size=24).digest().hex("-", -16)
    if not given:
        return f"00-{own}-01"
    span = own[33:] if attempt <= 1 else _span(run_id, b"dispatch", attempt)
    return f"00-{given[3:35]}-{span}-{given[-2:]}"


def attempt_context(run_id: bytes, token: int, given: str = "") -> str:
    """The trace context of an attempt: of what a handler does, and of the request that a target gets."""
    return _child(run_id, _span(run_id, b"attempt", token), given)


def result_context(run_id: bytes, token: int, given: str = "") -> str:
    """The trace context that goes out with a result."""
    return _child(run_id, _span(run_id, b"result", token), given)


def dispatch_span(run_id: str, target: str, start_ms: int, end_ms: int, *, trace: str, attempt: int = 1) -> TraceSpan:
    """From when a run may start to its way out. trace: of its request."""
    own, span = parts_of(dispatch_context(run_id.encode(), trace, attempt))
    return TraceSpan(
        name="noontide dispatch", kind=SpanKind.PRODUCER, trace=own, span=span, parent=parts_of(trace)[1],
        start_ms=min(start_ms, end_ms), end_ms=end_ms,
        attributes={"noontide.run": run_id, "noontide.target": target, "noontide.attempt": attempt},
    )  # fmt: skip


def result_span(run_id: str, state: str, at_ms: int, *, token: int, trace: str) -> TraceSpan:
    """The end of a run is written. trace: of its request."""
    key = run_id.encode()
    own, span = parts_of(result_context(key, token, trace))
    parent = attempt_context(key, token, trace) if token else dispatch_context(key, trace)
    return TraceSpan(
        name="noontide result", kind=SpanKind.PRODUCER, trace=own, span=span, parent=parts_of(parent)[1],
        start_ms=at_ms, end_ms=at_ms, attributes={"noontide.run": run_id, "noontide.state": state},
    )  # fmt: skip


def parts_of(context: str) -> tuple[str, str]:
    """Trace and span of a context."""
    return context[3:35], context[36:52]


def is_sampled(context: str) -> bool:
    """Whether its spans are wanted."""
    return context.endswith("1")


def _child(run_id: bytes, span: str, given: str) -> str:
    context = dispatch_context(run_id, given)
    return f"{context[:36]}{span}{context[52:]}"


def _span(run_id: bytes, what: bytes, number: int) -> str:
    return blake2b(b"%b#%b#%d" % (run_id, what, number), digest_size=8).hexdigest()
