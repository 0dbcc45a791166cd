"""What an API process is made of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI

from noontide.actors.config_directory import ConfigDirectory
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.replay import KafkaReplay
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
    """What an API process is started with. port: 0 takes any."""

    connection: KafkaConnection
    layout: Layout
    host: str = "127.0.0.1"
    port: int = 8480
    settings: ApiSettings = field(default_factory=ApiSettings)


async def run_api(options: ApiOptions, stop: asyncio.Event, *, on_url: Callable[[str], None]) -> None:
    """Serve until `stop` is set, then finish what is under way. `on_url` is told the address once it answers."""
    async with open_app(options) as app, serving(app, options.host, options.port) as url:
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
        yield create_app(services, settings=options.settings)


@asynccontextmanager
async def serving(app: FastAPI, host: str, port: int) -> AsyncIterator[str]:
    """Serve an application; gives its URL once it answers. Raises OSError when the address cannot be had."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
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
                raise OSError(f"the API cannot listen on {host}:{port}")
            await asyncio.sleep(START_POLL_S)
        bound = server.servers[0].sockets[0].getsockname()
        yield f"http://{host}:{bound[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait({task})


class _Server(uvicorn.Server):
    """A server that leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """No signals are taken."""
        yield
