"""Handlers of the chaos: the first thing each does is to write down that it started, durably.

`CHAOS_BOOTSTRAP` and `CHAOS_STARTS` (a topic of one partition) say where to. How long a run takes and whether it fails
is made from its id and attempt, so that a repetition does the same.
"""

from __future__ import annotations

import asyncio
import os
import threading
from zlib import crc32

import orjson

from noontide import worker
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.requests import RequestProducer
from noontide.ports.record_log import Record, TopicPartition

app = worker.App()
_ACKNOWLEDGED_S = 20.0
_POLL_S = 0.002
_SLOW_MAX_MS = 4_000  # longer than the shortest lease, so that some runs live by their heartbeats


class Notebook:
    """Writes from any thread; each waits until the brokers have its record."""

    def __init__(self) -> None:
        self._producer = RequestProducer(KafkaConnection(os.environ["CHAOS_BOOTSTRAP"], client_id="chaos"))
        self._at = TopicPartition(os.environ["CHAOS_STARTS"], 0)
        self._lock = threading.Lock()
        threading.Thread(target=self._poll_for_ever, name="notebook", daemon=True).start()

    def write(self, ctx: worker.Context, *, once: bool = False) -> None:
        """Note a start; raises TimeoutError when the brokers do not take it."""
        value = orjson.dumps({"run_id": ctx.run_id, "attempt": ctx.attempt, "token": ctx.token, "once": once})
        written = threading.Event()
        with self._lock:
            self._producer.send(self._at, Record(ctx.run_id.encode(), value), lambda _at, _offset: written.set())
        if not written.wait(_ACKNOWLEDGED_S):
            raise TimeoutError(f"the start of {ctx.run_id} was not acknowledged")

    def _poll_for_ever(self) -> None:
        never = threading.Event()
        while not never.wait(_POLL_S):
            with self._lock:
                self._producer.poll()


_notebook: list[Notebook] = []
_making = threading.Lock()


def notebook() -> Notebook:
    """The one of this process."""
    with _making:
        if not _notebook:
            _notebook.append(Notebook())
        return _notebook[0]


def dice(ctx: worker.Context, sides: int) -> int:
    """A number below `sides`, the same for every attempt of the same number of a run."""
    return crc32(f"{ctx.run_id}/{ctx.attempt}".encode()) % sides


@app.handler("steady")
def steady(ctx: worker.Context) -> None:
    """Succeeds at once."""
    notebook().write(ctx)


@app.handler("shaky")
def shaky(ctx: worker.Context) -> None:
    """Fails at the first attempt, in one of three runs."""
    notebook().write(ctx)
    if ctx.attempt == 1 and dice(ctx, 3) == 0:
        raise RuntimeError("not this time")


@app.handler("slow")
async def slow(ctx: worker.Context) -> int:
    """Takes its time."""
    await asyncio.to_thread(notebook().write, ctx)
    duration_ms = dice(ctx, _SLOW_MAX_MS)
    await asyncio.sleep(duration_ms / 1000)
    return duration_ms


@app.handler("once")
def once(ctx: worker.Context) -> None:
    """Of a job that is to start at most once."""
    notebook().write(ctx, once=True)
