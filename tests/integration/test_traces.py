"""One trace from a producer to its target, through real processes: spans arrive at a local OTLP endpoint."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from tests.conftest import RunningKafka
from tests.integration.installation import eventually
from tests.integration.worker_scene import Scene

KINDS = {Span.SPAN_KIND_PRODUCER: "producer", Span.SPAN_KIND_CONSUMER: "consumer", Span.SPAN_KIND_CLIENT: "client"}


class Collector:
    """An OTLP endpoint and a target: what was exported, by service, and what the target was asked."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        self.asked: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                if self.path == "/v1/traces":
                    collector.take(body)
                else:
                    collector.asked.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is logged."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {each.key: each.value.string_value for each in group.resource.attributes}
            self.spans += [(names["service.name"], span) for scope in group.scope_spans for span in scope.spans]

    def has_spans(self, run_id: str, count: int) -> bool:
        """Whether so many spans of a run have come."""
        return len(self.of_run(run_id)) == count

    def of_run(self, run_id: str) -> list[tuple[str, Span]]:
        """The spans of a run, from its dispatch to its result."""
        found = [(service, span) for service, span in self.spans if _attributes(span).get("noontide.run") == run_id]
        return sorted(found, key=lambda each: (each[1].start_time_unix_nano, each[1].name != "noontide dispatch"))


def _attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    found = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_one_trace_from_the_producer_to_the_target(
    kafka: RunningKafka, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tracer = TracerProvider().get_tracer("the producer")
    with Scene.set(kafka.bootstrap, tmp_path_factory.mktemp("traces")) as scene:
        scheduler = scene.scheduler().start()
        scene.worker("worker", "--allow-loopback")
        scheduler.until_owner()
        runs, parents = {}, {}
        for job, target in (("asked", f"{collector.url}/orders"), ("handled", "handler:act")):
            with tracer.start_as_current_span("place an order") as span:
                carrier: dict[str, str] = {}
                TraceContextTextMapPropagator().inject(carrier)
                parents[job] = span.get_span_context()
                headers = [("traceparent", carrier["traceparent"].encode())]
                runs[job] = scene.define(job, headers=headers, target=target, payload={})
        for job, run_id in runs.items():
            assert scene.closed(run_id)["state"] == "succeeded"
            eventually(partial(collector.has_spans, run_id, 3), what=f"three spans of {job}")
        results = {
            str(each.document["job_id"]): (each.headers["traceparent"] or b"").decode()
            for each in scene.installation.log("results").look()
        }
    for job, run_id in runs.items():
        (scheduled, dispatch), (worked, attempt), (ended, result) = collector.of_run(run_id)
        assert (scheduled, worked, ended) == ("noontide-scheduler", "noontide-worker", "noontide-scheduler")
        assert {span.trace_id.hex() for span in (dispatch, attempt, result)} == {f"{parents[job].trace_id:032x}"}
        assert dispatch.parent_span_id.hex() == f"{parents[job].span_id:016x}"
        assert attempt.parent_span_id == dispatch.span_id
        assert result.parent_span_id == attempt.span_id
        kinds = ("producer", "client" if job == "asked" else "consumer", "producer")
        assert tuple(KINDS[span.kind] for span in (dispatch, attempt, result)) == kinds
        assert results[job] == f"00-{result.trace_id.hex()}-{result.span_id.hex()}-01"
        if job == "asked":
            (request,) = collector.asked
            assert request["traceparent"] == f"00-{attempt.trace_id.hex()}-{attempt.span_id.hex()}-01"
