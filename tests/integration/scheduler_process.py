"""`noontide scheduler` as a child process, and what it logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.integration.installation import FACT_TIMEOUT_S, Installation, eventually

_COMMAND = "from noontide.apps.cli.main import main; main()"
_OWN_GROUP = """
import asyncio, signal, sys
from pathlib import Path
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.apps.cli.log_options import log_to_stderr
from noontide.apps.wiring import SchedulerOptions, run_scheduler
bootstrap, prefix, data, group = sys.argv[1:]

async def run():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run_scheduler(
        SchedulerOptions(connection=KafkaConnection(bootstrap), prefix=prefix, data=Path(data), group=group), stop
    )

log_to_stderr("info")
asyncio.run(run())
"""
"""The same process in a group of its own: it asks for every slot at once, so that only transactional ids decide."""


class SchedulerProcess:
    """One scheduler process after another on a data folder.

    group: None = `noontide scheduler` as people start it; else a consumer group of its own (see `_OWN_GROUP`).
    secret: shared with API nodes, which may then ask it. settings: NAME=VALUE, as after --setting.
    bootstrap: where it finds the broker, if not where the test does.
    """

    def __init__(
        self,
        installation: Installation,
        data: Path,
        *,
        group: str | None = None,
        secret: str | None = None,
        settings: Sequence[str] = (),
        bootstrap: str | None = None,
    ) -> None:
        self.data = data
        self.starts = 0
        self.group = group
        self._secret = secret
        self._settings = settings
        self._bootstrap = bootstrap or installation.bootstrap
        self._installation = installation
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start it; returns at once."""
        assert self._process is None
        self.starts += 1
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(self._arguments(), stderr=log, stdout=log, env=self._environment())
        return self

    @property
    def log_path(self) -> Path:
        """What the latest process logs."""
        return self.data.parent / f"{self.data.name}.{self.starts}.log"

    @property
    def log(self) -> str:
        """What the latest process has logged so far."""
        return self.log_path.read_text("utf-8", errors="replace")

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def until_logged(self, text: str, *, count: int = 1, within_s: float = FACT_TIMEOUT_S) -> str:
        """Wait until the latest process has logged a text so many times; returns the whole log."""
        eventually(lambda: self.log.count(text) >= count or not self.running, within_s=within_s, what=f"log: {text}")
        assert self.log.count(text) >= count, f"ended without {text!r}:\n{self.log[-3_000:]}"
        return self.log

    def until_owner(self, slots: int | None = None) -> Self:
        """Wait until it works on so many slots (all of them)."""
        self.until_logged(": owned after", count=slots or self._installation.layout.slots)
        return self

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._end(signal.SIGKILL, within_s=10)

    def terminate(self, *, within_s: float = 30) -> int:
        """Ask it to end; returns its exit code."""
        return self._end(signal.SIGTERM, within_s=within_s)

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it if it still runs."""
        if self._process is not None:
            self.resume() if self.running else None
            self.kill()

    def exit_code(self, *, within_s: float = 30) -> int:
        """Wait until it ends by itself."""
        assert self._process is not None
        code = self._process.wait(within_s)
        self._process = None
        return code

    def _end(self, signum: signal.Signals, *, within_s: float) -> int:
        assert self._process is not None
        if self.running:
            self._process.send_signal(signum)
        return self.exit_code(within_s=within_s)

    def _arguments(self) -> list[str]:
        at, prefix = self._bootstrap, self._installation.layout.prefix
        if self.group is not None:
            return [sys.executable, "-c", _OWN_GROUP, at, prefix, str(self.data), self.group]
        options = ["--bootstrap", at, "--prefix", prefix, "--data", str(self.data), "--internal-host", "127.0.0.1"]
        options += [part for setting in self._settings for part in ("--setting", setting)]
        return [sys.executable, "-c", _COMMAND, "scheduler", *options]

    def _environment(self) -> dict[str, str]:
        """The process sees nothing of the settings of whoever runs the tests."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("NOONTIDE_")}
        return own if self._secret is None else {**own, "NOONTIDE_INTERNAL_SECRET": self._secret}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
