"""Histograms: where a value counts, and what is summed."""

from __future__ import annotations

import pytest

from noontide.core.spread import Spread


@pytest.mark.parametrize("value, place", [(0, 0), (9, 0), (10, 0), (11, 1), (100, 1), (101, 2), (1e9, 2)])
def test_a_value_counts_below_the_first_bound_that_is_not_smaller(value: float, place: int) -> None:
    spread = Spread((10, 100))
    spread.add(value)
    assert spread.counts == [int(place == each) for each in range(3)]
    assert (spread.count, spread.total) == (1, value)
