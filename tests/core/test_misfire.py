"""The misfire rules over plain numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.misfire import Backlog, Passed, backlog, judge
from noontide.core.occurrence import Occurrence
from noontide.core.policies import MisfireRule
from noontide.core.run import Decision

PERIOD_MS = 10


def _at(due_ms: int, spread_ms: int = 0) -> Occurrence:
    return Occurrence(due_ms, due_ms + spread_ms)


def _every(after_ms: int) -> Occurrence:
    return _at(after_ms - after_ms % PERIOD_MS + PERIOD_MS)


def _found(*dues_ms: int, following: int | None) -> Backlog:
    return Backlog([_at(due_ms) for due_ms in dues_ms], None if following is None else _at(following))


@pytest.mark.parametrize(
    "until_ms, dues_ms, following_ms",
    [(29, [10, 20], 30), (30, [10, 20, 30], 40), (31, [10, 20, 30], 40), (0, [10], 20)],
)
def test_a_backlog_ends_with_what_starts_at_the_bound(until_ms: int, dues_ms: list[int], following_ms: int) -> None:
    found = backlog(_at(10), _every, until_ms=until_ms, limit=100)
    assert found == _found(*dues_ms, following=following_ms)


def test_the_start_counts_and_not_the_due_time() -> None:
    found = backlog(_at(10, 5), lambda after_ms: _at(_every(after_ms).due_ms, 5), until_ms=34, limit=100)
    assert [each.due_ms for each in found.late] == [10, 20]


@pytest.mark.parametrize("limit, count", [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_a_backlog_is_cut_at_its_limit(limit: int, count: int) -> None:
    found = backlog(_at(10), _every, until_ms=35, limit=limit)
    assert len(found.late) == count
    assert found.following == _at(10 + PERIOD_MS * count)


def test_a_schedule_that_ends_leaves_nothing_to_follow() -> None:
    found = backlog(_at(10), lambda after_ms: _at(20) if after_ms < 20 else None, until_ms=99, limit=100)
    assert found == _found(10, 20, following=None)


def test_run_once_runs_the_newest() -> None:
    verdict = judge(MisfireRule.RUN_ONCE, _found(10, 20, 30, following=40), run_all_max=5, now_ms=35)
    assert verdict.passed == Passed(10, 20, 2, Decision.COALESCED)
    assert (verdict.claim, verdict.following) == (_at(30), _at(40))


def test_run_once_of_one_coalesces_nothing() -> None:
    verdict = judge(MisfireRule.RUN_ONCE, _found(10, following=None), run_all_max=5, now_ms=35)
    assert verdict == (None, _at(10), None)


def test_run_once_of_a_backlog_that_was_cut_waits_for_the_rest() -> None:
    verdict = judge(MisfireRule.RUN_ONCE, _found(10, 20, following=30), run_all_max=5, now_ms=30)
    assert verdict == (Passed(10, 20, 2, Decision.COALESCED), None, _at(30))


def test_run_all_runs_the_oldest() -> None:
    verdict = judge(MisfireRule.RUN_ALL, _found(10, 20, 30, following=40), run_all_max=3, now_ms=35)
    assert verdict == (None, _at(10), _at(20))


def test_run_all_drops_what_exceeds_its_maximum() -> None:
    verdict = judge(MisfireRule.RUN_ALL, _found(10, 20, 30, following=40), run_all_max=2, now_ms=35)
    assert verdict == (Passed(10, 10, 1, Decision.DROPPED), None, _at(20))


def test_run_all_of_the_last_one_goes_on_with_what_follows() -> None:
    verdict = judge(MisfireRule.RUN_ALL, _found(10, following=20), run_all_max=1, now_ms=15)
    assert verdict == (None, _at(10), _at(20))


def test_skip_runs_nothing() -> None:
    verdict = judge(MisfireRule.SKIP, _found(10, 20, following=30), run_all_max=5, now_ms=25)
    assert verdict == (Passed(10, 20, 2, Decision.MISSED), None, _at(30))


@given(
    rule=st.sampled_from(MisfireRule),
    count=st.integers(1, 40),
    run_all_max=st.integers(1, 50),
    limit=st.integers(1, 50),
)
def test_each_late_occurrence_is_decided_exactly_once(
    rule: MisfireRule, count: int, run_all_max: int, limit: int
) -> None:
    now_ms = PERIOD_MS * count + PERIOD_MS // 2
    current: Occurrence | None = _at(PERIOD_MS)
    decided: list[int] = []
    while current is not None and current.start_ms <= now_ms:
        found = backlog(current, _every, until_ms=now_ms, limit=limit)
        verdict = judge(rule, found, run_all_max=run_all_max, now_ms=now_ms)
        if verdict.passed is not None:
            dues = range(verdict.passed.first_ms, verdict.passed.last_ms + 1, PERIOD_MS)
            assert Passed(dues[0], dues[-1], len(dues), verdict.passed.decision) == verdict.passed
            decided += dues
        if verdict.claim is not None:
            decided.append(verdict.claim.due_ms)
        assert verdict.following is not None
        assert verdict.following.due_ms > current.due_ms
        current = verdict.following
    assert decided == [PERIOD_MS * number for number in range(1, count + 1)]
