"""The garbage collector of a long-running process."""

from __future__ import annotations

import gc

THRESHOLDS = (100_000, 50, 1_000)


def calm_garbage_collection() -> None:
    """Collect seldom: what cycles make is freed by counting, and looking for more took a quarter of the time."""
    gc.collect()
    gc.freeze()  # what exists now stays; the collector need not look at it again
    gc.set_threshold(*THRESHOLDS)
