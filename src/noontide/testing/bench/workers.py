"""A worker process on the stage of a bench, and the starts of its handlers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from noontide.adapters.system_clock import wall_now_ms
from noontide.core.ids import run_id
from noontide.testing.bench.arrivals import Watch, Watcher
from noontide.testing.bench.load import Job, enqueue, job_id, one_off
from noontide.testing.bench.measure import Meter
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage
from noontide.testing.bench.tally import Tally
from noontide.testing.bench.warmup import drained
from noontide.testing.child_process import ChildProcess, noontide

CONCURRENCY: Final = 100
WARM_UP_ROUNDS: Final = (5_000, 5_000)
TIMEOUT_S: Final = 300.0
KINDS: Final = ("coroutine", "thread")


class Started(NamedTuple):
    """A start of a handler, by the wall clock of this machine."""

    run_id: str
    at_ms: int


@dataclass(slots=True, kw_only=True)
class BenchWorker:
    """`noontide worker` with its shipped defaults, but for the concurrency. starts_file: see `bench.handlers`."""

    process: ChildProcess
    starts_file: Path
    concurrency: int

    @property
    def meter(self) -> Meter:
        """Its processor time and memory."""
        return Meter(self.process.pid)

    def ended(self) -> list[Started]:
        """End it as an operator would; all starts."""
        self.process.terminate()
        lines = self.starts_file.read_text().splitlines()
        return [Started(run, int(at_ms)) for run, _, at_ms in (line.partition(" ") for line in lines)]

    def warnings(self) -> list[str]:
        """Lines of its log above INFO."""
        return [line for line in self.process.text.splitlines() if " WARNING " in line or " ERROR " in line]


@contextmanager
def bench_worker(
    stage: Stage, *, concurrency: int = CONCURRENCY, loopback: bool = False, name: str = "worker", hold_s: float = 0
) -> Iterator[BenchWorker]:
    """A worker that has begun to take runs. name: of its files; hold_s: see `bench.handlers`."""
    starts_file = stage.folder / f"{name}-starts.txt"
    command = noontide(
        "worker", "noontide.testing.bench.handlers", "--bootstrap", stage.kafka.bootstrap,
        "--prefix", stage.layout.prefix, "--concurrency", str(concurrency),
    )  # fmt: skip
    if loopback:
        command += ("--allow-loopback",)
    variables = {"BENCH_STARTS": str(starts_file), "BENCH_HOLD_S": str(hold_s)}
    process = ChildProcess(command=command, log=stage.folder / f"{name}.log", variables=variables)
    with process.start():
        process.until_logged("lane default:")
        yield BenchWorker(process=process, starts_file=starts_file, concurrency=concurrency)


def to_handler(kind: str) -> bytes:
    """The target of a job for one of the handlers."""
    return b'{"handler":"%s"}' % kind.encode()


def closings(stage: Stage, *, expected: int) -> Watcher:
    """Counts runs that are closed from now on."""
    return Watcher(Watch.from_end(stage.connection, stage.partitions("executions"), expected=expected))


def warm_up_handlers(stage: Stage, target: bytes, *, rounds: Sequence[int] = WARM_UP_ROUNDS) -> None:
    """Runs from before the measurement, as in processes that were not started just now. rounds: runs of each."""
    for number, count in enumerate(rounds):
        at_ms = wall_now_ms()
        with closings(stage, expected=count) as watcher:
            jobs: Iterator[Job] = (one_off(f"warm-{number}", each, at_ms, target=target) for each in range(count))
            enqueue(stage, jobs, expected=count, say=say)
            if drained(stage, watcher, timeout_s=TIMEOUT_S).records < count:
                raise BenchError("the runs of the warm-up did not all end")


def tally_starts(starts: list[Started], wanted: dict[str, int]) -> tuple[Tally, dict[str, int]]:
    """Compare with the runs that had to start (id to due time); the first start of each minus due, in ms."""
    late: dict[str, int] = {}
    duplicates = 0
    for run, at_ms in starts:
        if run in late:
            duplicates += 1
        elif run in wanted:
            late[run] = at_ms - wanted[run]
    missing = len(wanted) - len(late)
    return Tally(missing=missing, duplicates=duplicates, foreign=0), late


def run_of(series: str, number: int, due_ms: int) -> str:
    """Id of the run of a job of `load`."""
    return run_id(job_id(series, number), due_ms, 1)
