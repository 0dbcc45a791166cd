"""Many runs held by a few real worker processes: what their heartbeats cost, and that no run is taken for lost."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.system_clock import wall_now_ms
from noontide.ports.record_log import TopicPartition
from noontide.testing.bench.heartbeats import LANE, SERIES, held_job
from noontide.testing.bench.load import enqueue
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage, set_stage
from noontide.testing.bench.warmup import drained
from noontide.testing.bench.workers import TIMEOUT_S, BenchWorker, bench_worker, closings, run_of, tally_starts

SETTLE_S: Final = 30
"""Time to define the jobs, to start all runs and for a round of heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOptions:
    """runs: held at the same time by so many worker processes, for so many seconds."""

    runs: int
    processes: int
    seconds: int


def run_held(options: HeldOptions) -> dict[str, object]:
    """Run the bench. expired: runs that were closed early, started twice or offered again."""
    hold_s, places = SETTLE_S + options.seconds, -(-options.runs // options.processes) + 500
    with set_stage() as stage, ExitStack() as stack:
        workers = [
            stack.enter_context(bench_worker(stage, concurrency=places, name=f"worker-{number}", hold_s=hold_s))
            for number in range(options.processes)
        ]
        watcher = stack.enter_context(closings(stage, expected=options.runs))
        at_ms = wall_now_ms()
        jobs = (held_job(number, at_ms) for number in range(options.runs))
        enqueue(stage, jobs, expected=options.runs, say=say)
        _pass_until(stage, at_ms + SETTLE_S * 1_000)
        costs, meters = stage.costs(), [each.meter for each in workers]
        _pass_until(stage, at_ms + hold_s * 1_000 - 1_000)
        cores = {**costs.cores(), "cpu_workers": sum(meter.cores() for meter in meters)}
        early = watcher.count
        closed = drained(stage, watcher, timeout_s=TIMEOUT_S)
        again = _offers(stage) - options.runs
        return {
            "runs": options.runs,
            "processes": options.processes,
            "seconds": options.seconds,
            **cores,
            "rss_mb": costs.scheduler.look(),
            "expired": early + again,
            **_starts(workers, options.runs, at_ms),
            "warnings": len(stage.scheduler.warnings()) + sum(len(each.warnings()) for each in workers),
            "closed": closed.records,
        }


def _starts(workers: list[BenchWorker], runs: int, at_ms: int) -> dict[str, object]:
    starts = [start for worker in workers for start in worker.ended()]
    tally, _ = tally_starts(starts, {run_of(SERIES, number, at_ms): at_ms for number in range(runs)})
    return {"missing": tally.missing, "duplicates": tally.duplicates}


def _offers(stage: Stage) -> int:
    """How often a run was offered."""
    name, replay = stage.layout.name("runs", lane=LANE), KafkaReplay(stage.connection)
    partitions = [TopicPartition(name, slot) for slot in range(stage.layout.slots)]
    ends = replay.stable_offsets(partitions)
    return sum(len(chunk) for chunk in replay.read(dict.fromkeys(partitions, 0), ends))


def _pass_until(stage: Stage, at_ms: int) -> None:
    left_s = (at_ms - wall_now_ms()) / 1_000
    if left_s <= 0:
        raise BenchError(f"the runs were not all defined within {SETTLE_S} s")
    stage.scheduler.pause(left_s)
