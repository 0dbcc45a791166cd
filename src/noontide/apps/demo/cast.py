"""Who plays in the demo: schedulers, workers, and the HTTP target, each a process of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from noontide.apps.cli.common import Fault
from noontide.apps.demo.processes import Process, start, stop_all
from noontide.apps.demo.stage import Stage

HANDLERS: Final = "noontide.examples.handlers"
_TAKEN: Final = re.compile(r"slot (\d+): owned after")
_ASSIGNED: Final = re.compile(r"slots: (none|\d+(?:, \d+)*)")
_WORKER: Final = re.compile(r"worker (w-[0-9a-f]+)")
_LISTENS: Final = re.compile(r"lane default: (share|classic) group")
_LISTENING: Final = re.compile(r"listening on (\S+)")


@dataclass(slots=True, kw_only=True)
class Cast:
    """The processes."""

    schedulers: list[Process]
    workers: list[Process]
    http_target: Process
    dismissed: set[Process] = field(default_factory=set)

    def in_words(self) -> str:
        """Who is on stage."""
        numbers = {1: "A scheduler and a worker", 2: "Two schedulers and two workers"}
        return numbers[len(self.schedulers)]

    def http_address(self) -> str:
        """Host and port of the HTTP target, once it listens."""
        return self.http_target.await_said(_LISTENING)[1]

    def await_workers(self) -> None:
        """Wait until all workers are up. Raises Fault when one is not."""
        for worker in self.workers:
            worker.await_said(_LISTENS)

    def workers_by_id(self) -> dict[str, Process]:
        """Running workers by the id they go by on topics."""
        running = [worker for worker in self.workers if worker.code is None]
        return {found[1]: worker for worker in running if (found := _WORKER.search(worker.said()))}

    def kill(self, process: Process) -> None:
        """kill -9, on purpose."""
        self.dismissed.add(process)
        process.kill()

    def check(self) -> None:
        """Raises Fault when a process has ended that was not killed on purpose."""
        for process in (*self.schedulers, *self.workers, self.http_target):
            if process.code is not None and process not in self.dismissed:
                raise Fault(f"{process.name} {process.fate()}: {process.last_words()}")


def assigned_slots(scheduler: Process) -> tuple[int, ...]:
    """The slots a scheduler was given last."""
    said = _ASSIGNED.findall(scheduler.said())
    return tuple(map(int, said[-1].split(", "))) if said and said[-1] != "none" else ()


def slots_taken(scheduler: Process, *, after: int) -> frozenset[int]:
    """The slots a scheduler has begun to own; after: how many characters it had said before."""
    return frozenset(int(found[1]) for found in _TAKEN.finditer(scheduler.said()[after:]))


@contextmanager
def on_stage(stage: Stage, *, doubled: bool) -> Iterator[Cast]:
    """Start everybody, two schedulers and two workers if `doubled`; at the end workers stop before schedulers."""
    numbers = range(1, 3 if doubled else 2)
    cast = Cast(
        schedulers=[_scheduler(stage, number) for number in numbers],
        workers=[_worker(stage, number) for number in numbers],
        http_target=_http_target(stage),
    )
    try:
        yield cast
    except Fault:
        cast.check()  # a process that has ended says more than who waited for it
        raise
    finally:
        stop_all(cast.workers)
        stop_all([*cast.schedulers, cast.http_target])


def _scheduler(stage: Stage, number: int) -> Process:
    options = ["scheduler", *_brokers(stage), "--data", str(stage.data / f"scheduler-{number}")]
    return start(f"scheduler {number}", "noontide.apps.cli.main", options, log=stage.data / f"scheduler-{number}.log")


def _worker(stage: Stage, number: int) -> Process:
    options = ["worker", HANDLERS, *_brokers(stage), "--allow-loopback", "--concurrency", "8", "--drain", "5s"]
    return start(f"worker {number}", "noontide.apps.cli.main", options, log=stage.data / f"worker-{number}.log")


def _http_target(stage: Stage) -> Process:
    log = stage.data / "http-target.log"
    return start("the HTTP target", "noontide.examples.http_server", ["--port", "0"], log=log)


def _brokers(stage: Stage) -> list[str]:
    return ["--bootstrap", stage.cluster.bootstrap, "--prefix", stage.cluster.prefix]
