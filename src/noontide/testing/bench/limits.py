"""Permits per second: runs of a capped tenant that take no time, from the instant they are due until all are closed."""

from __future__ import annotations

from dataclasses import dataclass

from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.flood import KafkaTopics, configure, limited_job
from noontide.testing.bench.load import enqueue
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, set_stage
from noontide.testing.bench.warmup import drained, warm_up
from noontide.testing.bench.workers import TIMEOUT_S, bench_worker, closings, to_handler, warm_up_handlers
from noontide.testing.permits_judge import leaked_permits, most_permits

TENANT = "capped"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOptions:
    """runs: how many. cap: of their tenant; 0 = none, to compare. places: of the one worker."""

    runs: int = 20_000
    cap: int = 1_000
    places: int = 1_000


def run_limits(options: LimitsOptions) -> dict[str, object]:
    """Run the bench."""
    with set_stage() as stage, bench_worker(stage, concurrency=options.places):
        if options.cap:
            configure(stage, f"tenant/{TENANT}", {"concurrency_max": options.cap})
        per_second = warm_up(stage)
        warm_up_handlers(stage, to_handler("brief"))
        at_ms = wall_now_ms() // 1_000 * 1_000 + round(1_000 * (5 + 1.5 * options.runs / per_second))
        jobs = (limited_job(f"{TENANT}-{each:06d}", TENANT, "brief", at_ms) for each in range(options.runs))
        enqueue(stage, jobs, expected=options.runs, say=say)
        if wall_now_ms() > at_ms:
            raise BenchError("enqueueing took longer than the time until all are due")
        with closings(stage, expected=options.runs) as watcher:
            stage.scheduler.pause(max(0, at_ms - wall_now_ms()) / 1_000)
            costs = stage.costs()
            closed = drained(stage, watcher, timeout_s=TIMEOUT_S)
        seconds = (closed.last_ms - at_ms) / 1_000
        topics = KafkaTopics(stage)
        most = most_permits(topics.records(stage.layout.name("leases")), f"tenant/{TENANT}") if options.cap else 0
        return {
            "runs": options.runs,
            "cap": options.cap,
            "permits_per_second": closed.records / seconds,
            "seconds": seconds,
            **costs.cores(),
            "missing": options.runs - closed.records,
            "over_cap": max(0, most - options.cap) if options.cap else 0,
            "leaked_permits": leaked_permits(topics),
        }
