"""A steady stream of jobs for handlers: how late the handlers start."""

from __future__ import annotations

from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.lag import (
    BEFOREHAND_PER_SECOND,
    DRAIN_S,
    LEAD_MIN_MS,
    LEAD_SPREAD_MS,
    MARGIN_MS,
    SERIES,
    LagOptions,
    Stream,
    define_meanwhile,
)
from noontide.testing.bench.load import enqueue
from noontide.testing.bench.measure import percentile
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, set_stage
from noontide.testing.bench.warmup import drained, warm_up
from noontide.testing.bench.workers import (
    WARM_UP_JOBS,
    bench_worker,
    closings,
    run_of,
    tally_starts,
    to_handler,
    warm_up_handlers,
)


def run_handler_lag(options: LagOptions, *, kind: str, concurrency: int) -> dict[str, object]:
    """Run the bench. The headline is the start of the handler, noted by itself, minus due.

    kind: `coroutine` or `thread`. concurrency: of the one worker process.
    """
    with set_stage() as stage, bench_worker(stage, concurrency=concurrency) as worker:
        target = to_handler(kind)
        warm_up(stage)
        warm_up_handlers(stage, target)
        lead_ms = MARGIN_MS + options.jobs // 2 * 1_000 // BEFOREHAND_PER_SECOND + LEAD_MIN_MS + LEAD_SPREAD_MS
        stream = Stream(options=options, start_ms=wall_now_ms() + lead_ms, target=target)
        enqueue(stage, stream.beforehand(), expected=-(-options.jobs // 2), say=say)
        if wall_now_ms() > stream.start_ms - LEAD_MIN_MS - LEAD_SPREAD_MS:
            raise BenchError("defining the first half took too long: the lag would be that of definitions")
        costs, meter = stage.costs(), worker.meter
        with closings(stage, expected=options.jobs) as watcher:
            define_meanwhile(stage, stream, costs)
            drained(stage, watcher, timeout_s=DRAIN_S)
        cores = {**costs.cores(), "cpu_worker": meter.cores()}
        starts = worker.ended()
        dues = {number: stream.due_ms(number) for number in range(options.jobs)}
        tally, late_ms = tally_starts(starts, {run_of(SERIES, number, due): due for number, due in dues.items()})
        counted = sorted(
            late_ms[run]
            for number, due in dues.items()
            if number >= options.first and (run := run_of(SERIES, number, due)) in late_ms
        )
        return {
            "rate": options.rate,
            "seconds": options.seconds,
            "handler": kind,
            "concurrency": concurrency,
            "p50_ms": percentile(counted, 0.50),
            "p99_ms": percentile(counted, 0.99),
            "max_ms": percentile(counted, 1.0),
            **cores,
            "missing": tally.missing,
            "duplicates": tally.duplicates,
            "foreign": len(starts) - len(late_ms) - tally.duplicates - 2 * WARM_UP_JOBS,
            "warnings": len(stage.scheduler.warnings()) + len(worker.warnings()),
        }
