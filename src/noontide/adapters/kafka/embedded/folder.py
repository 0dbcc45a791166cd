"""A data folder: who may use it, the ports it had last time, and what a killed parent left running in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError

FREE_DISK_MIN_BYTES: Final = 256 << 20
MAIN_CLASS: Final = "kafka.Kafka"
_ORPHAN_GRACE_S: Final = 10.0
_LOG_MAX_BYTES: Final = 16 << 20


@dataclass(slots=True, kw_only=True)
class BrokerFolder:
    """The files of one broker: `data/` is Kafka's, everything else is ours."""

    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log(self) -> Path:
        return self.path / "broker.log"

    @property
    def properties(self) -> Path:
        return self.path / "server.properties"

    @property
    def pid_file(self) -> Path:
        return self.path / "pid"

    @property
    def formatted(self) -> bool:
        return (self.data / "meta.properties").exists()

    def prepare(self) -> None:
        """Make the folders and keep the log within bounds (one older log is kept)."""
        self.data.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _LOG_MAX_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def end_orphan(self) -> None:
        """End the JVM that outlived its parent, if there is one: the caller holds the folder's lock, so nobody uses it.

        A process id is reused sooner or later, so the command line must name our main class and this very folder.
        """
        pid = self._recorded_pid()
        if pid is not None and self._is_ours(pid):
            _end(pid)
        self.pid_file.unlink(missing_ok=True)

    def _recorded_pid(self) -> int | None:
        try:
            return int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None

    def _is_ours(self, pid: int) -> bool:
        command = command_line(pid)
        return MAIN_CLASS in command and str(self.properties) in command


@dataclass(slots=True, kw_only=True)
class DataFolder:
    """The folder of a whole cluster, held by one live process at a time."""

    path: Path
    _lock: IO[str] | None = field(default=None, init=False)

    def broker(self, index: int) -> BrokerFolder:
        """The folder of broker `index`, counted from 0; Kafka's node id is one more."""
        return BrokerFolder(path=self.path / f"broker-{index + 1}")

    def acquire(self) -> None:
        """Take the folder for this process, or raise EmbeddedKafkaError naming who has it.

        The lock is the kernel's (flock), so it goes away with this process however that ends; brokers do not inherit
        it. Two brokers on one folder would read each other's live log.
        """
        self._check_usable()
        lock = (self.path / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise EmbeddedKafkaError(
                f"data folder {self.path} is in use by process {holder}: stop it or choose another folder"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        """Let the next process have the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _check_usable(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            free_bytes = shutil.disk_usage(self.path).free
        except OSError as error:
            raise EmbeddedKafkaError(f"cannot use data folder {self.path}: {error.strerror}") from error
        if not os.access(self.path, os.W_OK):
            raise EmbeddedKafkaError(f"cannot use data folder {self.path}: it is not writable")
        if free_bytes < FREE_DISK_MIN_BYTES:
            raise EmbeddedKafkaError(
                f"no disk space for data folder {self.path}: {free_bytes >> 20} MB free, "
                f"{FREE_DISK_MIN_BYTES >> 20} MB needed"
            )

    def remembered_ports(self) -> dict[str, int]:
        """The ports of the last start by listener name; empty in a new folder."""
        try:
            ports = json.loads(self._ports_file.read_text())
        except (OSError, ValueError):
            return {}
        return {str(name): int(port) for name, port in ports.items()} if isinstance(ports, dict) else {}

    def remember_ports(self, ports: dict[str, int]) -> None:
        """Keep the ports, so that clients of an earlier start find the brokers again."""
        self._ports_file.write_text(json.dumps(ports))

    @property
    def _ports_file(self) -> Path:
        return self.path / "ports.json"


def command_line(pid: int) -> str:
    """The command line of a running process, "" when there is none (a zombie has none either)."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    answer = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout


def _end(pid: int) -> None:
    """Stop a process that is not our child: in order first, then for good."""
    for signals in ((signal.SIGCONT, signal.SIGTERM), (signal.SIGKILL,)):
        for each in signals:
            try:
                os.kill(pid, each)
            except ProcessLookupError:
                return
        if _gone_within(pid, timeout_s=_ORPHAN_GRACE_S):
            return
    raise EmbeddedKafkaError(f"process {pid} of an earlier start does not end: kill it and try again")


def _gone_within(pid: int, *, timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if not command_line(pid):
            return True
        time.sleep(0.02)
    return False
