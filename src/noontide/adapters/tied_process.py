"""A child process that ends when this process does, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# PR_SET_PDEATHSIG (1). The check of the parent closes the gap between the fork and the call.
# A change of user clears the signal, so it comes first.
_TIE: Final = (
    "import ctypes,os,pwd,sys\n"
    "number,parent,user=sys.argv[1:4]\n"
    "if user:\n"
    "  entry=pwd.getpwnam(user);os.setgroups([]);os.setgid(entry.pw_gid);os.setuid(entry.pw_uid);os.chdir('/')\n"
    "if sys.platform=='linux':\n"
    "  ctypes.CDLL(None).prctl(1,int(number),0,0,0)\n"
    "  os.getppid()==int(parent) or os._exit(1)\n"
    "os.execv(sys.argv[4],sys.argv[4:])\n"
)


class TiedProcess:
    """A started child in a session of its own; on Linux it gets a signal when this process dies.

    log: what it writes, appended.  death_signal: sent to it then.  environment: added to ours.
    user: name of the user it runs as, None for ours; only root may choose one.
    Raises OSError when the command cannot be started.

    Linux sends the death signal when the *thread* that started the child ends, so a thread of its own starts it
    and waits for it; it may then be made in any thread, pools included.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        death_signal: signal.Signals = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self._command = command
        self._log = log
        self._death_signal = death_signal
        self._environment = {**os.environ, **(environment or {})}
        self._user = user
        self._started = threading.Event()
        self._error: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._run, name=f"tied-{log.parent.name}", daemon=True).start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._launch_command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=self._environment,
                )
        except OSError as error:
            self._error = error
        self._started.set()
        if self._process is not None:
            self._process.wait()

    def _launch_command(self) -> Sequence[str]:
        if sys.platform != "linux" and self._user is None:
            return self._command
        tie = [sys.executable, "-I", "-S", "-c", _TIE]
        return [*tie, str(int(self._death_signal)), str(os.getpid()), self._user or "", *self._command]

    @property
    def _child(self) -> subprocess.Popen[bytes]:
        assert self._process is not None  # _started is set after it
        return self._process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._child.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has already ended is left in peace."""
        self._child.send_signal(number)

    def ended_within(self, timeout_s: float) -> bool:
        """Wait for the end."""
        try:
            self._child.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return False
        return True
