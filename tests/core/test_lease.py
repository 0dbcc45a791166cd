"""Lease time passes only while the owner listens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noontide.core.lease import STEP_MAX_MS, LeaseClock

AT_MS = 1_772_323_200_000


def test_it_begins_with_the_first_event() -> None:
    clock = LeaseClock()
    assert (clock.now_ms, clock.last_appended_ms) == (0, None)
    clock.heard(AT_MS)
    assert (clock.now_ms, clock.last_appended_ms) == (0, AT_MS)


def test_it_moves_with_append_times() -> None:
    clock = LeaseClock()
    for step_ms in (0, 1_000, 1_999, 1_999, 2_500):
        clock.heard(AT_MS + step_ms)
    assert clock.now_ms == 2_500


def test_a_gap_counts_as_one_step() -> None:
    for gap_ms in (STEP_MAX_MS - 1, STEP_MAX_MS, STEP_MAX_MS + 1, 300_000):
        clock = LeaseClock()
        clock.heard(AT_MS)
        clock.heard(AT_MS + gap_ms)
        assert clock.now_ms == min(gap_ms, STEP_MAX_MS)
        clock.heard(AT_MS + gap_ms + 1)
        assert clock.now_ms == min(gap_ms, STEP_MAX_MS) + 1


def test_a_broker_clock_that_goes_back_takes_nothing_back_and_counts_nothing_twice() -> None:
    clock = LeaseClock()
    for at_ms in (AT_MS, AT_MS + 1_000, AT_MS + 400, AT_MS + 900, AT_MS + 1_000, AT_MS + 1_001):
        clock.heard(at_ms)
    assert clock.now_ms == 1_001


@given(times=st.lists(st.integers(-(2**40), 2**45), max_size=50))
def test_it_never_goes_back_and_never_ahead_of_the_log(times: list[int]) -> None:
    clock, shown = LeaseClock(), []
    for at_ms in times:
        clock.heard(at_ms)
        shown.append(clock.now_ms)
    assert shown == sorted(shown)
    if times:
        assert clock.now_ms <= max(0, max(times) - times[0])
        assert clock.now_ms <= STEP_MAX_MS * (len(times) - 1)
