"""How many workers a lane needs, so that what waits and what is to come is done in time.

    places  = max( (ready + queued + coming) x mean / window,      everything within the window
                   fullest minute x mean / minute,                 and the fullest minute as it comes
                   running )                                       and nobody is sent away with work in hand
    workers = places / (concurrency x utilisation), rounded up

Runs that wait for a permit, a retry or an upstream are no demand: more workers would not help them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from noontide.core.durations import MINUTE_MS


class Load(NamedTuple):
    """What a lane has to do. mean_ms: what a run takes; None = not known yet. coming: runs of each minute to come."""

    ready: int
    queued: int
    running: int
    mean_ms: float | None
    coming: Sequence[int]


class Terms(NamedTuple):
    """How workers are counted.

    concurrency: places of one worker; utilisation: the part of them that is to be in use, above 0, at most 1.
    unknown_ms: what a run is taken to need while none has ended.
    """

    concurrency: int
    utilisation: float = 0.8
    unknown_ms: float = 1_000.0


def places_needed(load: Load, terms: Terms) -> float:
    """Runs that have to be under way at a time."""
    mean_ms = terms.unknown_ms if load.mean_ms is None else load.mean_ms
    window_ms = max(1, len(load.coming)) * MINUTE_MS
    work_ms = (load.ready + load.queued + sum(load.coming)) * mean_ms
    return max(work_ms / window_ms, max(load.coming, default=0) * mean_ms / MINUTE_MS, load.running)


def workers_needed(load: Load, terms: Terms) -> int:
    """Worker processes for a lane; 0 when there is nothing to do."""
    return math.ceil(places_needed(load, terms) / (terms.concurrency * terms.utilisation))
