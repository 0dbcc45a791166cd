"""TLS: verified against the name, with own authorities beside the public ones; HTTP/2 where the server offers it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
import trustme
from tests.adapters.http.conftest import LOCAL
from tests.adapters.http.servers import Received, Wire, always, invitation, serving

from noontide.adapters.http import HttpExecutor, HttpSettings
from noontide.records.worker_events import End, Outcome


async def here(_host: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


def server_context(authority: trustme.CA, *names: str, protocols: Sequence[str] = ("http/1.1",)) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(list(protocols))
    authority.issue_cert(*names).configure_cert(context)
    return context


async def attempt(url: str, settings: HttpSettings, *, timeout_ms: int = 5_000) -> End:
    executor = HttpExecutor(settings, resolve=here)
    try:
        return await executor.execute(invitation(url, timeout_ms=timeout_ms), 1, cancelled=asyncio.Event())
    finally:
        await executor.aclose()


async def test_own_authorities_are_trusted_when_they_are_named(authority: trustme.CA, ca_file: Path) -> None:
    named: list[str | None] = []
    context = server_context(authority, "target.example")
    context.sni_callback = lambda _socket, name, _context: named.append(name)
    async with serving(always(), tls=context) as server:
        end = await attempt(server.url(host="target.example"), replace(LOCAL, ca_file=ca_file))
    assert end.outcome is Outcome.SUCCEEDED
    assert named == ["target.example"]
    assert server.requests[0].headers["host"] == f"target.example:{server.port}"


@pytest.mark.parametrize("host,trusted", [("target.example", False), ("other.example", True), ("127.0.0.1", True)])
async def test_certificates_that_do_not_fit_are_refused(
    authority: trustme.CA, ca_file: Path, host: str, trusted: bool
) -> None:
    context = server_context(authority, "target.example")
    async with serving(always(), tls=context) as server:
        end = await attempt(server.url(host=host), replace(LOCAL, ca_file=ca_file if trusted else None))
    assert (end.outcome, end.permanent, server.requests) == (Outcome.FAILED, False, [])
    assert "certificate verify failed" in (end.error or "").lower()


async def test_a_server_without_tls_is_a_failure(ca_file: Path) -> None:
    async with serving(always()) as server:
        url = server.url(host="target.example").replace("http:", "https:")
        end = await attempt(url, replace(LOCAL, ca_file=ca_file, connect_timeout_ms=500))
    assert (end.outcome, end.permanent) == (Outcome.FAILED, False)
    assert (end.error or "").startswith("no connection to target.example:")


@pytest.mark.parametrize("limit", ["connect", "attempt"])
async def test_a_handshake_that_hangs_ends_in_time(limit: str) -> None:
    closed = asyncio.Event()
    listener = await asyncio.start_server(lambda r, w: _until_closed(r, w, closed), "127.0.0.1", 0)
    url = f"https://target.example:{listener.sockets[0].getsockname()[1]}/"
    if limit == "connect":
        end = await attempt(url, replace(LOCAL, connect_timeout_ms=100))
        assert "in time" in (end.error or "")
    else:
        end = await attempt(url, LOCAL, timeout_ms=100)
        assert end.error == "timed out after 0.1 s: no connection was free or could be made"
    await closed.wait()
    listener.close()
    assert (end.outcome, end.permanent) == (Outcome.FAILED, False)


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, closed: asyncio.Event) -> None:
    while await reader.read(65_536):
        pass
    closed.set()
    writer.close()


class MultiplexServer:
    """HTTP/2: answers each request with its path, or as long as `hold` is set not at all; `/big` has no end."""

    def __init__(self) -> None:
        self.connections = 0
        self.keys: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.port = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        state.initiate_connection()
        answering: set[asyncio.Task[None]] = set()
        writer.write(state.data_to_send())
        while data := await reader.read(65_536):
            for event in state.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    answering.add(asyncio.create_task(self.answer(state, writer, event)))
            writer.write(state.data_to_send())
        for task in answering:
            task.cancel()
        writer.close()

    async def answer(
        self, state: h2.connection.H2Connection, writer: asyncio.StreamWriter, event: h2.events.RequestReceived
    ) -> None:
        headers = {str(name): str(value) for name, value in event.headers}
        self.keys.append(headers["idempotency-key"])
        stream = event.stream_id
        await self.hold.wait()
        state.send_headers(stream, [(":status", "200"), ("content-type", "text/plain")])
        if headers[":path"] == "/big":
            state.send_data(stream, b"x" * 16_000)
            for _ in range(10):
                if min(state.local_flow_control_window(stream), state.max_outbound_frame_size) >= 16_000:
                    state.send_data(stream, b"x" * 16_000)
        else:
            state.send_data(stream, headers[":path"].encode(), end_stream=True)
        writer.write(state.data_to_send())


@asynccontextmanager
async def multiplexing(authority: trustme.CA) -> AsyncIterator[MultiplexServer]:
    server = MultiplexServer()
    context = server_context(authority, "target.example", protocols=("h2", "http/1.1"))
    listener = await asyncio.start_server(server.connected, "127.0.0.1", 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


@asynccontextmanager
async def client(ca_file: Path, *, http2: bool = True) -> AsyncIterator[HttpExecutor]:
    executor = HttpExecutor(HttpSettings(allow_loopback=True, ca_file=ca_file, http2=http2), resolve=here)
    try:
        yield executor
    finally:
        await executor.aclose()
        await asyncio.sleep(0)


async def one(executor: HttpExecutor, server: MultiplexServer, path: str = "/a", *, timeout_ms: int = 5_000) -> End:
    invited = invitation(f"https://target.example:{server.port}{path}", timeout_ms=timeout_ms)
    return await executor.execute(invited, 1, cancelled=asyncio.Event())


async def test_http2_carries_many_requests_on_one_connection(authority: trustme.CA, ca_file: Path) -> None:
    async with multiplexing(authority) as server, client(ca_file) as executor:
        first = await one(executor, server)
        ends = await asyncio.gather(*(one(executor, server, f"/{number}") for number in range(60)))
    assert bytes(first.result) == b'"/a"'
    assert [bytes(end.result) for end in ends] == [b'"/%d"' % number for number in range(60)]
    assert (server.connections, len(server.keys)) == (1, 61)


async def test_http2_can_be_switched_off(authority: trustme.CA, ca_file: Path) -> None:
    async def script(wire: Wire, _: Received) -> None:
        await wire.answer(body=b"one")

    context = server_context(authority, "target.example", protocols=("h2", "http/1.1"))
    async with serving(script, tls=context) as server, client(ca_file, http2=False) as executor:
        invited = invitation(server.url(host="target.example"))
        end = await executor.execute(invited, 1, cancelled=asyncio.Event())
    assert bytes(end.result) == b'"one"'


@pytest.mark.parametrize("left_early", ["timeout", "cut"])
async def test_a_stream_that_was_left_early_retires_its_connection(
    authority: trustme.CA, ca_file: Path, left_early: str
) -> None:
    async with multiplexing(authority) as server, client(ca_file) as executor:
        assert (await one(executor, server)).outcome is Outcome.SUCCEEDED
        if left_early == "timeout":
            server.hold.clear()
            assert (await one(executor, server, timeout_ms=100)).outcome is Outcome.FAILED
            server.hold.set()
        else:
            assert (await one(executor, server, "/big")).truncated
        assert (await one(executor, server)).outcome is Outcome.SUCCEEDED
    assert server.connections == 2
