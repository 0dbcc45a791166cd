"""Many jobs of which none is due: what the processes cost meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass

from noontide.actors.settings import SchedulerSettings
from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.load import enqueue, one_off
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import Stage, set_stage

YEAR_MS = 365 * 86_400_000
SPREAD_MS = 30 * 86_400_000
QUIET_CORES, QUIET_LOOK_S, QUIET_TIMEOUT_S = 0.1, 2.0, 120.0
FLUSHED_S = SchedulerSettings().checkpoint_ms / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleOptions:
    """jobs: armed and due a year ahead; seconds: how long to measure once flushes and compactions are over."""

    jobs: int
    seconds: int


def run_idle(options: IdleOptions) -> dict[str, object]:
    """Run the bench."""
    first_ms = wall_now_ms() + YEAR_MS
    step_ms = max(1, SPREAD_MS // options.jobs)
    with set_stage() as stage:
        jobs = (one_off("idle", number, first_ms + number * step_ms) for number in range(options.jobs))
        enqueue(stage, jobs, expected=options.jobs, say=say)
        settled_s = settle(stage)
        costs = stage.costs()
        say(f"measuring for {options.seconds} s")
        stage.scheduler.pause(options.seconds)
        return {
            "jobs": options.jobs,
            "seconds": options.seconds,
            **costs.cores(),
            "rss_mb": costs.scheduler.look(),
            "broker_rss_mb": costs.broker.look(),
            "settled_after_s": settled_s,
            "warnings": len(stage.scheduler.warnings()),
        }


def settle(stage: Stage) -> float:
    """Wait until the scheduler uses less than a tenth of a core, two minutes at most; returns how long it took.

    Not before every index was flushed: until then it looks like rest, but compactions of the work before are to come.
    """
    began_s = time.monotonic()
    stage.scheduler.pause(FLUSHED_S)
    while time.monotonic() - began_s < FLUSHED_S + QUIET_TIMEOUT_S:
        scheduler = stage.scheduler.meter
        stage.scheduler.pause(QUIET_LOOK_S)
        if scheduler.cores() < QUIET_CORES:
            break
    return time.monotonic() - began_s
