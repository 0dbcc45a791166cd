"""What the judge of permits makes of records."""

from __future__ import annotations

import orjson
import pytest

from noontide.ports.record_log import Incoming
from noontide.testing.permits_judge import most_at_once, most_permits


def lease(at_ms: int, run: str, *permits: str, closed: bool = False) -> Incoming:
    value = None if closed else orjson.dumps({"permits": permits})
    return Incoming("leases", 0, at_ms, at_ms, run.encode(), value, ())


@pytest.mark.parametrize(
    "spans, most", [([], 0), ([(0, 5)], 1), ([(0, 5), (5, 9)], 1), ([(0, 5), (4, 9), (1, 3)], 2), ([(0, 9)] * 4, 4)]
)
def test_most_at_once(spans: list[tuple[int, int]], most: int) -> None:
    assert most_at_once(spans) == most


def test_most_permits_counts_runs_that_have_one_and_no_others() -> None:
    records = [
        lease(1, "a"),
        lease(2, "a", "x"),
        lease(3, "b", "y"),
        lease(4, "c", "x", "y"),
        lease(5, "a", "x"),
        lease(6, "a", closed=True),
        lease(6, "d", "x"),
        lease(7, "c"),
    ]
    assert most_permits(records, "x") == 2
    assert most_permits(records, "y") == 2
    assert most_permits(records, "z") == 0


def test_a_gain_within_the_millisecond_of_a_loss_comes_after_it() -> None:
    assert most_permits([lease(1, "a", "x"), lease(2, "b", "x"), lease(2, "a", closed=True)], "x") == 1
