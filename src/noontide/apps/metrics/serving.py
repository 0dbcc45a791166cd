"""The port of the metrics: plain HTTP in a thread of its own, `/metrics` for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from noontide.apps.metrics.families import gauges
from noontide.core.errors import NoontideError

log = logging.getLogger("noontide.metrics")


class MetricsError(NoontideError):
    """The port cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """Where metrics are served. They hold no payloads, but names of lanes and tenants: keep them inside."""

    port: int
    host: str = "127.0.0.1"


class _Info(Collector):
    def __init__(self, role: str) -> None:
        self._role = role

    def collect(self) -> Iterator[Metric]:
        labels = (version("noontide"), self._role)
        yield gauges("noontide_info", "Always 1; the version is a label.", ["version", "role"], {labels: 1})


@contextmanager
def serve_metrics(options: MetricsOptions | None, *collectors: Collector, role: str) -> Iterator[int]:
    """Serve while the context is open; yields the port, 0 when there is none. Raises MetricsError."""
    if options is None:
        yield 0
        return
    registry = CollectorRegistry()
    for each in (_Info(role), *collectors):
        registry.register(each)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    try:
        server, thread = start_http_server(options.port, addr=options.host, registry=registry)
    except OSError as error:
        raise MetricsError(f"metrics: cannot listen on {options.host}:{options.port}: {error.strerror}") from error
    log.info("metrics_served address=%s:%d", options.host, server.server_port)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
