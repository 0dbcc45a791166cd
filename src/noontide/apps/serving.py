"""Serving an ASGI application, here or on a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import uvicorn

from noontide.apps.impatient import ImpatientProtocol

START_POLL_S = 0.01
DRAIN_S = 10
BACKLOG = 4_096

T = TypeVar("T")


@asynccontextmanager
async def serving(
    app: Any, host: str, port: int, *, drain_s: int = DRAIN_S, tls: tuple[Path, Path] | None = None
) -> AsyncIterator[str]:
    """Serve an ASGI application; gives its URL once it answers. Raises OSError when the address cannot be had.

    tls: PEM files of certificate and private key. At the end requests under way are waited for, at most `drain_s`.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=tls and tls[0],
        ssl_keyfile=tls and tls[1],
        http=ImpatientProtocol,
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=drain_s,
        backlog=BACKLOG,
    )
    server = _Server(config)
    task = asyncio.create_task(_serve(server, host, port), name=f"serve-{port}")
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(START_POLL_S)
        bound = server.servers[0].sockets[0].getsockname()
        yield f"{'http' if tls is None else 'https'}://{host}:{bound[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait({task})


def free_port(wanted: int, host: str = "127.0.0.1") -> int:
    """A port if nobody listens on it, else 0 (any)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError:
            return 0
    return wanted


async def _serve(server: uvicorn.Server, host: str, port: int) -> None:
    try:
        await server.serve()
    except SystemExit:  # how it says that it cannot have the address
        raise OSError(f"cannot listen on {host}:{port}") from None


class _Server(uvicorn.Server):
    """A server that leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """No signals are taken."""
        yield


class LoopThread(Generic[T]):
    """An asynchronous context on a thread and an event loop of its own, so that nothing in it slows this loop down."""

    def __init__(self, name: str, opened: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._opened = opened
        self._value: Future[T] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    @property
    def value(self) -> T:
        """What the context gave."""
        return self._value.result(0)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have a function called on the thread's loop; nothing happens when that has ended."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(function, *arguments)

    async def __aenter__(self) -> Self:
        """Start it; raises what the context raises."""
        self._thread.start()
        await asyncio.wrap_future(self._value)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the context and end the thread."""
        self.call(self._stop.set)
        await asyncio.wrap_future(self._ended)

    def _run(self) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._main())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
            if not self._value.done():
                self._value.set_exception(error)
        finally:
            self._ended.set_result(None)

    async def _main(self) -> None:
        async with self._opened() as value:
            self._value.set_result(value)
            await self._stop.wait()
