"""A steady stream of HTTP targets: how late the requests arrive, and over how many connections."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.lag import (
    DRAIN_S,
    SERIES,
    LagOptions,
    begin_stream,
    define_meanwhile,
)
from noontide.testing.bench.measure import percentiles
from noontide.testing.bench.stage import BenchError, set_stage
from noontide.testing.bench.warmup import drained, warm_up
from noontide.testing.bench.workers import (
    WARM_UP_ROUNDS,
    Started,
    bench_worker,
    closings,
    run_of,
    tally_starts,
    warm_up_handlers,
)

HOST: Final = "127.0.0.1"
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_SPAWN: Final = multiprocessing.get_context("spawn")
_TIMEOUT_S: Final = 30.0


class Asked(NamedTuple):
    """What a server was asked: one entry per request, and how many connections were opened."""

    requests: list[Started]
    connections: int


class Server(asyncio.Protocol):
    """Reads requests with a Content-Length and answers each at once; `asked` is shared by all connections."""

    def __init__(self, requests: list[Started], connections: list[object]) -> None:
        self._requests = requests
        self._connections = connections
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._connections.append(transport.get_extra_info("peername"))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            headers = dict(_header(line) for line in self._data[:end].split(b"\r\n")[1:])
            length = end + 4 + int(headers.get(b"content-length", b"0"))
            if len(self._data) < length:
                return
            self._data = self._data[length:]
            self._requests.append(Started(headers[b"idempotency-key"].decode(), wall_now_ms()))
            assert self._transport is not None
            self._transport.write(ANSWER)


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()


class RunningServer:
    """A server in a process of its own."""

    def __init__(self, pipe: Connection, port: int) -> None:
        self._pipe = pipe
        self.url = f"http://{HOST}:{port}/bench"

    def asked(self) -> Asked:
        """Everything it was asked until now."""
        self._pipe.send("asked")
        found = self._pipe.recv()
        assert isinstance(found, Asked)
        return found


@contextmanager
def server() -> Iterator[RunningServer]:
    """A server that answers `{}`."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(_TIMEOUT_S):
            raise BenchError("the HTTP server of the bench did not start")
        yield RunningServer(ours, ours.recv())
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve_for_ever(pipe))


async def _serve_for_ever(pipe: Connection) -> None:
    requests, connections = list[Started](), list[Any]()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Server(requests, connections), HOST, 0, backlog=1_000)
    pipe.send(listening.sockets[0].getsockname()[1])

    def tell() -> None:
        pipe.recv()
        pipe.send(Asked(requests, len(connections)))

    loop.add_reader(pipe.fileno(), tell)
    await listening.serve_forever()


def run_http(options: LagOptions) -> dict[str, object]:
    """Run the bench. The headline is the arrival of the request at the server minus due."""
    with server() as asked_of, set_stage() as stage, bench_worker(stage, loopback=True) as worker:
        target = b'{"http":{"url":"%s"}}' % asked_of.url.encode()
        warm_up(stage)
        warm_up_handlers(stage, target)
        stream = begin_stream(stage, options, target=target)
        before = asked_of.asked()
        costs, meter = stage.costs(), worker.meter
        with closings(stage, expected=options.jobs) as watcher:
            define_meanwhile(stage, stream, costs)
            drained(stage, watcher, timeout_s=DRAIN_S)
        cores = {**costs.cores(), "cpu_worker": meter.cores()}
        asked = asked_of.asked()
        dues = {run_of(SERIES, number, stream.due_ms(number)): number for number in range(options.jobs)}
        tally, late_ms = tally_starts(asked.requests, {run: stream.due_ms(number) for run, number in dues.items()})
        counted = sorted(late for run, late in late_ms.items() if dues[run] >= options.first)
        return {
            "rate": options.rate,
            "seconds": options.seconds,
            "concurrency": worker.concurrency,
            **percentiles(counted),
            "connections": asked.connections - before.connections,
            "requests": len(asked.requests) - len(before.requests),
            **cores,
            "missing": tally.missing,
            "duplicates": tally.duplicates,
            "foreign": len(asked.requests) - len(late_ms) - tally.duplicates - sum(WARM_UP_ROUNDS),
            "warnings": len(stage.scheduler.warnings()) + len(worker.warnings()),
        }
