"""A child process that can be killed, frozen and started again, with its log in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

LOG_TIMEOUT_S: Final = 30.0
END_TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.02


def noontide(*arguments: str) -> tuple[str, ...]:
    """The command line that runs `noontide` in this interpreter."""
    return sys.executable, "-m", "noontide.apps.cli.main", *arguments


@dataclass(slots=True, kw_only=True)
class ChildProcess:
    """One incarnation after another of a command; a context that ends the last one.

    log: what all incarnations write. variables: of its environment, beside those that are not settings of ours.
    """

    command: Sequence[str]
    log: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _log_start: int = 0

    def start(self) -> Self:
        """Start it; returns at once."""
        assert not self.running, f"{self.command} runs already"
        self.starts += 1
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        own = {name: value for name, value in os.environ.items() if not name.startswith("NOONTIDE_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**own, **self.variables}
            )
        return self

    @property
    def pid(self) -> int:
        """Process id of the latest incarnation."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is there, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def text(self) -> str:
        """What the latest incarnation has logged."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def until_logged(self, text: str, *, count: int = 1, within_s: float = LOG_TIMEOUT_S) -> Self:
        """Wait until the latest incarnation has logged a text so many times. Raises AssertionError with its log."""
        deadline_s = time.monotonic() + within_s
        while self.text.count(text) < count:
            assert self.running, f"ended without {text!r}:\n{self.text[-3_000:]}"
            assert time.monotonic() < deadline_s, f"not within {within_s:.0f} s: {text!r} in\n{self.text[-3_000:]}"
            self.pause_here(_LOOK_S)
        return self

    def pause_here(self, duration_s: float) -> None:
        """Let time pass in the caller, or less when the process ends."""
        assert self._process is not None
        try:
            self._process.wait(duration_s)
        except subprocess.TimeoutExpired:
            return

    def freeze(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def ask_to_end(self) -> None:
        """SIGTERM; returns at once."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        self._end(signal.SIGKILL, within_s=10)

    def terminate(self, *, within_s: float = END_TIMEOUT_S) -> int:
        """Ask it to end (SIGTERM); returns its exit code. Raises subprocess.TimeoutExpired."""
        return self._end(signal.SIGTERM, within_s=within_s)

    def close(self) -> None:
        """End it if it is there."""
        if self.running:
            self.kill()

    def _end(self, signum: signal.Signals, *, within_s: float) -> int:
        assert self._process is not None
        if self.running:
            self._process.send_signal(signum)
        return self._process.wait(within_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
