"""Connections to targets: kept per scheme, host and port, bounded, and never used for a second try.

httpcore speaks HTTP on one connection; which one a request gets is decided here, in constant time however many there
are (its own pool looks at every pair of idle connections for every request). A request is sent once: what fails on a
connection, new or kept, is the end of the attempt.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec

import httpcore
import httpx

from noontide.adapters.http.network import GuardedNetwork
from noontide.adapters.http.settings import HttpSettings

Origin = tuple[bytes, bytes, int]
STREAMS_MAX = 100
"""Requests under way on one connection of HTTP/2."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request whose response has begun. `ended`: set by whoever has read the body to its end."""

    response: httpcore.Response
    ended: bool = False


@dataclass(slots=True, eq=False)
class _Kept:
    """A connection. users: requests under way on it; stream: its socket, once known; shared: it speaks HTTP/2."""

    connection: httpcore.AsyncHTTPConnection
    users: int = 0
    shared: bool = False
    retired: bool = False
    stream: httpcore.AsyncNetworkStream | None = None

    def has_room(self) -> bool:
        if self.retired or self.users >= STREAMS_MAX or not self.connection.is_available():
            return False
        return self.users > 0 or not self.gone()

    def gone(self) -> bool:
        """Too old, or the server has closed it, or said something that nobody asked for."""
        said = self.stream is not None and bool(self.stream.get_extra_info("is_readable"))
        return said or self.connection.is_closed() or self.connection.has_expired()


@dataclass(slots=True, eq=False)
class _Host:
    permits: asyncio.Semaphore
    requests: int = 0
    idle: deque[_Kept] = field(default_factory=deque)  # HTTP/1.1, the latest used last
    shared: list[_Kept] = field(default_factory=list)  # HTTP/2


class Connections:
    """All connections of an executor. Counters: `requests`, `network.connections_opened`, `in_flight`."""

    def __init__(self, settings: HttpSettings, network: GuardedNetwork) -> None:
        self._settings = settings
        self._tls = tls_context(settings)
        self._http2 = settings.http2 and find_spec("h2") is not None
        self._permits = asyncio.Semaphore(settings.connections_max)
        self._hosts: dict[Origin, _Host] = {}
        self._idle = 0
        self._swept_s = 0.0
        self.network = network
        self.requests = 0
        self.in_flight = 0

    @asynccontextmanager
    async def exchange(self, request: httpcore.Request) -> AsyncIterator[Exchange]:
        """Send a request and have its response until the block is left. Raises what httpcore raises, and Refused."""
        origin = (request.url.scheme, request.url.host, request.url.origin.port)
        host = self._hosts.get(origin) or self._hosts.setdefault(
            origin, _Host(asyncio.Semaphore(self._settings.connections_per_host_max))
        )
        host.requests += 1
        try:
            async with host.permits, self._permits:
                self.in_flight += 1
                try:
                    async with self._sent(request, host) as exchange:
                        yield exchange
                finally:
                    self.in_flight -= 1
        finally:
            host.requests -= 1
            await self._sweep()

    async def aclose(self) -> None:
        """Close what is idle; requests under way must have ended."""
        for host in self._hosts.values():
            for kept in (*host.idle, *host.shared):
                await kept.connection.aclose()
        self._hosts.clear()
        self._idle = 0

    @asynccontextmanager
    async def _sent(self, request: httpcore.Request, host: _Host) -> AsyncIterator[Exchange]:
        exchange: Exchange | None = None
        kept = await self._take(request, host)
        try:
            self.requests += 1
            exchange = await self._begin(request, kept)
            if kept.shared and kept not in host.shared:
                host.shared.append(kept)
            try:
                yield exchange
            finally:
                await exchange.response.aclose()
        finally:
            await self._give_back(kept, host, reusable=exchange is not None and exchange.ended)

    async def _begin(self, request: httpcore.Request, kept: _Kept) -> Exchange:
        response = await kept.connection.handle_async_request(request)
        kept.stream = response.extensions.get("network_stream")
        kept.shared = response.extensions.get("http_version") == b"HTTP/2"
        return Exchange(response)

    async def _take(self, request: httpcore.Request, host: _Host) -> _Kept:
        kept = next((each for each in host.shared if each.has_room()), None)
        while kept is None and host.idle:
            candidate = host.idle.pop()
            self._idle -= 1
            if candidate.gone():
                await candidate.connection.aclose()
            else:
                kept = candidate
        kept = kept or _Kept(self._connection(request))
        kept.users += 1
        return kept

    def _connection(self, request: httpcore.Request) -> httpcore.AsyncHTTPConnection:
        return httpcore.AsyncHTTPConnection(
            origin=request.url.origin,
            ssl_context=self._tls,
            keepalive_expiry=self._settings.keepalive_ms / 1000,
            http2=self._http2,
            retries=0,
            network_backend=self.network,
        )

    async def _give_back(self, kept: _Kept, host: _Host, *, reusable: bool) -> None:
        """A stream that was left early may leave its connection out of step: no new requests on it."""
        kept.users -= 1
        kept.retired = kept.retired or not reusable or _left_over(kept.connection)
        if kept.shared and not kept.retired:
            return
        if kept in host.shared:
            host.shared.remove(kept)
        room = self._idle + self.in_flight <= self._settings.connections_max
        if not kept.retired and room and kept.connection.is_idle():
            host.idle.append(kept)
            self._idle += 1
        elif kept.users == 0:
            await kept.connection.aclose()

    async def _sweep(self) -> None:
        """Now and then, close what has been idle for too long, and forget hosts that nobody asks for."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._swept_s + self._settings.keepalive_ms / 1000:
            return
        self._swept_s = now_s
        for origin, host in list(self._hosts.items()):
            await self._sweep_host(host)
            if not (host.requests or host.idle or host.shared):
                self._hosts.pop(origin, None)

    async def _sweep_host(self, host: _Host) -> None:
        expired = [kept for kept in host.idle if kept.gone()]
        surplus = [kept for kept in host.shared if not kept.users and kept.gone()]
        host.idle = deque(kept for kept in host.idle if kept not in expired)
        host.shared = [kept for kept in host.shared if kept not in surplus]
        self._idle -= len(expired)
        for kept in (*expired, *surplus):
            await kept.connection.aclose()


def _left_over(connection: httpcore.AsyncHTTPConnection) -> bool:
    """Bytes came after the end of the response: as the answer to the next request they would be somebody else's.

    httpcore keeps them, and offers no other way to see them.
    """
    inner = connection._connection  # noqa: SLF001
    return isinstance(inner, httpcore.AsyncHTTP11Connection) and bool(inner._h11_state.trailing_data[0])  # noqa: SLF001


def tls_context(settings: HttpSettings) -> ssl.SSLContext:
    """Certificates are always verified; `ca_file` adds to the public authorities."""
    context = httpx.create_ssl_context(trust_env=False)
    if settings.ca_file is not None:
        context.load_verify_locations(cafile=settings.ca_file)
    return context
