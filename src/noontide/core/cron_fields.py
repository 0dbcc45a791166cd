"""What a parsed cron expression is: the times of day it names and the days it names.

Days are looked up in a table per kind of year (there are fourteen: leap or not, by the weekday of its
first day), so the next matching day is a bisection and 400 years without one cost 400 dictionary reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from itertools import pairwise

UNIX_DAY = 719_163
"""Proleptic ordinal of 1970-01-01: day numbers here count from that day."""
LAST_YEAR = 9999
SEARCH_YEARS = 400
"""The Gregorian calendar repeats after this many years: what has not matched by then never does."""
FIRST_DAY = 1 - UNIX_DAY
LAST_DAY = 2_932_896  # 9999-12-31
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SATURDAY, _SUNDAY = 6, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOfMonth:
    """The day-of-month field. `from_end`: 0 is L, n is L-n. `nearest`: the n of nW."""

    days: frozenset[int]
    from_end: frozenset[int] = frozenset()
    nearest: frozenset[int] = frozenset()
    last_weekday: bool = False
    unrestricted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOfWeek:
    """The day-of-week field, 0 = Sunday. `nth`: (weekday, which). `last`: weekdays with L."""

    days: frozenset[int]
    nth: frozenset[tuple[int, int]] = frozenset()
    last: frozenset[int] = frozenset()
    unrestricted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpec:
    """Every field that chooses days; `years` None is every year."""

    day_of_month: DayOfMonth
    day_of_week: DayOfWeek
    months: frozenset[int]
    years: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFields:
    """A cron expression with its names, macros and `H` resolved.

    text: seven fields, seconds first, year last; equal texts fire at equal local times.
    times: seconds of the day, ascending. fixed_time: neither minute nor hour begins with `*`.
    """

    text: str
    times: Sequence[int] = field(repr=False, compare=False)
    days: DayTable = field(repr=False, compare=False)
    fixed_time: bool

    def period_ms(self) -> int:
        """The smallest distance between two times on one day, or else between two days."""
        if len(self.times) == 1:
            return self.days.smallest_step() * 86_400_000
        gaps = (later - earlier for earlier, later in pairwise(self.times))
        return (self.times.step if isinstance(self.times, range) else min(gaps)) * 1000

    def names(self, local_ms: int) -> bool:
        """Whether the expression names this local time (milliseconds since 1970 local)."""
        day, second = divmod(local_ms // 1000, 86_400)
        at = bisect_left(self.times, second)
        on_time = local_ms % 1000 == 0 and at < len(self.times) and self.times[at] == second
        return on_time and self.days.first_on_or_after(day) == day


class DayTable:
    """The days a `DaySpec` names, by number since 1970-01-01, between the years 1 and 9999."""

    __slots__ = ("_by_kind", "_open", "_smallest_step", "_spec", "_years")

    def __init__(self, spec: DaySpec) -> None:
        self._spec = spec
        self._smallest_step: int | None = None
        self._by_kind: dict[tuple[bool, int], Sequence[int]] = {}
        self._years: dict[int, tuple[int, int, Sequence[int]]] = {}
        self._open: tuple[int, int, Sequence[int]] = (0, 0, ())

    def first_on_or_after(self, day: int) -> int | None:
        """The first matching day not before `day`; None when the next 400 years have none."""
        start, end, days = self._open
        if not start <= day < end:
            if day > LAST_DAY:
                return None
            day = max(day, FIRST_DAY)
            start, end, days = self._open = self._year(date.fromordinal(day + UNIX_DAY).year)
        at = bisect_left(days, day - start)
        if at < len(days):
            return start + days[at]
        return self._first_after_year(date.fromordinal(start + UNIX_DAY).year)

    def never_matches(self) -> bool:
        """Whether no year at all has a matching day (day 30 of month 2)."""
        years = range(2000, 2400) if self._spec.years is None else self._spec.years
        return not any(self._year(year)[2] for year in years)

    def smallest_step(self) -> int:
        """The fewest days between two matching days of one year; 365 when no year has two."""
        if self._smallest_step is None:
            self._smallest_step = self._find_smallest_step()
        return self._smallest_step

    def _find_smallest_step(self) -> int:
        years = range(2000, 2028) if self._spec.years is None else sorted(self._spec.years)[:28]
        steps = [
            later - earlier for year in years for days in (self._year(year)[2],) for earlier, later in pairwise(days)
        ]
        return min(steps, default=365)

    def _first_after_year(self, year: int) -> int | None:
        for later in range(year + 1, min(year + SEARCH_YEARS, LAST_YEAR) + 1):
            start, _, days = self._year(later)
            if days:
                return start + days[0]
        return None

    def _year(self, year: int) -> tuple[int, int, Sequence[int]]:
        found = self._years.get(year)
        if found is None:
            start = date(year, 1, 1).toordinal() - UNIX_DAY
            leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
            days = self._days_of_year(leap=leap, first_weekday=(start + 4) % 7)
            if self._spec.years is not None and year not in self._spec.years:
                days = ()
            found = self._years[year] = (start, start + 365 + leap, days)
        return found

    def _days_of_year(self, *, leap: bool, first_weekday: int) -> Sequence[int]:
        found = self._by_kind.get((leap, first_weekday))
        if found is None:
            days: list[int] = []
            start = 0
            for month, plain_length in enumerate(_LENGTHS, start=1):
                length = plain_length + (leap and month == 2)
                if month in self._spec.months:
                    matching = _days_of_month(self._spec, length=length, first_weekday=(first_weekday + start) % 7)
                    days.extend(start + day - 1 for day in matching)
                start += length
            found = self._by_kind[leap, first_weekday] = compact(days)
        return found


@lru_cache(maxsize=4096)
def day_table(spec: DaySpec) -> DayTable:
    """The table of a spec, shared by every expression with the same days."""
    return DayTable(spec)


@lru_cache(maxsize=4096)
def times_of_day(seconds: tuple[int, ...], minutes: tuple[int, ...], hours: tuple[int, ...]) -> Sequence[int]:
    """Seconds of the day, ascending, shared by every expression with the same clock fields."""
    return compact([hour * 3600 + minute * 60 + second for hour in hours for minute in minutes for second in seconds])


def compact(values: list[int]) -> Sequence[int]:
    """Ascending values as a range where the steps are equal (86,400 seconds become three numbers)."""
    if len(values) > 2:
        step = values[1] - values[0]
        spread = range(values[0], values[-1] + 1, step)
        if len(spread) == len(values) and list(spread) == values:
            return spread
    return tuple(values)


def _days_of_month(spec: DaySpec, *, length: int, first_weekday: int) -> list[int]:
    """Matching days of one month. Two restricted day fields match when either does (classic cron)."""
    by_date = _named_by_date(spec.day_of_month, length=length, first_weekday=first_weekday)
    by_weekday = _named_by_weekday(spec.day_of_week, length=length, first_weekday=first_weekday)
    if spec.day_of_month.unrestricted or spec.day_of_week.unrestricted:
        return sorted(by_date & by_weekday)
    return sorted(by_date | by_weekday)


def _named_by_date(field_: DayOfMonth, *, length: int, first_weekday: int) -> set[int]:
    def weekday(day: int) -> int:
        return (first_weekday + day - 1) % 7

    named = {day for day in field_.days if day <= length}
    named |= {length - back for back in field_.from_end if back < length}
    if field_.last_weekday:
        named.add(max(day for day in range(length - 2, length + 1) if weekday(day) not in (_SATURDAY, _SUNDAY)))
    for day in field_.nearest:
        # A month without day n counts from its last day, as croniter does.
        inside = min(day, length)
        named.add(inside + _to_weekday(inside, weekday=weekday(inside), length=length))
    return named


def _to_weekday(day: int, *, weekday: int, length: int) -> int:
    """Days from `day` to the nearest Monday-to-Friday of the same month."""
    if weekday == _SATURDAY:
        return -1 if day > 1 else 2
    if weekday == _SUNDAY:
        return 1 if day < length else -2
    return 0


def _named_by_weekday(field_: DayOfWeek, *, length: int, first_weekday: int) -> set[int]:
    named = {day for day in range(1, length + 1) if (first_weekday + day - 1) % 7 in field_.days}
    for weekday, which in field_.nth:
        day = 1 + (weekday - first_weekday) % 7 + 7 * (which - 1)
        if day <= length:
            named.add(day)
    for weekday in field_.last:
        named.add(length - (first_weekday + length - 1 - weekday) % 7)
    return named
