"""How fast a target that is in trouble gets its runs: halved when it says so, raised a little with each that succeeds.

Additive increase, multiplicative decrease, as congestion control does it: many that share a target find a rate that it
bears without knowing of each other. A target that recovers is soon left alone; one that is down is tried once a minute.
"""

from __future__ import annotations

from typing import NamedTuple

START_PER_SECOND = 10.0
"""The rate from which the first sign of trouble counts."""
STEP_PER_SECOND = 0.5
"""What each success adds."""
FREE_PER_SECOND = 50.0
"""From here on the target is left alone."""
LEAST_PER_SECOND = 1 / 60
"""One run a minute: the probe."""
PATIENCE_MS = 1_000
"""Troubles within so long of each other are one: runs that failed together say one thing."""


class Pace(NamedTuple):
    """per_second: runs offered. next_ms: when the next one may be; slowed_ms: when it was last halved; why: for people.

    tail_ms: when a run that is put off now may hope for its turn.
    """

    per_second: float
    next_ms: int
    slowed_ms: int
    why: str
    tail_ms: int = 0

    @property
    def interval_ms(self) -> int:
        """Between one run and the next."""
        return max(1, round(1_000 / self.per_second))


def slowed(pace: Pace | None, *, now_ms: int, wait_ms: int, why: str) -> Pace:
    """The target was in trouble. wait_ms: how long it asked to be left alone."""
    if pace is None:
        pace = Pace(START_PER_SECOND, now_ms, now_ms - PATIENCE_MS, why)
    next_ms = max(pace.next_ms, now_ms + wait_ms)
    if now_ms - pace.slowed_ms < PATIENCE_MS:
        return pace._replace(next_ms=next_ms, why=why)
    per_second = max(LEAST_PER_SECOND, pace.per_second / 2)
    return pace._replace(per_second=per_second, next_ms=next_ms, slowed_ms=now_ms, why=why)


def eased(pace: Pace, *, now_ms: int) -> Pace | None:
    """A run succeeded; None when the target is well enough to be left alone."""
    per_second = pace.per_second + STEP_PER_SECOND
    if per_second >= FREE_PER_SECOND:
        return None
    sooner = pace._replace(per_second=per_second)
    return sooner._replace(next_ms=min(pace.next_ms, now_ms + sooner.interval_ms))
