"""Handlers that do nothing but note when they start, in memory; the notes are written down when the worker ends.

`BENCH_STARTS` is the file of the notes; beside it `.count` says how many there are meanwhile.
"""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path
from typing import Final

from noontide import worker
from noontide.adapters.system_clock import wall_now_ms

app = worker.App()
COUNT_EVERY_S: Final = 0.05
_file = Path(os.environ["BENCH_STARTS"])
_starts: list[tuple[str, int]] = []


@app.handler("coroutine")
async def coroutine(ctx: worker.Context) -> None:
    """On the handlers' event loop."""
    _starts.append((ctx.run_id, wall_now_ms()))


@app.handler("thread")
def thread(ctx: worker.Context) -> None:
    """On a thread."""
    _starts.append((ctx.run_id, wall_now_ms()))


def _count_for_ever() -> None:
    never, said = threading.Event(), 0
    count_file = _file.with_suffix(".count")
    while not never.wait(COUNT_EVERY_S):
        if len(_starts) != said:
            said = len(_starts)
            count_file.write_text(str(said))


def _write_down() -> None:
    with _file.open("w") as file:
        file.writelines(f"{run_id} {at_ms}\n" for run_id, at_ms in _starts)


threading.Thread(target=_count_for_ever, name="count", daemon=True).start()
atexit.register(_write_down)
