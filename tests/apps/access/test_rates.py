"""Buckets of requests."""

from __future__ import annotations

from noontide.apps.access.rates import Rates


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def test_a_burst_is_granted_and_then_the_rate() -> None:
    clock = Clock()
    rates = Rates(names_max=10, clock_ms=clock)
    waits = [rates.take("a", per_second=2, burst=3) for _ in range(4)]
    assert waits == [0, 0, 0, 0.5]
    clock.now_ms = 499
    assert rates.take("a", per_second=2, burst=3) > 0
    clock.now_ms = 500
    assert rates.take("a", per_second=2, burst=3) == 0
    assert rates.take("a", per_second=2, burst=3) == 0.5


def test_asking_in_vain_costs_nothing_and_a_bucket_is_never_more_than_full() -> None:
    clock = Clock()
    rates = Rates(names_max=10, clock_ms=clock)
    for _ in range(50):
        rates.take("a", per_second=1, burst=1)
    clock.now_ms = 1_000
    assert rates.take("a", per_second=1, burst=1) == 0
    clock.now_ms = 3_600_000
    assert [rates.take("a", per_second=1, burst=1) > 0 for _ in range(2)] == [False, True]


def test_everybody_has_a_bucket_and_only_so_many_are_kept() -> None:
    rates = Rates(names_max=2, clock_ms=Clock())
    for name in ("a", "b"):
        assert [rates.take(name, per_second=1, burst=1) > 0 for _ in range(2)] == [False, True]
    rates.take("c", per_second=1, burst=1)
    assert rates.take("b", per_second=1, burst=1) > 0
    assert rates.take("a", per_second=1, burst=1) == 0  # forgotten: full again
