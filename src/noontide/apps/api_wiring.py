"""What an API process is made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fastapi import FastAPI

from noontide.actors.config_directory import ConfigDirectory
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.foreign_topics import partition_counts
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.request_line import RequestLine
from noontide.adapters.kafka.result_reader import ResultReader
from noontide.adapters.kafka.worker_bus import WorkerBus, inbox_of
from noontide.adapters.system_clock import boot_ms, wall_now_ms
from noontide.apps.access.options import AccessOptions, browser_login, check_exposure, open_access
from noontide.apps.agents_board import AgentsBoard
from noontide.apps.api.app import create_app
from noontide.apps.api.archive import Archive
from noontide.apps.api.leasing import Counter, LeaseLine, Leasing
from noontide.apps.api.owners import Directory, Owners
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.apps.api.verdicts import Verdicts
from noontide.apps.api.writing import Writer
from noontide.apps.dashboard.pages import dashboard_router
from noontide.apps.demand import DemandMetrics
from noontide.apps.memory import calm_garbage_collection
from noontide.apps.metrics.api import MeasuredApp
from noontide.apps.metrics.serving import MetricsOptions, serve_metrics
from noontide.apps.patience import patiently
from noontide.apps.serving import serving
from noontide.apps.worker_wiring import WorkerOptions, new_worker_id, open_source
from noontide.ports.record_log import TopicPartition
from noontide.records.topics import Layout
from noontide.worker.app import App
from noontide.worker.holding import DeskSettings
from noontide.worker.runtime import Runtime, WorkerPorts, WorkerSettings

LEASE_DRAIN_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """What an API process is started with. port: 0 takes any. access: off by default, which only this machine may be.

    secret: shared with the schedulers. history_url: of the database with older executions, None when there is none;
    needs `noontide[history]`. certificate, private_key: PEM files; with them the API speaks TLS.
    """

    connection: KafkaConnection
    layout: Layout
    secret: str
    host: str = "127.0.0.1"
    port: int = 8480
    settings: ApiSettings = field(default_factory=ApiSettings)
    access: AccessOptions = field(default_factory=AccessOptions)
    history_url: str | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    metrics: MetricsOptions | None = None


async def run_api(options: ApiOptions, stop: asyncio.Event, *, on_url: Callable[[str], None]) -> None:
    """Serve until `stop` is set, then finish what is under way. `on_url` is told the address once it answers."""
    check_exposure(options.host, options.access)
    async with open_api(options) as url:
        calm_garbage_collection()
        on_url(url)
        await stop.wait()


@asynccontextmanager
async def open_api(options: ApiOptions) -> AsyncIterator[str]:
    """The API while the context is open; gives its URL."""
    tls = None
    if options.certificate is not None and options.private_key is not None:
        tls = (options.certificate, options.private_key)
    async with open_app(options) as app:
        measured = MeasuredApp(app)
        demand = DemandMetrics(lambda: app.state.services, options.settings)
        asking = asyncio.create_task(demand.run(), name="demand") if options.metrics is not None else None
        try:
            with serve_metrics(options.metrics, measured, demand, role="api"):
                async with serving(measured, options.host, options.port, tls=tls) as url:
                    try:
                        yield url
                    finally:
                        app.state.looks.close()  # streams are never done by themselves, and the server waits for them
        finally:
            if asking is not None:
                await _ended(asking)


@asynccontextmanager
async def open_app(options: ApiOptions) -> AsyncIterator[FastAPI]:
    """The application with everything it needs, closed at the end."""
    async with AsyncExitStack() as stack:
        feed = KafkaFeed(options.connection, loop=asyncio.get_running_loop())
        stack.push_async_callback(feed.close)
        replay = KafkaReplay(options.connection)
        at = TopicPartition(options.layout.name("config"), 0)
        directory = ConfigDirectory(at, feed=feed, replay=replay, on_change=lambda _view: None)
        await patiently(directory.start)
        owners_directory = Directory(options.layout, feed=feed, replay=replay)
        await patiently(owners_directory.start)
        board = AgentsBoard(options.layout, feed=feed, replay=replay, now_ms=wall_now_ms)
        await patiently(board.start)
        looking = asyncio.create_task(board.run(), name="agents-board")
        stack.push_async_callback(_ended, looking)
        owners = Owners(options.layout, owners_directory, options.settings, secret=options.secret)
        stack.callback(owners.close)
        verdicts = Verdicts(owners, secret=options.secret)
        following = asyncio.create_task(verdicts.run(), name="verdicts")
        stack.push_async_callback(_ended, following)
        limits = options.settings
        line = RequestLine(options.connection, gather_ms=limits.write_gather_ms, timeout_s=limits.send_wait_ms / 1000)
        stack.push_async_callback(line.close)
        leasing = Leasing(partial(_lease_line, options), limits)
        tending = asyncio.create_task(leasing.run(), name="leasing")
        stack.push_async_callback(_ended, tending)
        login = browser_login(options.access)
        if login is not None:
            stack.push_async_callback(login.close)
        services = Services(
            layout=options.layout,
            config=lambda: directory.view,
            owners=owners,
            topic_exists=lambda topic: topic in partition_counts(options.connection, [topic]),
            result_of=ResultReader(options.connection, options.layout).result_of,
            leasing=leasing,
            agents=board,
            login=login,
            archive=await _archive(options, stack),
            writer=Writer(directory, options.layout, line, verdicts, options.settings, secret=options.secret),
        )
        access = open_access(options.access, services.config, options.settings)
        authenticate = await stack.enter_async_context(access)
        yield create_app(services, settings=options.settings, authenticate=authenticate, routers=(dashboard_router(),))


async def _archive(options: ApiOptions, stack: AsyncExitStack) -> Archive | None:
    """Where older executions are read; a database that is away now may come later."""
    if options.history_url is None:
        return None
    from noontide.adapters.postgres.history import PostgresHistory

    wait_s = options.settings.history_wait_ms / 1000
    history = PostgresHistory(options.history_url, connect_timeout_s=wait_s)
    await stack.enter_async_context(history)
    return Archive(history, options.settings)


async def _lease_line(options: ApiOptions, lane: str, handlers: frozenset[str]) -> LeaseLine:
    """A worker of the lane whose attempts are carried out by whoever leases them. Raises Doubt without brokers."""
    desk = DeskSettings(concurrency=0, prefetch=0, ahead_max=0)
    worker = WorkerOptions(connection=options.connection, layout=options.layout, lanes=(lane,))
    source = await asyncio.to_thread(open_source, worker, lane)
    worker_id, counter = new_worker_id(), Counter(handlers)
    line = WorkerBus(options.connection, options.layout, worker_id=worker_id)
    ports = WorkerPorts(sources={lane: source}, line=line, boot_ms=boot_ms, stage=counter)
    settings = WorkerSettings(desk=desk, drain_ms=LEASE_DRAIN_MS)
    runtime = Runtime(App(), ports, settings, worker_id=worker_id, inbox=inbox_of(worker_id))
    return LeaseLine(lane, worker_id, runtime, counter)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
