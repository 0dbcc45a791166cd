"""`noontide worker` as a process of its own, with a module of handlers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

_COMMAND = "from noontide.apps.cli.main import main; main()"
HANDLERS = '''
import asyncio, os
from noontide import worker

app = worker.App()

@app.handler("noop")
async def noop(ctx: worker.Context):
    if "HANG" in os.environ:
        await asyncio.sleep(3600)
    return {"worker": os.getpid()}

@app.handler("file")
def file(payload: dict, ctx: worker.Context):
    """Runs until a file is there."""
    ctx.progress(None, "started")
    while not os.path.exists(payload["until"]) and not ctx.wait_cancelled(0.02):
        pass
    return os.getpid()
'''


class WorkerProcess:
    """One worker process; its log is kept beside its module."""

    def __init__(self, folder: Path, name: str, *, bootstrap: str, prefix: str, handlers: str = HANDLERS) -> None:
        self._handlers = handlers
        self._log = folder / f"{name}.log"
        self._folder = folder
        self._arguments = ["--bootstrap", bootstrap, "--prefix", prefix, "--no-http"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, environment: Mapping[str, str] | None = None) -> Self:
        """Start it; returns at once."""
        (self._folder / "handlers_of_a_test.py").write_text(self._handlers)
        command = [sys.executable, "-c", _COMMAND, "worker", "handlers_of_a_test", *self._arguments, *options]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("NOONTIDE_")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env={**inherited, **(environment or {})}
            )
        return self

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text("utf-8", errors="replace")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Ask it to end; its exit code."""
        return self._end(signal.SIGTERM)

    def ask_to_end(self) -> None:
        """Send SIGTERM and return at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """Wait until it has ended."""
        assert self._process is not None
        return self._process.wait(40)

    def _end(self, signum: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(signum)
        return self.exit_code()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
