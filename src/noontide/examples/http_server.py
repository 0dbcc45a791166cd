"""A server for the target in `http_target`, for machines without one: HTTP/1.1 on asyncio, enough to try things.

    python -m noontide.examples.http_server --port 8080

It remembers runs in memory, so a restart forgets them. For anything real use a real server.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from noontide.examples.http_target import BODY_MAX_BYTES, Memory, Message, OncePerRun, Receive, Send, print_payload

HOST = "127.0.0.1"
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Connection:
    """One connection: requests in turn, each given to the application."""

    def __init__(self, application: Application, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._application = application
        self._reader = reader
        self._writer = writer
        self._body = b""
        self._begun = False

    async def serve(self) -> None:
        """Answer until the peer closes, or says what is not understood here."""
        try:
            while await self._request():
                pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass  # the end of the connection is all the answer there is
        finally:
            self._writer.close()

    async def _request(self) -> bool:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, path, _version = first.split(" ")
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = int(dict(headers).get("content-length", "0"))
        if length > BODY_MAX_BYTES:
            raise ValueError("the body is too large")
        self._body, self._begun = await self._reader.readexactly(length), False
        scope: Message = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
        try:
            await self._application(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - whatever the work raises is this answer, and no more than that
            print(f"{type(error).__name__}: {error}", flush=True)
            if not self._begun:
                self._begin(HTTPStatus.INTERNAL_SERVER_ERROR, [(b"content-length", b"0")])
        await self._writer.drain()
        return dict(headers).get("connection", "").lower() != "close"

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            self._writer.write(message.get("body", b""))

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._begun = True
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), *(b": ".join(each) for each in headers)]
        self._writer.write(b"\r\n".join(lines) + b"\r\n\r\n")


async def serve(application: Application, port: int) -> None:
    """Serve on the loopback address until cancelled; port 0 takes any. Says on standard output where it listens."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Connection(application, reader, writer).serve()

    async with await asyncio.start_server(connected, HOST, port) as server:
        print(f"listening on {HOST}:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()


def main() -> None:
    """Serve `http_target`."""
    parser = ArgumentParser(description="The target of noontide.examples.http_target, on this machine.")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    memory = Memory(":memory:")
    try:
        asyncio.run(serve(OncePerRun(print_payload, memory), given.port))
    finally:
        memory.close()


if __name__ == "__main__":
    main()
