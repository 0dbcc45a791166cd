"""`noontide dev` as a person uses it: start it, add jobs from another terminal, kill it, start it again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
COMMAND = [sys.executable, "-c", "from noontide.apps.cli.main import main; main()"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("NOONTIDE_")}
START_WITHIN_S = 40


class Dev:
    """One `noontide dev` after another on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bootstrap = ""
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        """What the latest process has written."""
        return (self.folder / f"dev.{self._starts}.log").read_text("utf-8")

    def start(self, *options: str) -> None:
        """Start it and wait until it owns its slots."""
        self._starts += 1
        with (self.folder / f"dev.{self._starts}.log").open("wb") as log:
            arguments = [*COMMAND, "dev", "--data", str(self.folder / "data"), "--port", "0", *options]
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log, env=ENVIRONMENT)
        deadline_s = time.monotonic() + START_WITHIN_S
        while self.output.count(": owned after") < 4:
            assert time.monotonic() < deadline_s, self.output
            assert self._process.poll() is None, self.output
            time.sleep(0.02)
        found = re.search(r"Kafka is at (\S+);", self.output)
        assert found is not None
        self.bootstrap = found[1]

    def end(self, signum: signal.Signals) -> int:
        """Send a signal and wait; returns the exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(signum)
        return process.wait(30)

    def run(self, *arguments: str) -> list[dict[str, object]]:
        """A command in another terminal; its JSON Lines."""
        return [json.loads(line) for line in self.command(*arguments, "--json").splitlines()]

    def command(self, *arguments: str) -> str:
        """A command in another terminal; what it prints."""
        command = [*COMMAND, *arguments, "--bootstrap", self.bootstrap]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def runs_of(self, job_id: str, count: int) -> list[dict[str, object]]:
        """At least so many finished runs of a job, oldest first."""
        deadline_s = time.monotonic() + 20
        while len(found := self.run("runs", "list", "--job", job_id, "--limit", "1000")) < count:
            assert time.monotonic() < deadline_s, (found, self.output)
        return sorted(found, key=lambda run: str(run["due"]))

    def close(self) -> None:
        """End what still runs."""
        if self._process is not None:
            self.end(signal.SIGTERM)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    made = Dev(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_jobs_survive_whatever_happens_to_dev(dev: Dev) -> None:
    dev.start()
    admin = AdminClient({"bootstrap.servers": dev.bootstrap, "log_level": 2})
    admin.create_topics([NewTopic("hello", num_partitions=1, replication_factor=1)])["hello"].result(10)
    dev.run("jobs", "add", "--every", "1s", "--topic", "hello", "--id", "ticks")
    first = dev.runs_of("ticks", 2)
    assert {run["state"] for run in first} == {"succeeded"}
    assert dev.end(signal.SIGTERM) == 0

    dev.start()
    assert [job["id"] for job in dev.run("jobs", "list")] == ["ticks"]
    dev.runs_of("ticks", len(first) + 2)
    assert dev.end(signal.SIGKILL) == -signal.SIGKILL

    dev.start()
    runs = dev.runs_of("ticks", len(first) + 4)
    ids = [run["run_id"] for run in runs]
    assert len(set(ids)) == len(ids)
    dev.command("jobs", "delete", "ticks")
    assert dev.run("jobs", "list") == []
    assert "Traceback" not in dev.output
