"""Spans over OTLP (HTTP), in batches by a thread of OpenTelemetry's own. Off unless its variables ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from noontide.core.errors import NoontideError
from noontide.core.tracing import SpanKind, TraceSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CLOSE_MS: Final = 5_000
_ids: ContextVar[tuple[int, int]] = ContextVar("ids of the span that is made")


class TracingMissing(NoontideError):
    """Traces are wanted, and the packages are not installed."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables name a collector and do not switch it off."""
    return any(environment.get(name) for name in ENDPOINTS) and environment.get("OTEL_SDK_DISABLED") != "true"


@contextmanager
def open_spans(environment: Mapping[str, str], *, service: str) -> Iterator[Spans | None]:
    """What takes finished spans, while the context is open; None when nobody wants traces.

    service: OpenTelemetry's service.name, unless OTEL_SERVICE_NAME says another. Raises TracingMissing.
    """
    if not is_wanted(environment):
        yield None
        return
    try:
        spans = Spans(_provider(environment.get("OTEL_SERVICE_NAME") or service))
    except ImportError as error:
        raise TracingMissing(f"traces need `pip install 'noontide[tracing]'` ({error})") from error
    try:
        yield spans
    finally:
        spans.close()


class Spans:
    """Takes finished spans, from any thread. Never blocks: what the collector does not take is dropped in the end."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._provider = provider
        self._tracer = provider.get_tracer("noontide", version("noontide"))
        self._kinds = {
            SpanKind.PRODUCER: trace.SpanKind.PRODUCER,
            SpanKind.CONSUMER: trace.SpanKind.CONSUMER,
            SpanKind.CLIENT: trace.SpanKind.CLIENT,
        }

    def take(self, finished: Iterable[TraceSpan]) -> None:
        """Send spans, some time soon."""
        trace = self._trace
        for each in finished:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(self._context(each.trace, each.parent)))
            token = _ids.set((int(each.trace, 16), int(each.span, 16)))
            span = self._tracer.start_span(
                each.name,
                context=parent if each.parent else None,
                kind=self._kinds[each.kind],
                attributes=dict(each.attributes),
                start_time=each.start_ms * 1_000_000,
            )
            _ids.reset(token)
            if each.error is not None:
                span.set_status(trace.StatusCode.ERROR, each.error)
            span.end(each.end_ms * 1_000_000)

    def within(self, trace: str, span: str) -> AbstractContextManager[object]:
        """While it is open, spans that others begin in this thread or task are children of a span of ours."""
        return self._trace.use_span(self._trace.NonRecordingSpan(self._context(trace, span)))

    def close(self) -> None:
        """Send what is left, within CLOSE_MS."""
        self._provider.force_flush(CLOSE_MS)
        self._provider.shutdown()

    def _context(self, trace: str, span: str) -> SpanContext:
        flags = self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED)
        return self._trace.SpanContext(int(trace, 16), int(span or "0", 16), is_remote=True, trace_flags=flags)


def _provider(service: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class GivenIds(IdGenerator):
        """The ids follow from the run."""

        def generate_trace_id(self) -> int:
            return _ids.get()[0]

        def generate_span_id(self) -> int:
            return _ids.get()[1]

    resource = Resource.create({"service.name": service, "service.version": version("noontide")})
    provider = TracerProvider(resource=resource, id_generator=GivenIds())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
