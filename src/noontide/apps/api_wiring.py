"""What an API process is made of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from noontide.actors.config_directory import ConfigDirectory
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.apps.access.options import AccessOptions, check_exposure, open_access
from noontide.apps.api.app import create_app
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.ports.record_log import TopicPartition
from noontide.records.topics import Layout

log = logging.getLogger("noontide.api")
START_POLL_S = 0.01
DRAIN_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """What an API process is started with. port: 0 takes any. access: off by default, which only this machine may be.

    certificate, private_key: PEM files; with them the API speaks TLS.
    """

    connection: KafkaConnection
    layout: Layout
    host: str = "127.0.0.1"
    port: int = 8480
    settings: ApiSettings = field(default_factory=ApiSettings)
    access: AccessOptions = field(default_factory=AccessOptions)
    certificate: Path | None = None
    private_key: Path | None = None


async def run_api(options: ApiOptions, stop: asyncio.Event, *, on_url: Callable[[str], None]) -> None:
    """Serve until `stop` is set, then finish what is under way. `on_url` is told the address once it answers."""
    check_exposure(options.host, options.access)
    async with open_app(options) as app, serving(app, options) as url:
        on_url(url)
        await stop.wait()


@asynccontextmanager
async def open_app(options: ApiOptions) -> AsyncIterator[FastAPI]:
    """The application with everything it needs, closed at the end."""
    async with AsyncExitStack() as stack:
        feed = KafkaFeed(options.connection, loop=asyncio.get_running_loop())
        stack.push_async_callback(feed.close)
        replay = KafkaReplay(options.connection)
        at = TopicPartition(options.layout.name("config"), 0)
        directory = ConfigDirectory(at, feed=feed, replay=replay, on_change=lambda _view: None)
        await directory.start()
        services = Services(layout=options.layout, config=lambda: directory.view)
        access = open_access(options.access, services.config, options.settings)
        yield create_app(services, settings=options.settings, authenticate=await stack.enter_async_context(access))


@asynccontextmanager
async def serving(app: FastAPI, options: ApiOptions) -> AsyncIterator[str]:
    """Serve an application; gives its URL once it answers. Raises OSError when the address cannot be had."""
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.private_key,
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
        backlog=4_096,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(), name="api-server")
    try:
        while not server.started:
            if task.done():
                await task
                raise OSError(f"the API cannot listen on {options.host}:{options.port}")
            await asyncio.sleep(START_POLL_S)
        bound = server.servers[0].sockets[0].getsockname()
        scheme = "http" if options.certificate is None else "https"
        yield f"{scheme}://{options.host}:{bound[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait({task})


class _Server(uvicorn.Server):
    """A server that leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """No signals are taken."""
        yield
