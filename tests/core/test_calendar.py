"""Calendars: dates and ranges of dates."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.core.calendar import Calendar, parse_calendar
from noontide.core.errors import InvalidDefinition

DATES = st.dates(min_value=date(2026, 1, 1), max_value=date(2026, 3, 31))


def calendar(*dates: object) -> Calendar:
    return parse_calendar("de-holidays", {"dates": list(dates)}, pointer="/calendar")


def test_single_dates_and_ranges() -> None:
    found = calendar("2026-12-25", {"from": "2026-12-31", "to": "2027-01-02"})
    covered = [day for day in range(23, 32) if found.covers(date(2026, 12, day))]
    assert covered == [25, 31]
    assert found.covers(date(2027, 1, 2))
    assert not found.covers(date(2027, 1, 3))


def test_next_days() -> None:
    found = calendar("2026-12-25", "2026-12-26", "2026-12-31")
    christmas = date(2026, 12, 25).toordinal() - 719_163
    assert found.first_uncovered(christmas - 1) == christmas - 1
    assert found.first_uncovered(christmas) == christmas + 2
    assert found.first_covered(christmas - 30) == christmas
    assert found.first_covered(christmas + 1) == christmas + 1
    assert found.first_covered(christmas + 2) == christmas + 6
    assert found.first_covered(christmas + 7) is None
    assert calendar().first_covered(christmas) is None


@settings(deadline=None)
@given(st.lists(st.tuples(DATES, DATES).map(sorted)))
def test_ranges_are_merged_without_change(pairs: list[list[date]]) -> None:
    found = calendar(*({"from": first.isoformat(), "to": last.isoformat()} for first, last in pairs))
    for number in range(date(2025, 12, 30).toordinal(), date(2026, 4, 2).toordinal()):
        day = date.fromordinal(number)
        assert found.covers(day) == any(first <= day <= last for first, last in pairs)
    assert all(last + 1 < later for (_, last), (later, _) in zip(found.ranges, found.ranges[1:], strict=False))


@pytest.mark.parametrize(
    "value, pointer",
    [
        (None, "/calendar"),
        ([], "/calendar"),
        ({}, "/calendar"),
        ({"dates": "2026-12-25"}, "/calendar"),
        ({"dates": [], "days": []}, "/calendar/days"),
        ({"dates": ["2026-02-29"]}, "/calendar/dates/0"),
        ({"dates": ["2026-1-1"]}, "/calendar/dates/0"),
        ({"dates": ["20261225"]}, "/calendar/dates/0"),
        ({"dates": ["2026-12-25T00:00:00Z"]}, "/calendar/dates/0"),
        ({"dates": ["2026-12-24", 5]}, "/calendar/dates/1"),
        ({"dates": [{"from": "2026-12-24"}]}, "/calendar/dates/0"),
        ({"dates": [{"from": "2026-12-24", "to": "x"}]}, "/calendar/dates/0/to"),
        ({"dates": [{"from": "2026-12-24", "to": "2026-12-23"}]}, "/calendar/dates/0"),
        ({"dates": ["2026-12-25"] * 10_001}, "/calendar/dates"),
    ],
)
def test_refused(value: object, pointer: str) -> None:
    with pytest.raises(InvalidDefinition) as error:
        parse_calendar("a", value, pointer="/calendar")
    assert error.value.problems[0].pointer == pointer


def test_every_problem_is_told() -> None:
    with pytest.raises(InvalidDefinition) as error:
        calendar("x", "2026-12-25", "y")
    assert [problem.pointer for problem in error.value.problems] == ["/calendar/dates/0", "/calendar/dates/2"]
