"""The port itself: HTTP on a thread of its own, so that questions do not hold up the cycles of the slots."""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from noontide.actors.effects import Decided
from noontide.apps.port import wire
from noontide.apps.port.board import Board
from noontide.apps.port.queries import Queries
from noontide.apps.serving import LoopThread, serving

log = logging.getLogger("noontide.port")
BODY_MAX_BYTES = 1024 * 1024
QUESTIONS_MAX = 5_000
BEAT_S = 2.0
"""A stream says something at least so often, so that a dead connection is noticed."""
DRAIN_S = 1
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOptions:
    """Where the port is, and what those who ask must know.

    secret: shared with the API nodes, long enough that nobody guesses it. host, port: to listen on, 0 takes any port.
    url: how API nodes reach it; None = by the name of this host (or the address, when that is this machine's own).
    """

    secret: str
    host: str = "127.0.0.1"
    port: int = 0
    url: str | None = None


class Port:
    """The ASGI application of the port."""

    def __init__(self, queries: Queries, board: Board, *, secret: str, process: str) -> None:
        self._queries = queries
        self._board = board
        self._expected = f"Bearer {secret}".encode()
        self._process = process

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not hmac.compare_digest(given, self._expected):
            await _answer(send, 401, b'{"problem":"this port is for API nodes that know the secret"}')
            return
        match scope["method"], scope["path"]:
            case "POST", wire.ASK:
                await self._ask(receive, send)
            case "GET", wire.VERDICTS:
                await self._stream(send)
            case "GET", wire.HEALTH:
                await _answer(send, 200, msgspec.json.encode({"process": self._process}))
            case _:
                await _answer(send, 404, b'{"problem":"there is nothing here"}')

    async def _ask(self, receive: Any, send: Any) -> None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if len(body) > BODY_MAX_BYTES:
                await _answer(send, 413, b'{"problem":"too much at once"}')
                return
            if not message.get("more_body", False):
                break
        try:
            questions = wire.decode_questions(bytes(body))
        except msgspec.DecodeError as error:
            await _answer(send, 422, msgspec.json.encode({"problem": str(error)}))
            return
        answers = [await self._queries.answer(question) for question in questions[:QUESTIONS_MAX]]
        await _answer(send, 200, wire.encode(answers))

    async def _stream(self, send: Any) -> None:
        """Verdicts as they come, until the API node goes or does not read."""
        listener = self._board.listen()
        try:
            headers = [(b"content-type", b"application/x-ndjson")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"\n", "more_body": True})
            while not listener.dropped:
                lines = await listener.lines(at_least_every_s=BEAT_S)
                await send({"type": "http.response.body", "body": lines, "more_body": True})
        finally:
            self._board.leave(listener)


@asynccontextmanager
async def open_port(queries: Queries, board: Board, options: PortOptions, *, process: str) -> AsyncIterator[PortThread]:
    """The port on its thread, while the context is open. Raises OSError when the address cannot be had."""
    app = Port(queries, board, secret=options.secret, process=process)

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        async with serving(app, options.host, options.port, drain_s=DRAIN_S) as url:
            yield url

    async with LoopThread("internal-port", opened) as thread:
        yield PortThread(thread, board, options)


class PortThread:
    """The running port, for the threads of the slots."""

    def __init__(self, thread: LoopThread[str], board: Board, options: PortOptions) -> None:
        self._thread = thread
        self._board = board
        self.url = options.url or _reachable(thread.value, options.host)
        """How API nodes reach it."""

    def decided(self, decided: list[Decided]) -> None:
        """Pass verdicts on; from any thread."""
        self._thread.call(self._board.post, decided)


def _reachable(bound: str, host: str) -> str:
    number = bound.rpartition(":")[2]
    return f"http://{host if host in LOOPBACK else socket.getfqdn()}:{number}"


async def _answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
