"""A steady stream of jobs for handlers: how late the handlers start."""

from __future__ import annotations

from noontide.testing.bench.lag import (
    DRAIN_S,
    SERIES,
    LagOptions,
    begin_stream,
    define_meanwhile,
)
from noontide.testing.bench.measure import percentiles
from noontide.testing.bench.stage import set_stage
from noontide.testing.bench.warmup import drained, warm_up
from noontide.testing.bench.way import way_of
from noontide.testing.bench.workers import (
    WARM_UP_ROUNDS,
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
    with set_stage(slots=options.slots) as stage, bench_worker(stage, concurrency=concurrency) as worker:
        target = to_handler(kind)
        warm_up(stage)
        warm_up_handlers(stage, target)
        stream = begin_stream(stage, options, target=target)
        costs, meter = stage.costs(), worker.meter
        with closings(stage, expected=options.jobs) as watcher:
            define_meanwhile(stage, stream, costs)
            drained(stage, watcher, timeout_s=DRAIN_S)
        cores = {**costs.cores(), "cpu_worker": meter.cores()}
        starts = worker.ended()
        dues = {number: stream.due_ms(number) for number in range(options.jobs)}
        tally, late_ms = tally_starts(starts, {run_of(SERIES, number, due): due for number, due in dues.items()})
        looked_at = {run_of(SERIES, number, due): due for number, due in dues.items() if number >= options.first}
        counted = sorted(late_ms[run] for run in looked_at if run in late_ms)
        return {
            "rate": options.rate,
            "seconds": options.seconds,
            "handler": kind,
            "concurrency": concurrency,
            **percentiles(counted),
            **way_of(stage, looked_at),
            **cores,
            "missing": tally.missing,
            "duplicates": tally.duplicates,
            "foreign": len(starts) - len(late_ms) - tally.duplicates - sum(WARM_UP_ROUNDS),
            "warnings": len(stage.scheduler.warnings()) + len(worker.warnings()),
        }
