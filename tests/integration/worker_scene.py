"""Schedulers, workers and jobs of tests, and what the topics say of the runs."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.integration.installation import Document, Headers, Installation, Seen, eventually
from tests.integration.scheduler_process import SchedulerProcess

from noontide.adapters.kafka.topics import ensure_topics
from noontide.testing.child_process import ChildProcess, noontide

HANDLERS = "tests.integration.worker_handlers"


@dataclass(slots=True, kw_only=True)
class Scene:
    """An installation with lanes, a topic of starts, and processes that end with it."""

    installation: Installation
    folder: Path
    starts_topic: str
    processes: list[ChildProcess | SchedulerProcess] = field(default_factory=list)

    @classmethod
    @contextmanager
    def set(cls, bootstrap: str, folder: Path, *, slots: int = 2) -> Iterator[Scene]:
        """A scene without processes."""
        prefix = f"t{uuid.uuid4().hex[:8]}."
        with Installation.create(bootstrap, prefix, partitions=8, slots=slots) as installation:
            ensure_topics(bootstrap, installation.layout)
            starts = installation.create_topic("starts", partitions=1)
            scene = cls(installation=installation, folder=folder, starts_topic=starts)
            try:
                yield scene
            finally:
                for process in scene.processes:
                    process.close()

    # --- processes

    def scheduler(self, name: str = "scheduler", *, group: str | None = None) -> SchedulerProcess:
        """A scheduler, not started."""
        process = SchedulerProcess(self.installation, self.folder / name, group=group)
        self.processes.append(process)
        return process

    def worker(self, name: str = "worker", *options: str) -> ChildProcess:
        """A worker, as soon as it is about to join its group."""
        layout = self.installation.layout
        command = noontide("worker", HANDLERS, "--bootstrap", self.installation.bootstrap, "--prefix", layout.prefix)
        variables = {"STARTS_BOOTSTRAP": self.installation.bootstrap, "STARTS_TOPIC": self.starts_topic}
        process = ChildProcess(command=[*command, *options], log=self.folder / f"{name}.log", variables=variables)
        self.processes.append(process.start())
        return process.until_logged(": classic group" if "classic" in options else ": share group")

    # --- jobs

    def define(self, job_id: str, *, handler: str = "act", headers: Headers = (), **fields: object) -> str:
        """A job that is due within a second, with a short lease; returns the id of its run. headers: of the request."""
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
        document: Document = {
            "schedule": {"at": at.isoformat()},
            "target": f"handler:{handler}",
            "lease": "PT3S",
            "retry": {"max_attempts": 5, "backoff": ["PT0.2S"]},
            **fields,
        }
        self.installation.request(job_id, document, headers=headers)
        return f"{job_id}:{at:%Y%m%dT%H%M%SZ}"

    # --- what became of them

    def starts(self, run_id: str, count: int = 1) -> list[dict[str, object]]:
        """At least so many starts of a run, in their order."""
        return [each.document for each in self.installation.log(self.starts_topic).of_key(run_id, count)]

    def closed(self, run_id: str) -> dict[str, object]:
        """The one line of history of a closed run."""
        (line,) = self.installation.log("executions").of_key(run_id)
        return line.document

    def result(self, run_id: str) -> dict[str, object]:
        """The one accepted end of a run."""
        found = self.installation.log("results").of_key(run_id.rpartition(":")[0])
        (result,) = (each.document for each in found if each.document["run_id"] == run_id)
        return result

    def ends(self, run_id: str) -> int:
        """How often workers have said that the run has ended, accepted or not."""
        events = self.installation.log("worker-events.default").look()
        return sum(run == run_id for each in events for run in _ends(each))

    def await_ends(self, run_id: str, count: int) -> None:
        """Wait until that was said so often."""
        eventually(lambda: self.ends(run_id) >= count, what=f"{count} ends of {run_id}")

    def assert_each_once(self) -> None:
        """No grant was started, closed or published twice, and a result has the token of the line of history."""

        def ended(topic: str) -> Counter[tuple[str, object]]:
            return Counter(map(_grant, self.installation.log(topic).look()))

        # What a transaction wrote to two topics does not become readable on both at once.
        eventually(lambda: set(ended("results")) == set(ended("executions")), what="results as in the history")
        for topic in ("executions", "results", self.starts_topic):
            assert not [each for each, count in ended(topic).items() if count > 1]


def _ends(record: Seen) -> list[str]:
    """Run ids of the ends in a record of worker events."""
    ends = record.document.get("ends", [])
    assert isinstance(ends, list)
    return [end["run_id"] for end in ends]


def _grant(record: Seen) -> tuple[str, object]:
    return str(record.document["run_id"]), record.document["token"]
