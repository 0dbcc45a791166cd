"""Days of iCalendar files."""

from __future__ import annotations

from datetime import date

import pytest

from noontide.adapters.ical import as_document, read_days
from noontide.core.calendar import parse_calendar
from noontide.core.errors import InvalidDefinition

SINCE, UNTIL = date(2026, 1, 1), date(2027, 12, 31)


def ics(*events: str) -> bytes:
    body = "\r\n".join(f"BEGIN:VEVENT\r\nUID:{n}\r\n{event}\r\nEND:VEVENT" for n, event in enumerate(events))
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//x//y\r\n{body}\r\nEND:VCALENDAR\r\n".encode()


def found(*events: str, since: date = SINCE, until: date = UNTIL) -> list[str]:
    days = read_days(ics(*events), since=since, until=until)
    return [day.first.isoformat() + (f"..{day.last.isoformat()}" if day.last != day.first else "") for day in days]


@pytest.mark.parametrize(
    "event, expected",
    [
        ("DTSTART;VALUE=DATE:20261003", ["2026-10-03"]),
        ("DTSTART;VALUE=DATE:20261225\r\nDTEND;VALUE=DATE:20261227", ["2026-12-25..2026-12-26"]),
        ("DTSTART;VALUE=DATE:20261225\r\nDTEND;VALUE=DATE:20261226", ["2026-12-25"]),
        ("DTSTART;VALUE=DATE:20261225\r\nDURATION:P3D", ["2026-12-25..2026-12-27"]),
        ("DTSTART;VALUE=DATE:20240101\r\nRRULE:FREQ=YEARLY", ["2026-01-01", "2027-01-01"]),
        ("DTSTART;VALUE=DATE:20240101\r\nRRULE:FREQ=YEARLY;UNTIL=20261231T235959Z", ["2026-01-01"]),
        ("DTSTART;VALUE=DATE:20240101\r\nRRULE:FREQ=YEARLY;COUNT=3", ["2026-01-01"]),
        ("DTSTART;VALUE=DATE:20260106\r\nRRULE:FREQ=YEARLY\r\nEXDATE;VALUE=DATE:20270106", ["2026-01-06"]),
        (
            "DTSTART;VALUE=DATE:20260106\r\nRDATE;VALUE=DATE:20260301,20260302",
            ["2026-01-06", "2026-03-01", "2026-03-02"],
        ),
        ("DTSTART:20260510T220000\r\nDTEND:20260512T030000", ["2026-05-10..2026-05-12"]),
        ("DTSTART:20260510T220000\r\nDTEND:20260511T000000", ["2026-05-10"]),
        ("DTSTART;VALUE=DATE:20261003\r\nSTATUS:CANCELLED", []),
        ("DTSTART;VALUE=DATE:20250103", []),
        ("DTSTART;VALUE=DATE:20251230\r\nDTEND;VALUE=DATE:20260103", ["2026-01-01..2026-01-02"]),
        ("DTSTART;VALUE=DATE:19900101\r\nRRULE:FREQ=DAILY;UNTIL=20260102", ["2026-01-01", "2026-01-02"]),
        (
            "DTSTART;VALUE=DATE:20260101\r\nRRULE:FREQ=YEARLY\r\nRRULE:FREQ=MONTHLY;COUNT=2",
            ["2026-01-01", "2026-02-01", "2027-01-01"],
        ),
    ],
)
def test_days_of_an_event(event: str, expected: list[str]) -> None:
    assert found(event) == expected


def test_a_repetition_that_was_moved_counts_where_it_went() -> None:
    series = "DTSTART;VALUE=DATE:20260105\r\nRRULE:FREQ=WEEKLY;COUNT=3"
    moved = "UID:0\r\nRECURRENCE-ID;VALUE=DATE:20260112\r\nDTSTART;VALUE=DATE:20260113"
    data = ics(series, moved).replace(b"UID:1\r\nUID:0", b"UID:0")
    assert [day.first.isoformat() for day in read_days(data, since=SINCE, until=UNTIL)] == [
        "2026-01-05",
        "2026-01-13",
        "2026-01-19",
    ]


def test_touching_days_are_one_range_of_a_configuration() -> None:
    data = ics(
        "DTSTART;VALUE=DATE:20261225", "DTSTART;VALUE=DATE:20261226", "DTSTART;VALUE=DATE:20261224",
        "DTSTART;VALUE=DATE:20261003",
    )  # fmt: skip
    document = as_document(read_days(data, since=SINCE, until=UNTIL))
    assert document == {"dates": ["2026-10-03", {"from": "2026-12-24", "to": "2026-12-26"}]}
    assert parse_calendar("x", document, pointer="").covers(date(2026, 12, 25))


@pytest.mark.parametrize("data", [b"", b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n", b"hello", b"\xff\xfe\x00"])
def test_what_is_no_calendar_is_said_so(data: bytes) -> None:
    with pytest.raises(InvalidDefinition):
        read_days(data, since=SINCE, until=UNTIL)


def test_a_rule_that_repeats_without_end_is_bounded_by_the_time() -> None:
    assert len(found("DTSTART;VALUE=DATE:20260101\r\nRRULE:FREQ=DAILY", until=date(2026, 1, 31))) == 31


@pytest.mark.parametrize(
    "event, why",
    [
        ("SUMMARY:x", "the event 'x' has no DTSTART"),
        ("DTSTART;VALUE=DATE:20260101\r\nDTSTART;VALUE=DATE:20260102", "has 2 times DTSTART"),
        ("DTSTART:20260101T090000\r\nDTEND:20260101T100000\r\nDTEND:20260101T110000", "cannot be read|list"),
        ("DTSTART;VALUE=DATE:20260101\r\nDURATION:P9999999D", "out of range"),
        ("DTSTART;VALUE=DATE:2026-01-01", "cannot be read|broken"),
        ("DTSTART;VALUE=DATE:20260101\r\nRRULE:FREQ=YEARLY;INTERVAL=0", "INTERVAL=0"),
        ("DTSTART;VALUE=DATE:20260101\r\nRRULE:FREQ=SOMETIMES", "Expected frequency"),
    ],
)
def test_odd_events_are_refused_in_words(event: str, why: str) -> None:
    with pytest.raises(InvalidDefinition, match=why):
        found(event)
