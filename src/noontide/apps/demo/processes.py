"""The processes of the demo. Each ends with the demo, however that ends: its standard input is a pipe from here."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noontide.apps.cli.common import Fault

STOP_TIMEOUT_S: Final = 15.0
READY_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.05

_ENDS_WITH_PARENT: Final = (
    "import os, runpy, signal, sys, threading\n"
    "def follow():\n"
    "    while os.read(0, 1): pass\n"  # a buffered read would hold a lock that the interpreter wants at its end
    "    os.kill(os.getpid(), signal.SIGTERM)\n"
    "threading.Thread(target=follow, daemon=True).start()\n"
    "sys.argv = sys.argv[1:]\n"
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
)


@dataclass(slots=True, eq=False)
class Process:
    """A process that runs a module. name: for people, such as `worker 2`; log: what it says, read from `said_from`."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]
    said_from: int

    @property
    def pid(self) -> int:
        """Its number."""
        return self.popen.pid

    @property
    def code(self) -> int | None:
        """The code it ended with; None while it runs."""
        return self.popen.poll()

    def said(self) -> str:
        """What it has said since it was started."""
        return self.log.read_bytes()[self.said_from :].decode("utf-8", "replace")

    def await_said(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait until it has said this. Raises Fault when it ends before, or after half a minute."""
        until_s = time.monotonic() + READY_TIMEOUT_S
        while (found := pattern.search(self.said())) is None:
            if self.code is not None or time.monotonic() > until_s:
                raise Fault(f"{self.name} {self.fate()}: {self.last_words()}")
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(_POLL_S)
        return found

    def fate(self) -> str:
        """Whether it has ended, for people."""
        return "is not ready" if self.code is None else f"ended with code {self.code}"

    def last_words(self) -> str:
        """The last line it said that is no mere information."""
        lines = [line.strip() for line in self.said().splitlines() if line.strip()]
        telling = [line for line in lines if " INFO " not in line]
        return (telling or lines or ["it said nothing"])[-1]

    def kill(self) -> None:
        """kill -9."""
        self.popen.kill()
        self.popen.wait()
        self._close_pipe()

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        self.popen.terminate()

    def stopped(self) -> None:
        """Wait until it has stopped; one that takes too long is killed."""
        try:
            self.popen.wait(STOP_TIMEOUT_S)
            self._close_pipe()
        except subprocess.TimeoutExpired:
            self.kill()

    def _close_pipe(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()


def start(name: str, module: str, options: Sequence[str], *, log: Path) -> Process:
    """Start a module in a process of its own; what it says is added to the log."""
    command = [sys.executable, "-c", _ENDS_WITH_PARENT, module, *options]
    with log.open("ab") as file:
        said_from = file.tell()
        popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file, start_new_session=True)
    return Process(name, log, popen, said_from)


def stop_all(processes: Sequence[Process]) -> None:
    """Stop those that run, all at once."""
    for process in processes:
        if process.code is None:
            process.ask_to_stop()
    for process in processes:
        process.stopped()
