"""A span for each attempt, for workers whose operator wants traces."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from noontide.core.tracing import SpanKind, TraceSpan, attempt_context, dispatch_context, is_sampled, parts_of
from noontide.records.runs import Invitation
from noontide.records.worker_events import End, Outcome


class TakesSpans(Protocol):
    """Where spans go; see `adapters.telemetry`."""

    def take(self, finished: list[TraceSpan]) -> None:
        """Send spans, some time soon."""

    def within(self, trace: str, span: str) -> AbstractContextManager[object]:
        """While it is open, spans of the handler are children of ours."""


class AttemptTracing:
    """Makes the spans. now_ms: the date."""

    def __init__(self, spans: TakesSpans) -> None:
        self._spans = spans

    def within(self, invitation: Invitation, token: int) -> AbstractContextManager[object]:
        """Around what a handler does."""
        return self._spans.within(*parts_of(_context(invitation, token)))

    def ended(self, invitation: Invitation, token: int, end: End, *, start_ms: int, end_ms: int) -> None:
        """An attempt is over."""
        context = _context(invitation, token)
        if is_sampled(context):
            self._spans.take([attempt_span(invitation, token, end, start_ms=start_ms, end_ms=end_ms)])


def attempt_span(invitation: Invitation, token: int, end: End, *, start_ms: int, end_ms: int) -> TraceSpan:
    """The span of an attempt; for an HTTP target it is that of the request."""
    trace, span = parts_of(_context(invitation, token))
    dispatch = dispatch_context(invitation.run_id.encode(), invitation.traceparent, invitation.attempt)
    is_http = "http" in invitation.target
    succeeded = end.outcome is Outcome.SUCCEEDED
    attributes: dict[str, str | int] = {
        "noontide.run": invitation.run_id,
        "noontide.job": invitation.job_id,
        "noontide.tenant": invitation.tenant,
        "noontide.attempt": invitation.attempt,
        "noontide.token": token,
        "noontide.outcome": end.outcome.value,
    }
    if end.status:
        attributes["http.response.status_code"] = end.status
    return TraceSpan(
        name="noontide request" if is_http else f"noontide handler {invitation.target.get('handler')}",
        kind=SpanKind.CLIENT if is_http else SpanKind.CONSUMER,
        trace=trace,
        span=span,
        parent=parts_of(dispatch)[1],
        start_ms=start_ms,
        end_ms=end_ms,
        attributes=attributes,
        error=None if succeeded else end.error or end.outcome.value,
    )


def _context(invitation: Invitation, token: int) -> str:
    return attempt_context(invitation.run_id.encode(), token, invitation.traceparent)
