"""Handlers for workers in tests: what they do is said by the payload, and each start leaves a record on a topic.

- `{"seconds": 3}`: take so long, unless asked to stop
- `{"until": "/path"}`: go on when the file is there
- `{"fail_until": 3}`: grants before that one fail
- `{"permanent": true}`: fail for good
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka as ck
import orjson

from noontide import worker

app = worker.App()
_producer: list[ck.Producer] = []
Payload = Mapping[str, object]


def note_start(ctx: worker.Context) -> None:
    """Append {run_id, attempt, token, pid} to the topic of starts; returns when the broker has it."""
    if not _producer:
        _producer.append(ck.Producer({"bootstrap.servers": os.environ["STARTS_BOOTSTRAP"], "linger.ms": 0}))
    start = {"run_id": ctx.run_id, "attempt": ctx.attempt, "token": ctx.token, "pid": os.getpid()}
    _producer[0].produce(os.environ["STARTS_TOPIC"], orjson.dumps(start), ctx.run_id)
    assert _producer[0].flush(10) == 0


@app.handler("act")
def act(payload: Payload | None, ctx: worker.Context) -> object:
    """Do what the payload says, on a thread."""
    said = payload or {}
    note_start(ctx)
    until_s = time.monotonic() + float(str(said.get("seconds", 0)))
    path = said.get("until")
    while time.monotonic() < until_s or (path is not None and not Path(str(path)).exists()):
        if ctx.wait_cancelled(0.02):
            raise worker.Cancelled
    return _end(said, ctx)


@app.handler("act_async")
async def act_async(payload: Payload | None, ctx: worker.Context) -> object:
    """The same on the handlers' loop."""
    said = payload or {}
    await asyncio.to_thread(note_start, ctx)
    await asyncio.sleep(float(str(said.get("seconds", 0))))
    path = said.get("until")
    while path is not None and not Path(str(path)).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)
    return _end(said, ctx)


def _end(said: Payload, ctx: worker.Context) -> object:
    if said.get("permanent"):
        raise worker.PermanentError("no such customer")
    if ctx.token < int(str(said.get("fail_until", 0))):
        raise RuntimeError(f"attempt {ctx.attempt} fails")
    return {"attempt": ctx.attempt, "said": said.get("text")}
