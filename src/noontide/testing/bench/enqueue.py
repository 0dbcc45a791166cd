"""Definitions that are due long from now: how many per second are accepted and indexed."""

from __future__ import annotations

from dataclasses import dataclass

from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.load import PAYLOAD_BYTES, enqueue, one_off
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import set_stage
from noontide.testing.bench.warmup import warm_up

YEAR_MS = 365 * 86_400_000
SPREAD_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """jobs: definitions of jobs that are due a year ahead, spread over a month."""

    jobs: int


def run_enqueue(options: EnqueueOptions) -> dict[str, object]:
    """Run the bench: from the first produce to the last acceptance at a read_committed consumer of `jobs`."""
    first_ms = wall_now_ms() + YEAR_MS
    step_ms = max(1, SPREAD_MS // options.jobs)
    with set_stage() as stage:
        warm_up(stage)
        costs = stage.costs()
        jobs = (one_off("enqueue", number, first_ms + number * step_ms) for number in range(options.jobs))
        enqueued = enqueue(stage, jobs, expected=options.jobs, say=say, ahead_max=options.jobs)
        cores, used = costs.cores(), costs.scheduler.cores()
        return {
            "jobs": options.jobs,
            "payload_bytes": PAYLOAD_BYTES,
            "seconds": options.jobs / enqueued.accepted_per_second,
            "per_second": enqueued.accepted_per_second,
            "producer_per_second": enqueued.sent_per_second,
            **cores,
            "cpu_scheduler_us_per_job": used * 1_000_000 / enqueued.accepted_per_second,
            "rss_mb": costs.scheduler.look(),
            "warnings": len(stage.scheduler.warnings()),
        }
