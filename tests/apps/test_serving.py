"""A served application: connections that say nothing, too much, or break off; threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from noontide.adapters.http.line import HttpLine, LineBroken
from noontide.apps.impatient import HEAD_MAX_BYTES, ImpatientProtocol
from noontide.apps.serving import LoopThread, free_port, serving


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers `hello`, or what was sent to /echo; /endless sends pieces for as long as somebody listens."""
    body = b"hello"
    if scope["path"] == "/echo":
        body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 404 if scope["path"] == "/no" else 200, "headers": []})
    while scope["path"] == "/endless":
        await send({"type": "http.response.body", "body": b"piece\n", "more_body": True})
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(hello, "127.0.0.1", 0, drain_s=1) as found:
        yield found


async def raw(url: str, sent: bytes) -> bytes:
    """What comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(sent)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def test_a_line_asks_again_and_again(url: str) -> None:
    line = HttpLine(url, ("X-One: two",))
    for number in range(3):
        said = b"n%d" % number
        assert await line.request("POST", "/echo", said, timeout_s=5) == said
    with pytest.raises(LineBroken, match="404"):
        await line.request("GET", "/no", timeout_s=5)
    assert await line.request("GET", "/", timeout_s=5) == b"hello"
    line.close()


async def test_a_line_streams_until_it_is_left(url: str) -> None:
    line, pieces = HttpLine(url), 0
    async for piece in line.stream("/endless", silence_s=5):
        pieces += piece.count(b"\n")
        if pieces > 3:
            break
    assert pieces > 3


async def test_nobody_there_is_a_broken_line() -> None:
    with pytest.raises(LineBroken):
        await HttpLine("http://127.0.0.1:1").request("GET", "/", timeout_s=1)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HT"])
async def test_a_head_that_does_not_come_ends_the_connection(
    url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImpatientProtocol, "head_s", 0.05)
    assert await raw(url, sent) == b""


async def test_a_head_without_end_ends_the_connection(url: str) -> None:
    lines = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1_000) for number in range(HEAD_MAX_BYTES // 1_000 + 10))
    assert await raw(url, b"GET / HTTP/1.1\r\n" + lines) == b""


async def test_what_is_no_http_is_400(url: str) -> None:
    assert (await raw(url, b"\x16\x03\x01 nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def test_an_address_that_is_taken_is_an_error(url: str) -> None:
    port = int(url.rpartition(":")[2])
    assert free_port(port) == 0
    with pytest.raises(OSError, match="cannot listen"):
        async with serving(hello, "127.0.0.1", port):
            pass


async def test_a_context_on_a_thread_of_its_own() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        async with serving(hello, "127.0.0.1", 0, drain_s=1) as found:
            yield found

    async with LoopThread("served", opened) as thread:
        assert await HttpLine(thread.value).request("GET", "/", timeout_s=5) == b"hello"


async def test_what_goes_wrong_on_the_thread_is_heard_here() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        raise OSError("no")
        yield ""

    with pytest.raises(OSError, match="no"):
        async with LoopThread("broken", opened):
            pass
