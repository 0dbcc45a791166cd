"""How values are spread: a histogram with fixed bounds, cheap enough to be kept always."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

MILLISECONDS: Final = (
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
    3_600_000,
)
"""Bounds for times from a commit to an outage."""


class Spread:
    """Counts of values by upper bound, and their sum. The last count is of those above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = MILLISECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value; one that is equal to a bound counts below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.counts)
