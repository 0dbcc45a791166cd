"""What a worker process is made of."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from noontide.adapters.kafka.classic_group import ClassicGroupSource
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.share_group import NoShareGroups, ShareGroupSource, prepare_share_group
from noontide.adapters.kafka.worker_bus import WorkerBus, inbox_of
from noontide.adapters.system_clock import boot_ms
from noontide.adapters.telemetry.spans import open_spans
from noontide.apps.memory import calm_garbage_collection
from noontide.apps.metrics.serving import MetricsOptions, serve_metrics
from noontide.apps.metrics.worker import WorkerMetrics
from noontide.ports.run_source import RunSource
from noontide.records.topics import Layout
from noontide.worker.app import App
from noontide.worker.runtime import Runtime, WorkerPorts, WorkerSettings
from noontide.worker.stage import HttpStage
from noontide.worker.tracing import AttemptTracing

if TYPE_CHECKING:
    from noontide.apps.worker_http import HttpOptions

log = logging.getLogger("noontide.worker")
RECORDS_MAX, RECORDS_PER_PLACE = 2_000, 5


class GroupProtocol(StrEnum):
    """How the runs of a lane are shared out among its workers."""

    AUTO = "auto"
    """A share group where the brokers have them, else a classic group."""
    SHARE = "share"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker process is started with. group: after the prefix, the same for all workers that share the runs."""

    connection: KafkaConnection
    layout: Layout
    lanes: Sequence[str] = ("default",)
    group: str = "workers"
    protocol: GroupProtocol = GroupProtocol.AUTO
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    http: HttpOptions | None = None
    metrics: MetricsOptions | None = None


def new_worker_id() -> str:
    """An id for this incarnation of the process: w- and 8 hexadecimal digits."""
    return f"w-{secrets.token_hex(4)}"


async def run_worker(app: App, options: WorkerOptions, stop: asyncio.Event) -> None:
    """Run a worker until `stop` is set and it has drained. Raises NoShareGroups when those were asked for."""
    worker_id = new_worker_id()
    names = ", ".join(sorted(app.handlers)) or "none"
    log.info("worker %s: handlers %s; HTTP %s", worker_id, names, "off" if options.http is None else "on")
    sources = {lane: await asyncio.to_thread(open_source, options, lane) for lane in options.lanes}
    line = WorkerBus(options.connection, options.layout, worker_id=worker_id)
    async with AsyncExitStack() as stack:
        http = await _open_http(options, line, stack)
        spans = stack.enter_context(open_spans(os.environ, service="noontide-worker"))
        tracing = None if spans is None else AttemptTracing(spans)
        ports = WorkerPorts(sources=sources, line=line, boot_ms=boot_ms, http=http, tracing=tracing)
        runtime = Runtime(app, ports, options.settings, worker_id=worker_id, inbox=inbox_of(worker_id))
        collector = WorkerMetrics(runtime.desk, runtime.pulse)
        stack.enter_context(serve_metrics(options.metrics, collector, role="worker"))
        calm_garbage_collection()
        await runtime.run(stop)
    log.info("worker %s has stopped", worker_id)


async def _open_http(options: WorkerOptions, line: WorkerBus, stack: AsyncExitStack) -> HttpStage | None:
    """What carries out HTTP targets; imported here, since a worker without them does not need its client."""
    if options.http is None:
        return None
    from noontide.apps.worker_http import open_http, serve_completions

    executor = await stack.enter_async_context(open_http(options.http, options.connection, options.layout))
    await stack.enter_async_context(serve_completions(options.http, line, options.layout, options.lanes))
    return executor


def open_source(options: WorkerOptions, lane: str) -> RunSource:
    """The source of a lane by the protocol asked for, or by what the brokers can do; says in the log which."""
    connection, topic = options.connection, options.layout.name("runs", lane=lane)
    group = f"{options.layout.prefix}{options.group}.{lane}"
    if options.protocol is not GroupProtocol.CLASSIC:
        try:
            prepare_share_group(connection, group)
        except NoShareGroups as reason:
            if options.protocol is GroupProtocol.SHARE:
                raise
            log.info("lane %s: no share groups here (%s)", lane, reason)
        else:
            log.info("lane %s: share group %s", lane, group)
            most = min(RECORDS_MAX, RECORDS_PER_PLACE * options.settings.desk.concurrency)
            return ShareGroupSource(connection, topic=topic, group=group, records_max=most)
    # A name of its own: a group cannot be of both kinds, and runs that two groups deliver are still granted once.
    log.info("lane %s: classic group %s.classic", lane, group)
    return ClassicGroupSource(connection, topic=topic, group=f"{group}.classic")
