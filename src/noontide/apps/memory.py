"""The garbage collector of a long-running process."""

from __future__ import annotations

import gc

THRESHOLDS = (20_000, 20, 1_000)
"""Objects that were made and are still there before the young are looked over: the pause grows with them (at 100,000
it was 75 to 200 ms on a busy machine). What is made for a run is freed by counting, so that the number hardly grows."""


def calm_garbage_collection() -> None:
    """Collect seldom: what cycles make is freed by counting, and looking for more took a quarter of the time."""
    gc.collect()
    gc.freeze()  # what exists now stays; the collector need not look at it again
    gc.set_threshold(*THRESHOLDS)
