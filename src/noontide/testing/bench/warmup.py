"""Work before the measurement, so that what is measured is a process that runs and not one that has just started.

The broker compiles its code while it works and both sides fill their caches; the first jobs after a start are several
times slower than the rest.
"""

from __future__ import annotations

import time
from typing import Final

from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.arrivals import Watch, Watched, Watcher
from noontide.testing.bench.load import enqueue, one_off
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage

JOBS_MAX: Final = 5_000
DRAIN_TIMEOUT_S: Final = 120.0


def warm_up(stage: Stage, *, jobs: int = JOBS_MAX) -> float:
    """Define and run jobs that are due at once, twice; returns how many per second were accepted the second time."""
    count = min(JOBS_MAX, jobs)
    per_second = 0.0
    for series in ("cold", "warm"):
        at_ms = wall_now_ms()
        with Watcher(Watch.from_end(stage.connection, stage.target, expected=count)) as watcher:
            jobs_due_now = (one_off(series, number, at_ms) for number in range(count))
            per_second = enqueue(stage, jobs_due_now, expected=count, say=say).accepted_per_second
            if drained(stage, watcher, timeout_s=DRAIN_TIMEOUT_S).records < count:
                raise BenchError("the jobs of the warm-up did not all run")
    return per_second


def drained(stage: Stage, watcher: Watcher, *, timeout_s: float) -> Watched:
    """What a consumer saw once it has everything, or until the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while (watched := watcher.poll(0.1)) is None:
        stage.scheduler.pause(0.001)
        if time.monotonic() > deadline_s:
            return watcher.stop()
    return watched
