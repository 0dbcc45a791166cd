"""Days of an iCalendar file (RFC 5545): holidays as countries, companies and calendar programs publish them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from itertools import takewhile
from typing import Any, NamedTuple

from icalendar import Calendar as ICalendar

from noontide.core.calendar import RANGES_MAX
from noontide.core.errors import InvalidDefinition

FILE_MAX_BYTES = 16 * 1024 * 1024
STEPS_MAX = 200_000
"""Repetitions of one event that are walked through, also those before the time that is asked for."""
DAY = timedelta(days=1)
Event = Any
"""A component of the library: its properties are of some thirty types, and which one follows from the name."""


class Days(NamedTuple):
    """A stretch of days, both ends included, and what the file calls it."""

    first: date
    last: date
    summary: str


def read_days(data: bytes, *, since: date, until: date) -> list[Days]:
    """The days of all events between two dates, both included, in order; repetitions are written out.

    An event of all day counts for its days; one with times counts for the days it touches, by its own clock. Cancelled
    events do not count. Raises InvalidDefinition for what is no calendar, or has too many days.
    """
    if len(data) > FILE_MAX_BYTES:
        raise InvalidDefinition.of("", f"is {len(data)} bytes, at most {FILE_MAX_BYTES} are read")
    try:
        calendar = ICalendar.from_ical(data)
        events: list[Event] = list(calendar.walk("VEVENT"))
        found = [each for event in events for each in _days_of(event, _moved(events), since, until)]
    except InvalidDefinition:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise InvalidDefinition.of("", f"is not a calendar that can be read: {error}") from error
    if not events:
        raise InvalidDefinition.of("", "has no events (VEVENT)")
    if len(found) > RANGES_MAX:
        raise InvalidDefinition.of("", f"has more than {RANGES_MAX} events in this time; choose a shorter one")
    return sorted(found)


def as_document(days: Iterable[Days]) -> dict[str, object]:
    """The calendar as a configuration (`calendar/<name>`); days that touch are one range."""
    members: list[object] = []
    for first, last in _merged(days):
        one = first.isoformat()
        members.append(one if first == last else {"from": one, "to": last.isoformat()})
    return {"dates": members}


def _merged(days: Iterable[Days]) -> Iterator[tuple[date, date]]:
    open_range: tuple[date, date] | None = None
    for first, last, _ in sorted(days):
        if open_range is not None and first <= open_range[1] + DAY:
            open_range = (open_range[0], max(open_range[1], last))
            continue
        if open_range is not None:
            yield open_range
        open_range = (first, last)
    if open_range is not None:
        yield open_range


def _moved(events: Iterable[Event]) -> set[tuple[str, date]]:
    """Repetitions that an event of their own replaces: (uid, day)."""
    return {
        (str(event.get("UID", "")), _day(event["RECURRENCE-ID"].dt)) for event in events if "RECURRENCE-ID" in event
    }


def _days_of(event: Event, moved: set[tuple[str, date]], since: date, until: date) -> Iterator[Days]:
    if str(event.get("STATUS", "")).upper() == "CANCELLED":
        return
    start = _start_of(event)
    first, length = _day(start), _length(event, start)
    summary, uid = str(event.get("SUMMARY", "")), str(event.get("UID", ""))
    own = "RECURRENCE-ID" in event
    for day in _starts(event, first, since - length if length < since - date.min else date.min, until):
        if not own and (uid, day) in moved:
            continue
        if day <= until and day + length >= since:
            yield Days(max(day, since), min(day + length, until), summary)


def _start_of(event: Event) -> date:
    value = event.get("DTSTART")
    if value is None or isinstance(value, list):
        how_many = "no DTSTART" if value is None else f"{len(value)} times DTSTART"
        raise InvalidDefinition.of("", f"the event {str(event.get('SUMMARY', ''))[:80]!r} has {how_many}")
    start: date = value.dt
    return start


def _length(event: Event, start: date) -> timedelta:
    """From the first day to the last."""
    if "DTEND" in event:
        end = event["DTEND"].dt
    elif "DURATION" in event:
        end = start + event["DURATION"].dt
    else:
        return timedelta(0)
    last = end - (timedelta(microseconds=1) if isinstance(end, datetime) else DAY)  # the end itself is not part of it
    return max(timedelta(0), _day(last) - _day(start))


def _starts(event: Event, first: date, since: date, until: date) -> Iterator[date]:
    """First days of the event and its repetitions, as long as they matter."""
    left_out = set(_listed(event, "EXDATE"))
    added = [day for day in _listed(event, "RDATE") if day != first]
    rule = event.get("RRULE")
    repeated: Iterable[date] = [first] if rule is None else _repeated(rule, first, since, until)
    yield from (day for day in (*repeated, *added) if day not in left_out)


def _repeated(rules: Any, first: date, since: date, until: date) -> list[date]:
    from dateutil.rrule import rrulestr

    found: set[date] = {first}
    for rule in rules if isinstance(rules, list) else [rules]:
        # Days are counted without a zone, so a bound with one (UNTIL=...Z) counts by its date.
        parts = dict(rule)
        if parts.get("INTERVAL") == [0]:
            raise InvalidDefinition.of("", "an event is repeated with INTERVAL=0")
        if "UNTIL" in parts:
            parts["UNTIL"] = [datetime.combine(_day(each), time(23, 59, 59)) for each in parts["UNTIL"]]
        text = type(rule)(parts).to_ical().decode()
        starts = rrulestr(text, dtstart=datetime.combine(first, time()))
        within = takewhile(lambda at: at.date() <= until, starts)
        for count, at in enumerate(within):
            if at.date() >= since:
                found.add(at.date())
            if len(found) > RANGES_MAX or count > STEPS_MAX:
                raise InvalidDefinition.of("", f"an event is repeated more than {RANGES_MAX} times")
    return sorted(found)


def _listed(event: Event, name: str) -> list[date]:
    """Days of EXDATE or RDATE, which may be there several times."""
    value = event.get(name)
    lists = [] if value is None else value if isinstance(value, list) else [value]
    return [_day(each.dt[0] if isinstance(each.dt, tuple) else each.dt) for listed in lists for each in listed.dts]


def _day(at: date) -> date:
    return at.date() if isinstance(at, datetime) else at
