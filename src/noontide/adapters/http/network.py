"""From a name to a connection: the address that was checked is the one that is connected to.

There is one look-up per connection and no second one, so an answer that changes in between (DNS rebinding) changes
nothing. TLS still sees the name: certificates are verified against it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

import httpcore

from noontide.adapters.http.addresses import Address, Kind, kinds, literal, setting_for
from noontide.adapters.http.refusals import Refused
from noontide.adapters.http.settings import HttpSettings

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port -> addresses as text, best first. Raises OSError when there are none."""

LOOKUPS_MAX = 32
ADDRESSES_MAX = 8
"""Addresses of one name that are tried."""


class SystemResolver:
    """Asks the system, in threads of its own: a name server that hangs holds up no other work of the process."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS_MAX, "resolve")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host; several attempts may ask at the same time."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)

    def close(self) -> None:
        """Do not wait for look-ups that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class _Stream(httpcore.AsyncNetworkStream):
    """A TCP connection that is also closed when its TLS handshake is given up; httpcore does so after errors only."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except asyncio.CancelledError:
            await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to checked addresses only. Counts the connections it opened."""

    def __init__(self, settings: HttpSettings, resolve: Resolve) -> None:
        self._settings = settings
        self._unchecked = frozenset(map(_canonical, settings.allow_hosts))
        self._resolve = resolve
        self._network = httpcore.AnyIOBackend()
        self.connections_opened = 0

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See httpcore. Raises Refused when no address of the host may be used."""
        addresses = await self._permitted(host, port, timeout)
        share = None if timeout is None else timeout / len(addresses)
        for last, address in enumerate(addresses, 1 - len(addresses)):
            try:
                stream = await self._network.connect_tcp(str(address), port, timeout=share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if last == 0:
                    raise
            else:
                self.connections_opened += 1
                return _Stream(stream)
        raise AssertionError("a host has at least one address here")

    async def _permitted(self, host: str, port: int, limit_s: float | None) -> list[Address]:
        found = await self._addresses(host, port, limit_s)
        if _canonical(host) in self._unchecked:
            return found[:ADDRESSES_MAX]
        judged = [(address, self._refused_kind(address)) for address in found]
        permitted = [address for address, kind in judged if kind is None]
        if permitted:
            return permitted[:ADDRESSES_MAX]
        raise Refused(_explain(host, judged))

    async def _addresses(self, host: str, port: int, limit_s: float | None) -> list[Address]:
        """At least one address."""
        try:
            if (spelled_out := literal(host)) is not None:
                return [spelled_out]
        except ValueError:
            raise Refused(f"refused: {host} is not an address") from None
        try:
            async with asyncio.timeout(limit_s):
                found = [ip_address(address) for address in await self._resolve(host, port)]
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"no answer for the name {host}") from None
        except (OSError, UnicodeError):
            raise httpcore.ConnectError(f"no address for the name {host}") from None
        if not found:
            raise httpcore.ConnectError(f"no address for the name {host}")
        return found

    def _refused_kind(self, address: Address) -> Kind | None:
        refused = kinds(address)
        if self._settings.allow_loopback:
            refused -= {Kind.LOOPBACK}
        if self._settings.allow_private:
            refused -= {Kind.PRIVATE}
        return min(refused, key=list(Kind).index, default=None)


def _canonical(host: str) -> str:
    return host.lower().removesuffix(".").strip("[]")


def _explain(host: str, judged: Sequence[tuple[Address, Kind | None]]) -> str:
    address, kind = judged[0]
    where = str(address) if _canonical(host) == str(address) else f"{host} is {address}, which"
    return f"refused: {where} is {kind} (setting {setting_for(kind or Kind.RESERVED)})"
