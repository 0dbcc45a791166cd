"""Occurrences: bounds, calendars, the spread, and what a preview says about them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.core.calendar import Calendar, parse_calendar
from noontide.core.dst import DstRule
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant, parse_instant
from noontide.core.occurrence import (
    EXACT,
    RELAXED,
    Entry,
    Occurrence,
    Timeline,
    Timing,
    explain,
    parse_timing,
    spread_offset,
)
from noontide.core.schedule import AfterCompletion, OneOff, Schedule, ScheduleContext, parse_schedule


def ms(text: str) -> int:
    return parse_instant(text, zone=None, pointer="")


def schedule(value: object, *, zone: str = "UTC", dst: DstRule | None = None) -> Schedule:
    context = ScheduleContext(timezone=zone, dst=dst or DstRule(), job_id="a", created_ms=0)
    return parse_schedule(value, context=context)


def dates(name: str, *members: object) -> Calendar:
    return parse_calendar(name, {"dates": list(members)}, pointer="")


def due(timeline: Timeline, after: str, count: int = 3) -> list[str]:
    found: list[str] = []
    after_ms = ms(after)
    while len(found) < count and (occurrence := timeline.next_after(after_ms)) is not None:
        after_ms = occurrence.due_ms
        found.append(format_instant(after_ms)[:16])
    return found


DAILY = schedule("0 9 * * *")


def test_bounds_are_included() -> None:
    timeline = Timeline(
        schedule=DAILY, zone="UTC", starts_at_ms=ms("2026-01-02T09:00:00Z"), ends_at_ms=ms("2026-01-03T09:00:00Z")
    )
    assert due(timeline, "2025-01-01T00:00:00Z") == ["2026-01-02T09:00", "2026-01-03T09:00"]
    assert due(timeline, "2026-01-02T08:59:59Z") == ["2026-01-02T09:00", "2026-01-03T09:00"]
    assert due(timeline, "2026-01-02T09:00:00Z") == ["2026-01-03T09:00"]
    assert due(timeline, "2026-01-03T09:00:00Z") == []


def test_bounds_leave_out_what_is_a_millisecond_beyond() -> None:
    timeline = Timeline(
        schedule=DAILY,
        zone="UTC",
        starts_at_ms=ms("2026-01-02T09:00:00.001Z"),
        ends_at_ms=ms("2026-01-04T08:59:59.999Z"),
    )
    assert due(timeline, "2025-01-01T00:00:00Z") == ["2026-01-03T09:00"]


def test_the_spread_moves_the_start_alone() -> None:
    timeline = Timeline(schedule=DAILY, zone="UTC", spread_ms=1_234)
    assert timeline.next_after(0) == Occurrence(due_ms=32_400_000, start_ms=32_401_234)
    assert timeline.next_after(32_400_000) == Occurrence(due_ms=118_800_000, start_ms=118_801_234)


def test_excluded_dates() -> None:
    holidays = dates("de-holidays", {"from": "2026-12-24", "to": "2026-12-26"}, "2026-12-28")
    timeline = Timeline(schedule=DAILY, zone="UTC", exclude=(holidays,))
    assert due(timeline, "2026-12-23T00:00:00Z", 4) == [f"2026-12-{day}T09:00" for day in (23, 27, 29, 30)]


def test_included_dates() -> None:
    payday = dates("payday", "2026-12-24", {"from": "2026-12-30", "to": "2026-12-31"})
    timeline = Timeline(schedule=DAILY, zone="UTC", include=(payday,), exclude=(dates("closed", "2026-12-30"),))
    assert due(timeline, "2026-01-01T00:00:00Z") == ["2026-12-24T09:00", "2026-12-31T09:00"]


def test_calendar_dates_are_local() -> None:
    """23:30 on the 24th in New York is the 25th in UTC."""
    late = schedule("30 23 * * *", zone="America/New_York")
    timeline = Timeline(schedule=late, zone="America/New_York", exclude=(dates("a", "2026-12-24"),))
    assert due(timeline, "2026-12-24T12:00:00Z", 1) == ["2026-12-26T04:30"]


def test_a_busy_job_and_a_long_holiday() -> None:
    every_second = schedule({"cron": "* * * * * *", "seconds": True})
    century = dates("a", {"from": "2026-01-01", "to": "2125-12-31"})
    timeline = Timeline(schedule=every_second, zone="UTC", exclude=(century,))
    assert timeline.next_after(ms("2025-12-31T23:59:59Z")) == Occurrence(*[ms("2126-01-01T00:00:00Z")] * 2)
    assert Timeline(schedule=every_second, zone="UTC", include=(dates("b"),)).next_after(0) is None


def test_a_one_off_on_an_excluded_date_never_runs() -> None:
    timeline = Timeline(
        schedule=OneOff(at_ms=ms("2026-12-24T12:00:00Z")), zone="UTC", exclude=(dates("a", "2026-12-24"),)
    )
    assert timeline.next_after(0) is None


def test_an_interval_keeps_its_phase_over_a_holiday() -> None:
    timeline = Timeline(schedule=schedule({"every": "PT7H"}), zone="UTC", exclude=(dates("a", "1970-01-02"),))
    assert due(timeline, "1970-01-01T20:00:00Z", 2) == ["1970-01-01T21:00", "1970-01-03T01:00"]


def test_after_completion_waits_for_start_and_calendar() -> None:
    waiting = AfterCompletion(delay_ms=300_000)
    assert due(Timeline(schedule=waiting, zone="UTC", starts_at_ms=3_600_000), "1970-01-01T00:00:00Z", 2) == [
        "1970-01-01T01:00",
        "1970-01-01T01:05",
    ]
    closed = Timeline(schedule=waiting, zone="UTC", exclude=(dates("a", "1970-01-01"),))
    assert due(closed, "1970-01-01T12:00:00Z", 2) == ["1970-01-02T00:00", "1970-01-02T00:05"]


@pytest.mark.parametrize(
    "value, expected",
    [
        ("relaxed", RELAXED),
        ("exact", EXACT),
        ({"window": "PT5M"}, Timing(mode="window", window_ms=300_000)),
        (None, RELAXED),
    ],
)
def test_timing(value: object, expected: Timing) -> None:
    assert parse_timing(value, schedule=DAILY, pointer="/timing") == expected


def test_one_offs_are_exact_by_default() -> None:
    assert parse_timing(None, schedule=OneOff(at_ms=0), pointer="/timing") == EXACT
    assert parse_timing("relaxed", schedule=OneOff(at_ms=0), pointer="/timing") == RELAXED


@pytest.mark.parametrize(
    "value", ["loose", 5, True, {}, {"window": 5}, {"window": "PT5M", "x": 1}, {"window": "P1M"}, []]
)
def test_timing_refused(value: object) -> None:
    with pytest.raises(InvalidDefinition, match="/timing"):
        parse_timing(value, schedule=DAILY, pointer="/timing")


@settings(deadline=None)
@given(st.text(max_size=50), st.integers(min_value=1, max_value=10**12))
def test_spread_stays_in_its_window(job_id: str, period_ms: int) -> None:
    assert spread_offset(job_id, timing=EXACT, period_ms=period_ms) == 0
    assert 0 <= spread_offset(job_id, timing=RELAXED, period_ms=period_ms) <= max(0, min(300_000, period_ms // 10) - 1)
    window = Timing(mode="window", window_ms=period_ms)
    assert 0 <= spread_offset(job_id, timing=window, period_ms=None) < period_ms
    assert 0 <= spread_offset(job_id, timing=RELAXED, period_ms=None) < 300_000


def test_spread_is_the_same_everywhere_and_even() -> None:
    assert spread_offset("nightly-report", timing=RELAXED, period_ms=86_400_000) == 211_613
    buckets = [0] * 10
    for number in range(10_000):
        buckets[spread_offset(f"job-{number}", timing=RELAXED, period_ms=86_400_000) // 30_000] += 1
    assert min(buckets) > 850
    assert max(buckets) < 1_150


def entries(value: object, after: str, *, dst: DstRule | None = None, count: int = 2) -> list[Entry]:
    found = schedule(value, zone="Europe/Berlin", dst=dst)
    return explain(Timeline(schedule=found, zone="Europe/Berlin"), ms(after), count)


def test_explained_gap() -> None:
    plain, moved = entries("30 2 * * *", "2026-03-27T12:00:00Z")
    assert plain == Entry(
        due_ms=ms("2026-03-28T01:30:00Z"),
        start_ms=ms("2026-03-28T01:30:00Z"),
        local="2026-03-28T02:30:00+01:00",
        notes=(),
    )
    assert moved.local == "2026-03-29T03:00:00+02:00"
    assert moved.notes == ("2026-03-29 02:30:00 does not exist in Europe/Berlin and runs at this time instead",)


def test_explained_shift_names_each_time() -> None:
    first, second = entries("15,45 2 * * *", "2026-03-28T12:00:00Z", dst=DstRule(gap="shift"))
    assert "02:15:00 does not exist" in first.notes[0]
    assert "02:45:00 does not exist" in second.notes[0]
    assert len(first.notes) == len(second.notes) == 1


def test_explained_drop_and_several_times() -> None:
    (dropped,) = entries("30 2 * * *", "2026-03-28T12:00:00Z", dst=DstRule(gap="skip"), count=1)
    assert dropped.local == "2026-03-30T02:30:00+02:00"
    assert dropped.notes == ("2026-03-29 02:30:00 does not exist in Europe/Berlin and is dropped",)
    (several,) = entries("15,45 2 * * *", "2026-03-28T12:00:00Z", count=1)
    assert several.notes[0].startswith("2026-03-29 02:15:00 (and 1 more) does not exist")


def test_explained_overlap() -> None:
    assert entries("30 1 * * *", "2026-10-24T12:00:00Z", count=1)[0].notes == ()
    first, day_after = entries("30 2 * * *", "2026-10-24T12:00:00Z")
    assert first.notes == ("this local time occurs twice and runs once, at its first pass; this is the first",)
    assert day_after.notes == ()
    both = entries("30 2 * * *", "2026-10-24T12:00:00Z", dst=DstRule(repeat="both"))
    assert [each.notes[0].split(";")[1] for each in both] == [" this is the first", " this is the second"]
    assert entries("*/30 2 * * *", "2026-10-24T12:00:00Z")[0].notes == ()


def test_explained_calendar_and_spread() -> None:
    timeline = Timeline(schedule=DAILY, zone="UTC", exclude=(dates("de-holidays", "2026-12-25"),), spread_ms=1_500)
    (entry,) = explain(timeline, ms("2026-12-24T12:00:00Z"), 1)
    assert entry.local == "2026-12-26T09:00:00+00:00"
    assert entry.notes == (
        "left out before it: 2026-12-25T09:00:00+00:00, in calendar de-holidays",
        "starts PT1.5S after its due time (the job's own spread)",
    )


def test_explained_ends_with_the_schedule() -> None:
    assert len(explain(Timeline(schedule=OneOff(at_ms=1_000), zone="UTC"), 0, 5)) == 1
    assert explain(Timeline(schedule=OneOff(at_ms=1_000), zone="UTC"), 1_000, 5) == []


def test_explain_agrees_with_the_timeline() -> None:
    timeline = Timeline(schedule=DAILY, zone="UTC", exclude=(dates("a", "2026-12-25", "2026-12-27"),), spread_ms=7)
    listed = [(each.due_ms, each.start_ms) for each in explain(timeline, ms("2026-12-20T00:00:00Z"), 20)]
    after_ms = ms("2026-12-20T00:00:00Z")
    for expected in listed:
        found = timeline.next_after(after_ms)
        assert found == expected
        after_ms = expected[0]


def test_a_local_date_before_the_calendar_is_shown_in_utc() -> None:
    timeline = Timeline(schedule=schedule({"every": "PT1M"}), zone="America/New_York")
    assert explain(timeline, ms("0001-01-01T00:00:00Z"), 1)[0].local == "0001-01-01T00:01:00+00:00"
