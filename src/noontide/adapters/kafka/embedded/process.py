"""One broker's JVM: formatted, started so that it ends with its parent, signalled, and explained when it fails."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError, PortInUseError
from noontide.adapters.kafka.embedded.folder import MAIN_CLASS, BrokerFolder

_FORMAT_TIMEOUT_S: Final = 60
_MEANINGFUL: Final = re.compile(r"ERROR|FATAL|Exception|Error:|error occurred")
_KNOWN: Final[Sequence[tuple[str, Callable[[BrokerFolder, int], EmbeddedKafkaError]]]] = (
    ("Address already in use", lambda _, port: PortInUseError(port)),
    (
        "No space left on device",
        lambda folder, _: EmbeddedKafkaError(f"no disk space left for {folder.path} (log: {folder.log})"),
    ),
    (
        "Too many open files",
        lambda folder, _: EmbeddedKafkaError(f"too few file descriptors: raise `ulimit -n` (log: {folder.log})"),
    ),
    (
        "insufficient memory",
        lambda folder, _: EmbeddedKafkaError(f"not enough memory for the Kafka broker (log: {folder.log})"),
    ),
)

# PR_SET_PDEATHSIG (1) = SIGKILL: also ends a stopped broker, and Kafka's log survives it (the page cache is the
# kernel's). The check of the parent closes the gap between the fork and the call.
_DIE_WITH_PARENT: Final = (
    "import ctypes,os,sys\n"
    "ctypes.CDLL(None).prctl(1,9,0,0,0)\n"
    "os.getppid()==int(sys.argv[1]) or os._exit(1)\n"
    "os.execv(sys.argv[2],sys.argv[2:])\n"
)


def new_cluster_id() -> str:
    """A Kafka UUID; one that starts with a dash would be taken for an option by the storage tool."""
    while (candidate := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]).startswith("-"):
        pass
    return candidate


def format_storage(command: Sequence[str], *, folder: BrokerFolder, cluster_id: str, alone: bool) -> None:
    """Write Kafka's metadata into an empty data folder; EmbeddedKafkaError when the tool refuses."""
    tool = [*command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(folder.properties)]
    start_bytes = _size(folder.log)
    with folder.log.open("ab") as log:
        tool += ["--ignore-formatted", *(["--standalone"] if alone else [])]
        try:
            code = subprocess.run(
                tool, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_FORMAT_TIMEOUT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise EmbeddedKafkaError(f"formatting {folder.data} took over {_FORMAT_TIMEOUT_S} s") from error
    if code != 0:
        raise failure(folder, what=f"formatting {folder.data} failed", port=0, since_bytes=start_bytes)


class BrokerProcess:
    """A started broker. Its JVM runs in a session of its own and is killed when this process dies (on Linux).

    Linux sends the death signal when the *thread* that started the child ends, so a thread of its own starts the JVM
    and waits for it; `start()` may then be called from any thread, pools included.
    """

    def __init__(self, command: Sequence[str], *, folder: BrokerFolder, port: int) -> None:
        self._command = [*command, MAIN_CLASS, str(folder.properties)]
        self._folder = folder
        self._port = port
        self._log_start_bytes = _size(folder.log)
        self._started = threading.Event()
        self._error: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._run, name=f"kafka-{folder.path.name}", daemon=True).start()
        self._started.wait()
        if self._error is not None:
            raise EmbeddedKafkaError(f"cannot start {self._command[0]}: {self._error.strerror}") from self._error
        folder.pid_file.write_text(str(self.pid))

    def _run(self) -> None:
        try:
            with self._folder.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._launch_command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            self._error = error
        self._started.set()
        if self._process is not None:
            self._process.wait()

    def _launch_command(self) -> list[str]:
        if sys.platform != "linux":
            return self._command
        return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *self._command]

    @property
    def _child(self) -> subprocess.Popen[bytes]:
        assert self._process is not None  # _started is set after it
        return self._process

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has already ended is left in peace."""
        self._child.send_signal(number)

    def ended_within(self, timeout_s: float) -> bool:
        """Wait for the end; the pid file goes with it."""
        try:
            self._child.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return False
        self._folder.pid_file.unlink(missing_ok=True)
        return True

    def failure(self) -> EmbeddedKafkaError:
        """Why the broker ended, from its log."""
        what = f"Kafka broker {self._folder.path.name} exited with code {self._child.poll()}"
        return failure(self._folder, what=what, port=self._port, since_bytes=self._log_start_bytes)


def failure(folder: BrokerFolder, *, what: str, port: int, since_bytes: int) -> EmbeddedKafkaError:
    """One line for people out of what the JVM wrote since `since_bytes`."""
    lines = _lines_since(folder.log, since_bytes)
    text = "\n".join(lines)
    for pattern, explained in _KNOWN:
        if pattern in text:
            return explained(folder, port)
    telling = [line for line in lines if _MEANINGFUL.search(line) and not line.lstrip().startswith("at ")]
    last = (telling or lines or ["nothing was logged"])[-1].strip()[:300]
    return EmbeddedKafkaError(f"{what}: {last} (log: {folder.log})")


def _lines_since(log: Path, offset: int) -> list[str]:
    with log.open("rb") as stream:
        stream.seek(offset)
        return [line for line in stream.read().decode(errors="replace").splitlines() if line.strip()]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
