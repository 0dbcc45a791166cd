"""A server with buttons: every connection is a script, so that it can do what no decent server does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from noontide.core.policies import Guarantee
from noontide.records.runs import Invitation


@dataclass(slots=True, kw_only=True)
class Received:
    """A request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    names: list[str]
    body: bytes


@dataclass(slots=True, eq=False)
class Wire:
    """One connection, seen by a script."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    method: str = ""

    async def request(self) -> Received | None:
        """The next request, None at the end of the connection."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        first, *lines = head.strip().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        self.method, path, _ = first.split(" ")
        return Received(method=self.method, path=path, headers=headers, names=[name for name, _ in pairs], body=body)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: str = "200 OK", *, body: bytes = b"", headers: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode("latin-1")
        await self.say(head if self.method == "HEAD" else head + body)

    def reset(self) -> None:
        """Close without a word; with unread data the peer sees a reset."""
        self.writer.transport.abort()


Script = Callable[[Wire, Received], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Server:
    """`requests`: all that came; `connections`: how many were made. The script answers one request at a time."""

    port: int
    scheme: str = "http"
    requests: list[Received] = field(default_factory=list)
    connections: int = 0

    def url(self, path: str = "/hook", *, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"


@asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(0, "https" if tls else "http")
    open_connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task is not None
        open_connections.add(task)
        wire = Wire(reader, writer)
        try:
            while request := await wire.request():
                server.requests.append(request)
                await script(wire, request)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            open_connections.discard(task)
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(open_connections):
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)


def always(status: str = "200 OK", *, body: bytes = b"", headers: str = "") -> Script:
    """A script that gives the same answer to everything."""

    async def script(wire: Wire, _: Received) -> None:
        await wire.answer(status, body=body, headers=headers)

    return script


def invitation(
    url: str, *, payload: bytes = b'{"n":1}', timeout_ms: int = 5_000, attempt: int = 1, **http: object
) -> Invitation:
    """An invitation to a request."""
    return Invitation(
        run_id="nightly:20261224T180000Z",
        job_id="nightly",
        tenant="billing",
        slot=0,
        due_ms=1_798_135_200_000,
        start_ms=1_798_135_200_000,
        attempt=attempt,
        max_attempts=5,
        target={"http": {"url": url, **http}},
        payload=payload,
        timeout_ms=timeout_ms,
        lease_ms=30_000,
        heartbeat_ms=10_000,
        guarantee=Guarantee.AT_LEAST_ONCE,
    )
