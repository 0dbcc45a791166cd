"""Waits between attempts: cases ret-01 to ret-03, lists, and jitter that is the same on every replay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.policies import ExponentialBackoff, FixedDelays, Jitter, RetryPolicy
from noontide.core.retry import backoff_ms, may_retry


def _exponential(base_ms: int, cap_ms: int, jitter: Jitter = Jitter.NONE) -> RetryPolicy:
    return RetryPolicy(backoff=ExponentialBackoff(base_ms=base_ms, cap_ms=cap_ms, jitter=jitter))


@pytest.mark.parametrize("attempt", [64, 1_075, 100_000])
def test_many_attempts_wait_as_long_as_the_cap(attempt: int) -> None:
    """Case ret-01."""
    assert backoff_ms(_exponential(1_000, 3_600_000), run_id="a:m1", attempt=attempt) == 3_600_000


@pytest.mark.parametrize("attempt", [40, 63, 64, 65])
@pytest.mark.parametrize("jitter", list(Jitter))
def test_the_wait_never_wraps(attempt: int, jitter: Jitter) -> None:
    """Case ret-02."""
    assert 0 < backoff_ms(_exponential(30, 1_000, jitter), run_id="a:m1", attempt=attempt) <= 1_000


@given(
    run=st.integers(0, 10**6), attempt=st.integers(1, 200), base_ms=st.integers(1, 10**6), more=st.integers(0, 10**7)
)
def test_jitter_stays_above_zero_and_within_the_bound(run: int, attempt: int, base_ms: int, more: int) -> None:
    """Case ret-03."""
    cap_ms = base_ms + more
    wait_ms = backoff_ms(_exponential(base_ms, cap_ms, Jitter.FULL), run_id=f"a:m{run}", attempt=attempt)
    assert 0 < wait_ms <= min(cap_ms, base_ms * 2**attempt)


@pytest.mark.parametrize("attempt, expected", [(1, 10_000), (2, 20_000), (3, 40_000), (10, 3_600_000)])
def test_doubling_without_jitter(attempt: int, expected: int) -> None:
    """The wait before attempt k + 1 is at most base x 2^k."""
    assert backoff_ms(_exponential(5_000, 3_600_000), run_id="a:m1", attempt=attempt) == expected


def test_the_bound_at_the_cap_and_one_ms_below_it() -> None:
    assert backoff_ms(_exponential(500, 1_000), run_id="a:m1", attempt=1) == 1_000
    assert backoff_ms(_exponential(500, 1_001), run_id="a:m1", attempt=1) == 1_000
    assert backoff_ms(_exponential(500, 999), run_id="a:m1", attempt=1) == 999


def test_full_jitter_is_spread_evenly() -> None:
    policy = _exponential(5_000, 3_600_000, Jitter.FULL)
    waits = [backoff_ms(policy, run_id=f"job-{number}:m1", attempt=1) for number in range(4_000)]
    quarters = [sum(1 for wait in waits if 2_500 * n < wait <= 2_500 * (n + 1)) for n in range(4)]
    assert all(850 < count < 1_150 for count in quarters), quarters


def test_jitter_is_the_same_on_every_replay_and_another_for_each_attempt() -> None:
    policy = _exponential(5_000, 5_000, Jitter.FULL)
    waits = [backoff_ms(policy, run_id="a:m1", attempt=attempt) for attempt in range(1, 20)]
    assert waits == [backoff_ms(policy, run_id="a:m1", attempt=attempt) for attempt in range(1, 20)]
    assert len(set(waits)) > 15


@pytest.mark.parametrize("attempt, expected", [(1, 10_000), (2, 30_000), (3, 120_000), (4, 120_000), (99, 120_000)])
def test_a_list_is_taken_in_turn_and_its_last_entry_stays(attempt: int, expected: int) -> None:
    policy = RetryPolicy(backoff=FixedDelays(delays_ms=(10_000, 30_000, 120_000)))
    assert backoff_ms(policy, run_id="a:m1", attempt=attempt) == expected


@pytest.mark.parametrize("attempt, expected", [(1, True), (2, True), (3, False), (4, False)])
def test_max_attempts_counts_the_first(attempt: int, expected: bool) -> None:
    assert may_retry(RetryPolicy(max_attempts=3), attempt=attempt) is expected
