"""One broker's JVM: formatted, started so that it ends with its parent, signalled, and explained when it fails."""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError, PortInUseError
from noontide.adapters.kafka.embedded.folder import MAIN_CLASS, BrokerFolder
from noontide.adapters.tied_process import TiedProcess

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
    """A started broker. Its JVM is killed when this process dies: Kafka's log survives that (the page cache is the
    kernel's), and a stopped broker ends too.
    """

    def __init__(self, command: Sequence[str], *, folder: BrokerFolder, port: int) -> None:
        self._folder = folder
        self._port = port
        self._log_start_bytes = _size(folder.log)
        try:
            self._child = TiedProcess([*command, MAIN_CLASS, str(folder.properties)], log=folder.log)
        except OSError as error:
            raise EmbeddedKafkaError(f"cannot start {command[0]}: {error.strerror}") from error
        folder.pid_file.write_text(str(self.pid))

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.running

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has already ended is left in peace."""
        self._child.signal(number)

    def ended_within(self, timeout_s: float) -> bool:
        """Wait for the end; the pid file goes with it."""
        if not self._child.ended_within(timeout_s):
            return False
        self._folder.pid_file.unlink(missing_ok=True)
        return True

    def failure(self) -> EmbeddedKafkaError:
        """Why the broker ended, from its log."""
        what = f"Kafka broker {self._folder.path.name} exited with code {self._child.exit_code}"
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
