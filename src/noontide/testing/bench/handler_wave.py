"""Many jobs for handlers due at one instant: how long until the last handler has started."""

from __future__ import annotations

from dataclasses import dataclass

from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.load import enqueue, one_off
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage, set_stage
from noontide.testing.bench.warmup import drained, warm_up
from noontide.testing.bench.wave import MARGIN_S, READY_MS, SAFETY, pass_until
from noontide.testing.bench.workers import (
    CONCURRENCY,
    TIMEOUT_S,
    BenchWorker,
    bench_worker,
    closings,
    run_of,
    tally_starts,
    to_handler,
    warm_up_handlers,
)

SERIES = "handler-wave"
WARM_UP_ROUNDS = (5_000, *[20_000] * 5)
"""Until the broker's compiler is done: in its first 100,000 runs that takes a third of the broker's processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerWaveOptions:
    """jobs: due together. kind: `coroutine` or `thread`. concurrency: of the one worker process. lead_s: see wave."""

    jobs: int
    kind: str = "coroutine"
    concurrency: int = CONCURRENCY
    lead_s: float | None = None


def run_handler_wave(options: HandlerWaveOptions) -> dict[str, object]:
    """Run the bench. Raises BenchError when enqueueing was not finished before the instant.

    A start is noted by the handler itself, in the worker process, on the clock of this machine.
    """
    with set_stage() as stage, bench_worker(stage, concurrency=options.concurrency) as worker:
        target = to_handler(options.kind)
        per_second = warm_up(stage)
        warm_up_handlers(stage, target, rounds=WARM_UP_ROUNDS)
        estimate_s = MARGIN_S + SAFETY * options.jobs / per_second if options.lead_s is None else options.lead_s
        at_ms = wall_now_ms() // 1_000 * 1_000 + round(estimate_s) * 1_000
        say(f"enqueueing {options.jobs:,} jobs due in {(at_ms - wall_now_ms()) / 1000:.0f} s")
        jobs = (one_off(SERIES, number, at_ms, target=target) for number in range(options.jobs))
        enqueued = enqueue(stage, jobs, expected=options.jobs, say=say)
        if wall_now_ms() > at_ms - READY_MS:
            raise BenchError(f"enqueueing took longer than {estimate_s:.0f} s, until all are due; try a --lead")
        figures = _measured(stage, worker, options, at_ms)
        return {
            "jobs": options.jobs,
            "handler": options.kind,
            "concurrency": options.concurrency,
            **figures,
            "enqueue_per_second": enqueued.accepted_per_second,
            "warnings": len(stage.scheduler.warnings()) + len(worker.warnings()),
        }


def _measured(stage: Stage, worker: BenchWorker, options: HandlerWaveOptions, at_ms: int) -> dict[str, object]:
    with closings(stage, expected=options.jobs) as watcher:
        pass_until(stage, at_ms)
        costs, worker_meter = stage.costs(), worker.meter
        closed = drained(stage, watcher, timeout_s=TIMEOUT_S)
        used = {"scheduler": costs.scheduler, "broker": costs.broker, "worker": worker_meter}
        cores = {**costs.cores(), "cpu_worker": worker_meter.cores()}
        cost_us = {name: meter.cores() * _since_s(at_ms) * 1_000_000 / options.jobs for name, meter in used.items()}
        rss_mb = {"rss_mb": costs.scheduler.look(), "rss_worker_mb": worker_meter.look()}
    wanted = {run_of(SERIES, number, at_ms): at_ms for number in range(options.jobs)}
    starts = worker.ended()
    tally, late_ms = tally_starts(starts, wanted)
    seconds = max(late_ms.values(), default=0) / 1_000
    return {
        "seconds": seconds,
        "per_second": len(late_ms) / max(seconds, 0.001),
        "first_ms": min(late_ms.values(), default=0),
        "closed_seconds": (closed.last_ms - at_ms) / 1_000,
        **cores,
        **{f"cpu_{name}_us_per_job": each for name, each in cost_us.items()},
        **rss_mb,
        "duplicates": tally.duplicates,
        "missing": tally.missing,
        "foreign": len(starts) - len(late_ms) - tally.duplicates - sum(WARM_UP_ROUNDS),
    }


def _since_s(at_ms: int) -> float:
    return (wall_now_ms() - at_ms) / 1_000
