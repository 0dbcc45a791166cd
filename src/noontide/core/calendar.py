"""Calendars: named sets of local dates, such as the holidays of a country, that a job leaves out or keeps to."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from noontide.core.errors import InvalidDefinition, Problem

RANGES_MAX = 10_000
"""Most members of one calendar."""
_UNIX_DAY = 719_163
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_FORM = 'each member is a date such as "2026-12-25" or {"from": "2026-12-24", "to": "2027-01-02"}'

Range = tuple[int, int]
"""First and last day, both included, as days since 1970-01-01."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A set of dates. `ranges` are ascending and neither touch nor overlap."""

    name: str
    ranges: tuple[Range, ...]

    def covers(self, local_date: date) -> bool:
        """Whether the date is in the calendar."""
        return self.covers_day(local_date.toordinal() - _UNIX_DAY)

    def covers_day(self, day: int) -> bool:
        """As `covers`, for a day since 1970-01-01 of the local calendar."""
        at = bisect_right(self.ranges, (day, 10**9)) - 1
        return at >= 0 and day <= self.ranges[at][1]

    def first_covered(self, day: int) -> int | None:
        """The first covered day not before `day`; None when there is none left."""
        at = bisect_right(self.ranges, (day, 10**9)) - 1
        if at >= 0 and day <= self.ranges[at][1]:
            return day
        return self.ranges[at + 1][0] if at + 1 < len(self.ranges) else None

    def first_uncovered(self, day: int) -> int:
        """The first day not before `day` that is not covered."""
        at = bisect_right(self.ranges, (day, 10**9)) - 1
        return self.ranges[at][1] + 1 if at >= 0 and day <= self.ranges[at][1] else day


def parse_calendar(name: str, value: object, *, pointer: str) -> Calendar:
    """The calendar of `{"dates": ["2026-12-25", {"from": "...", "to": "..."}]}`; `to` is included.

    Raises InvalidDefinition with a problem for each member that is no date or range.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("dates"), list):
        raise InvalidDefinition.of(pointer, f'must be an object with a list "dates"; {_FORM}')
    dates: list[object] = value["dates"]
    problems = [Problem(f"{pointer}/{each}", "unknown; only dates is known here") for each in value if each != "dates"]
    if len(dates) > RANGES_MAX:
        problems.append(Problem(f"{pointer}/dates", f"has more than {RANGES_MAX} members"))
    ranges: list[Range] = []
    for index, member in enumerate(dates[:RANGES_MAX]):
        try:
            ranges.append(_range(member, pointer=f"{pointer}/dates/{index}"))
        except InvalidDefinition as refused:
            problems.extend(refused.problems)
    if problems:
        raise InvalidDefinition(tuple(problems))
    return Calendar(name=name, ranges=tuple(_merged(ranges)))


def _range(member: object, *, pointer: str) -> Range:
    if not isinstance(member, Mapping):
        day = _day(member, pointer=pointer)
        return day, day
    if set(member) != {"from", "to"}:
        raise InvalidDefinition.of(pointer, f"a range has from and to, and nothing else; {_FORM}")
    first, last = _day(member["from"], pointer=f"{pointer}/from"), _day(member["to"], pointer=f"{pointer}/to")
    if last < first:
        raise InvalidDefinition.of(pointer, f"{member['from']} to {member['to']} ends before it begins")
    return first, last


def _day(text: object, *, pointer: str) -> int:
    if not isinstance(text, str) or not _DATE.fullmatch(text):
        raise InvalidDefinition.of(pointer, f"is not a date; {_FORM}")
    try:
        return date.fromisoformat(text).toordinal() - _UNIX_DAY
    except ValueError:
        raise InvalidDefinition.of(pointer, f"{text} is not a date of the calendar") from None


def _merged(ranges: list[Range]) -> Iterator[Range]:
    open_range: Range | None = None
    for first, last in sorted(ranges):
        if open_range is None:
            open_range = (first, last)
        elif first <= open_range[1] + 1:
            open_range = (open_range[0], max(open_range[1], last))
        else:
            yield open_range
            open_range = (first, last)
    if open_range is not None:
        yield open_range
