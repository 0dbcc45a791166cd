"""A quick HTTP/1.1 client for servers of our own: one connection, one request at a time, bodies as they come.

General clients take longer for a request than our servers do for the answer; nothing they know more is needed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import httptools

CONNECT_S = 2.0


class LineBroken(OSError):
    """The connection could not be made or broke, or what came was no answer; the request may have been carried out."""


class HttpLine:
    """One connection at a time to a server, made anew when it breaks.

    url: http://host:port. headers: of every request, as `Name: value`.
    """

    def __init__(self, url: str, headers: tuple[str, ...] = ()) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = "".join(f"{header}\r\n" for header in (f"Host: {self._host}:{self._port}", *headers))
        self._protocol: _Protocol | None = None

    async def request(self, method: str, path: str, body: bytes = b"", *, timeout_s: float) -> bytes:
        """The body of the answer. Raises LineBroken, also for any status but 2xx."""
        try:
            async with asyncio.timeout(timeout_s):
                protocol = await self._connected()
                answer = protocol.begin()
                protocol.write(self._request(method, path, body))
                return await answer
        except (TimeoutError, OSError) as error:
            self.close()
            raise LineBroken(f"{self._host}:{self._port}: {str(error) or 'no answer in time'}") from None
        except asyncio.CancelledError:
            self.close()
            raise

    async def stream(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        """The body of an answer that does not end, piece by piece; LineBroken at its end or after a silence."""
        pieces: asyncio.Queue[bytes] = asyncio.Queue()
        try:
            protocol = await asyncio.wait_for(self._connected(), CONNECT_S)
            ended = protocol.begin(pieces.put_nowait)
            ended.add_done_callback(partial(_end, pieces))
            protocol.write(self._request("GET", path, b""))
            while True:
                async with asyncio.timeout(silence_s):
                    piece = await pieces.get()
                if not piece:
                    raise LineBroken("the stream ended")
                yield piece
        except (TimeoutError, OSError) as error:
            raise LineBroken(f"{self._host}:{self._port}: {str(error) or 'silent'}") from None
        finally:
            self.close()

    def close(self) -> None:
        """Give up the connection."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.close()

    async def _connected(self) -> _Protocol:
        if self._protocol is None or self._protocol.closed:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(CONNECT_S):
                _, self._protocol = await loop.create_connection(_Protocol, self._host, self._port)
        return self._protocol

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        return f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _end(pieces: asyncio.Queue[bytes], ended: asyncio.Future[bytes]) -> None:
    if not ended.cancelled():
        ended.exception()  # looked at, so that nobody misses it
    pieces.put_nowait(b"")


class _Protocol(asyncio.Protocol):
    """One connection; the callbacks are httptools'."""

    def __init__(self) -> None:
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[bytes] | None = None
        self._body = bytearray()
        self._on_piece: Callable[[bytes], None] | None = None

    def begin(self, on_piece: Callable[[bytes], None] | None = None) -> asyncio.Future[bytes]:
        """Expect an answer; `on_piece` takes its body when it is given."""
        self._answer = asyncio.get_running_loop().create_future()
        self._body.clear()
        self._on_piece = on_piece
        return self._answer

    def write(self, data: bytes) -> None:
        """Send a request."""
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        """Close it; whoever waits for an answer hears that it broke."""
        self.closed = True
        if self._transport is not None:
            self._transport.close()
        self._fail("closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of the class

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(str(error))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._fail(str(exc or "the connection was closed"))

    def on_body(self, piece: bytes) -> None:
        if self._on_piece is not None and self._parser.get_status_code() == 200:
            self._on_piece(piece)
        else:
            self._body += piece

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if not 200 <= status < 300:
            self._fail(f"answered {status}: {bytes(self._body[:200])!r}")
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._body))

    def _fail(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LineBroken(reason))
