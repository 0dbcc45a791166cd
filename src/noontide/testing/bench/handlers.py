"""Handlers that do nothing but note when they start, in memory; the notes are written down when the worker ends.

`BENCH_STARTS` is the file of the notes. `BENCH_HOLD_S` is how long after its due time a run is held by `held`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from pathlib import Path

from noontide import worker
from noontide.adapters.system_clock import wall_now_ms

app = worker.App()
_file = Path(os.environ["BENCH_STARTS"])
_hold_s = float(os.environ.get("BENCH_HOLD_S", "0"))
_starts: list[tuple[str, int]] = []


@app.handler("coroutine")
async def coroutine(ctx: worker.Context) -> None:
    """On the handlers' event loop."""
    _starts.append((ctx.run_id, wall_now_ms()))


@app.handler("thread")
def thread(ctx: worker.Context) -> None:
    """On a thread."""
    _starts.append((ctx.run_id, wall_now_ms()))


@app.handler("slow")
async def slow(ctx: worker.Context) -> dict[str, int]:
    """Takes a second, and says when."""
    started_ms = wall_now_ms()
    await asyncio.sleep(1.0)
    return {"started": started_ms, "ended": wall_now_ms()}


@app.handler("brief")
async def brief(ctx: worker.Context) -> dict[str, int]:
    """Takes no time, and says when it was."""
    started_ms = wall_now_ms()
    return {"started": started_ms, "ended": started_ms}


@app.handler("held")
async def held(ctx: worker.Context) -> None:
    """Holds its run until a while after it was due, whenever it starts."""
    _starts.append((ctx.run_id, wall_now_ms()))
    await asyncio.sleep(max(0.0, ctx.due.timestamp() + _hold_s - wall_now_ms() / 1_000))


def _write_down() -> None:
    with _file.open("w") as file:
        file.writelines(f"{run_id} {at_ms}\n" for run_id, at_ms in _starts)


atexit.register(_write_down)
