"""A steady stream of jobs: how late their records are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from noontide.adapters.system_clock import wall_now_ms
from noontide.core.ids import run_id
from noontide.testing.bench.arrivals import Arrival, Watch, Watcher
from noontide.testing.bench.load import TO_TOPIC, Job, Sending, enqueue, job_id, number_of, one_off
from noontide.testing.bench.measure import Costs, percentiles
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage, set_stage
from noontide.testing.bench.tally import tally
from noontide.testing.bench.warmup import drained, warm_up

SERIES = "lag"
MARGIN_MS = 5_000
BEFOREHAND_PER_SECOND = 2_000  # a careful guess, so that what is defined beforehand is accepted before the first is due
LEAD_MIN_MS, LEAD_SPREAD_MS, STRIDE = 2_000, 3_001, 7_919
DRAIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """rate: jobs due per second, evenly spread; seconds: for how long. Half of them are defined while it runs.

    settle_s: the stream runs so long before it counts for the times; its runs are counted all the same.
    slots: of the installation, all of them owned by its one scheduler.
    """

    rate: int
    seconds: int
    settle_s: int = 60
    slots: int = 8

    @property
    def jobs(self) -> int:
        """How many in all."""
        return self.rate * (self.settle_s + self.seconds)

    @property
    def first(self) -> int:
        """The number of the first job whose times count."""
        return self.rate * self.settle_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The jobs of one run: number k is due at `start_ms` + k / rate. Even ones are defined beforehand."""

    options: LagOptions
    start_ms: int
    target: bytes = TO_TOPIC

    def due_ms(self, number: int) -> int:
        """When a job is due."""
        return self.start_ms + number * 1_000 // self.options.rate

    def job(self, number: int) -> Job:
        """A job of the stream."""
        return one_off(SERIES, number, self.due_ms(number), target=self.target)

    def beforehand(self) -> Iterator[Job]:
        """Those that are defined before the first is due."""
        return (self.job(number) for number in range(0, self.options.jobs, 2))

    def meanwhile(self) -> list[tuple[int, int]]:
        """(when to define it, number) of the others, 2 to 5 s before they are due, in the order of definition."""
        numbers = range(1, self.options.jobs, 2)
        return sorted((self.due_ms(each) - LEAD_MIN_MS - each * STRIDE % LEAD_SPREAD_MS, each) for each in numbers)


def run_lag(options: LagOptions) -> dict[str, object]:
    """Run the bench; see `LagOptions`. The headline is arrival at a read_committed consumer minus due."""
    with set_stage(slots=options.slots) as stage:
        warm_up(stage)
        stream = begin_stream(stage, options, target=TO_TOPIC)
        costs = stage.costs()
        watch = Watch.from_end(stage.connection, stage.target, expected=options.jobs, wants_each=True)
        with Watcher(watch) as watcher:
            define_meanwhile(stage, stream, costs)
            watched = drained(stage, watcher, timeout_s=DRAIN_S)
        cores = {**costs.cores(), "rss_mb": costs.scheduler.look()}
        counted = tally(stage.connection, watch.positions, expected=options.jobs, number_of_run=_numbered(stream))
        return {
            "rate": options.rate,
            "seconds": options.seconds,
            **_lateness(stream, watched.arrivals),
            **cores,
            "missing": counted.missing,
            "duplicates": counted.duplicates,
            "foreign": counted.foreign,
            "warnings": len(stage.scheduler.warnings()),
        }


def begin_stream(stage: Stage, options: LagOptions, *, target: bytes) -> Stream:
    """A stream whose first half is defined. Raises BenchError when that took until jobs had to be defined meanwhile."""
    ahead_ms = LEAD_MIN_MS + LEAD_SPREAD_MS
    lead_ms = MARGIN_MS + options.jobs // 2 * 1_000 // BEFOREHAND_PER_SECOND + ahead_ms
    stream = Stream(options=options, start_ms=wall_now_ms() + lead_ms, target=target)
    enqueue(stage, stream.beforehand(), expected=-(-options.jobs // 2), say=say)
    if wall_now_ms() > stream.start_ms - ahead_ms:
        raise BenchError("defining the first half took too long: the lag would be that of definitions")
    return stream


def define_meanwhile(stage: Stage, stream: Stream, costs: Costs) -> None:
    """Send each job of the second half at its moment; `costs` count from the first job that counts."""
    plan, sending, at, started = stream.meanwhile(), Sending(stage), 0, False
    say(f"{stream.options.rate:,} jobs due per second for {stream.options.seconds} s")
    while at < len(plan):
        now_ms = wall_now_ms()
        if not started and now_ms >= stream.due_ms(stream.options.first):
            started = True
            costs.reset()
        first = at
        while at < len(plan) and plan[at][0] <= now_ms:
            at += 1
        sending.send(stream.job(number) for _, number in plan[first:at])
        sending.poll()
        stage.scheduler.pause(0.005)
    sending.flush()


def _lateness(stream: Stream, arrivals: list[Arrival]) -> dict[str, object]:
    """Percentiles of arrival at the consumer, and of the append of the record, minus due."""
    numbered = [(number_of(each.key), each) for each in arrivals]
    dues = [(stream.due_ms(number), each) for number, each in numbered if number >= stream.options.first]
    arrived = sorted(each.arrived_ms - due_ms for due_ms, each in dues)
    appended = sorted(each.appended_ms - due_ms for due_ms, each in dues)
    return {**percentiles(arrived), **percentiles(appended, prefix="append_")}


def _numbered(stream: Stream) -> Callable[[str], int | None]:
    """Which job of the stream a run id is; see `tally`."""

    def number_of_run(run: str) -> int | None:
        number = number_of(run.rpartition(":")[0].encode())
        ours = number < stream.options.jobs and run == run_id(job_id(SERIES, number), stream.due_ms(number), 1)
        return number if ours else None

    return number_of_run
