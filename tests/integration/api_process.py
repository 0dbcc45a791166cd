"""`noontide api` as a child process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.integration.installation import Installation, eventually

START_S = 120.0
SECRET = "a secret of these tests"
_COMMAND = "from noontide.apps.cli.main import main; main()"


class ApiProcess:
    """One API process after another on the port that the first one took."""

    def __init__(
        self,
        installation: Installation,
        folder: Path,
        *,
        name: str = "api",
        options: tuple[str, ...] = ("--no-access",),
    ) -> None:
        self.url = ""
        self._installation = installation
        self._log_path = folder / f"{name}.log"
        self._options = options
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has written."""
        return self._log_path.read_text("utf-8", errors="replace")

    def start(self) -> Self:
        """Start it and wait until it answers."""
        at = ["--bootstrap", self._installation.bootstrap, "--prefix", self._installation.layout.prefix]
        arguments = [sys.executable, "-c", _COMMAND, "api", *at, "--port", str(self._port), *self._options]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log, env=environment())
        eventually(lambda: "API at" in self.log or not self._running, within_s=START_S, what="the API answers")
        found = re.search(r"API at (http://\S+:(\d+))", self.log)
        assert found is not None, self.log
        self.url, self._port = found[1], int(found[2])
        return self

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Ask it to end; returns its exit code."""
        return self._end(signal.SIGTERM)

    def close(self) -> None:
        """End it if it still runs."""
        if self._running:
            self.kill()
        elif self._process is not None:
            self._process.wait()

    def _end(self, signum: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(signum)
        return self._process.wait(30)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def environment() -> dict[str, str]:
    """Nothing of the settings of whoever runs the tests, but the secret."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("NOONTIDE_")}
    return {**own, "NOONTIDE_INTERNAL_SECRET": SECRET}
