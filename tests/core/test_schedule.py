"""Schedules: the forms of a definition, their keys, and the next time of each kind."""

from __future__ import annotations

import time
from datetime import date
from itertools import pairwise

import pytest

from noontide.core.dst import DstRule
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.core.schedule import (
    AfterCompletion,
    CronSchedule,
    IntervalSchedule,
    OneOff,
    Schedule,
    ScheduleContext,
    UnionSchedule,
    parse_schedule,
    schedule_from_key,
)

CREATED_MS = 1_700_000_000_000


def read(value: object, *, zone: str = "UTC", job_id: str = "a", dst: DstRule | None = None) -> Schedule:
    context = ScheduleContext(timezone=zone, dst=dst or DstRule(), job_id=job_id, created_ms=CREATED_MS)
    return parse_schedule(value, context=context)


def refused(value: object) -> tuple[str, str]:
    with pytest.raises(InvalidDefinition) as error:
        read(value)
    return error.value.problems[0].pointer, error.value.problems[0].message


def ms(text: str) -> int:
    return parse_instant(text, zone=None, pointer="")


@pytest.mark.parametrize(
    "value, kind, key",
    [
        ("0 6 * * *", CronSchedule, "cron:UTC:next_valid:first:0 0 6 * * * *"),
        ({"cron": "0 6 * * *"}, CronSchedule, "cron:UTC:next_valid:first:0 0 6 * * * *"),
        ({"cron": ["0 6 * * *"]}, CronSchedule, "cron:UTC:next_valid:first:0 0 6 * * * *"),
        ({"cron": "5 0 6 * * *", "seconds": True}, CronSchedule, "cron:UTC:next_valid:first:5 0 6 * * * *"),
        ({"cron": "5 0 6 * * *", "seconds": "first"}, CronSchedule, "cron:UTC:next_valid:first:5 0 6 * * * *"),
        ({"cron": "@daily", "seconds": False}, CronSchedule, "cron:UTC:next_valid:first:0 0 0 * * * *"),
        (
            {"cron": ["0 8 * * *", "0 6 * * *", "0 8 * * *"]},
            UnionSchedule,
            "union:UTC:next_valid:first:0 0 6 * * * *|UTC:next_valid:first:0 0 8 * * * *",
        ),
        ({"every": "PT15M"}, IntervalSchedule, f"every:900000:{CREATED_MS}"),
        ({"every": "PT15M", "anchor": None}, IntervalSchedule, f"every:900000:{CREATED_MS}"),
        ({"every": "PT15M", "anchor": "1970-01-01T00:00:01Z"}, IntervalSchedule, "every:900000:1000"),
        ({"at": "1970-01-01T00:00:01Z"}, OneOff, "at:1000"),
        ({"after_completion": "PT5M"}, AfterCompletion, "after:300000"),
    ],
)
def test_forms_and_their_keys(value: object, kind: type, key: str) -> None:
    schedule = read(value)
    assert isinstance(schedule, kind)
    assert schedule.key == key
    again = schedule_from_key(key)
    assert again == schedule
    assert again is schedule_from_key(key)
    assert [again.next_after(at_ms) for at_ms in (0, CREATED_MS)] == [
        schedule.next_after(at_ms) for at_ms in (0, CREATED_MS)
    ]


@pytest.mark.parametrize(
    "value, pointer, part",
    [
        (None, "/schedule", "one of cron, every, at, after_completion"),
        (5, "/schedule", "one of"),
        (["0 6 * * *"], "/schedule", "one of"),
        ({}, "/schedule", "found none of them"),
        ({"seconds": True}, "/schedule", "found none of them"),
        ({"cron": "0 6 * * *", "every": "PT5M"}, "/schedule", "not cron and every together"),
        ({"cron": "0 6 * * *", "anchor": "x"}, "/schedule/anchor", "unknown beside cron"),
        ({"cron": "0 6 * * *", "second": True}, "/schedule/second", "did you mean seconds?"),
        ({"every": "PT5M", "seconds": True}, "/schedule/seconds", "unknown beside every"),
        ({"cron": "0 6 * * *", "seconds": "last"}, "/schedule/seconds", "true or"),
        ({"cron": "0 6 * * *", "seconds": 1.5}, "/schedule/seconds", "true or"),
        ({"cron": None}, "/schedule/cron", "string"),
        ({"cron": {}}, "/schedule/cron", "string"),
        ({"cron": []}, "/schedule/cron", "1 to 64"),
        ({"cron": ["0 6 * * *"] * 65}, "/schedule/cron", "1 to 64"),
        ({"cron": ["0 6 * * *", "61 * * * *"]}, "/schedule/cron/1", "minute"),
        ({"every": 300}, "/schedule/every", "ISO 8601"),
        ({"every": "PT5M", "anchor": 5}, "/schedule/anchor", "ambiguous"),
        ({"at": None}, "/schedule/at", "an instant is text"),
        ({"after_completion": "PT0S"}, "/schedule/after_completion", "millisecond"),
        ("61 * * * *", "/schedule", "minute"),
    ],
)
def test_refused(value: object, pointer: str, part: str) -> None:
    found_pointer, message = refused(value)
    assert found_pointer == pointer
    assert part in message


@pytest.mark.parametrize(
    "key",
    [
        *(
            "",
            "cron",
            "cron:",
            "cron:UTC:0 6 * * *",
            "cron:UTC:next_valid:first:0 6 * * *",
            "cron:X:skip:first:0 0 6 * * * *",
        ),
        *(
            "cron:UTC:jump:first:0 0 6 * * * *",
            "every:5",
            "every:0:0",
            "after:-1",
            "every:x:0",
            "at:x",
            "after:",
            "never:1",
            "union:x",
        ),
    ],
)
def test_text_that_is_no_key(key: str) -> None:
    with pytest.raises(InvalidDefinition):
        schedule_from_key(key)


def test_jobs_of_one_expression_share_its_evaluator() -> None:
    first, second = read("0 6 * * *", job_id="a"), read({"cron": "@yearly"}, job_id="b")
    assert read("0  6 * * *", job_id="c") is first
    assert read("0 0 1 1 *") is second
    assert read("0 6 * * *", zone="Europe/Berlin") is not first
    assert read("0 6 * * *", dst=DstRule(gap="skip")) != first


def test_h_is_resolved_in_the_key() -> None:
    keys = {read("H H * * *", job_id=f"job-{number}").key for number in range(50)}
    assert len(keys) > 40
    assert all("H" not in key for key in keys)


def test_interval() -> None:
    schedule = IntervalSchedule(every_ms=1_000, anchor_ms=500)
    assert [schedule.next_after(at_ms) for at_ms in (499, 500, 501, 1_499, 1_500)] == [500, 1_500, 1_500, 1_500, 2_500]
    assert schedule.next_after(-10_000) == -9_500, "the anchor is a phase, not a start"
    assert schedule.next_after(ms("9999-12-31T23:59:59.999Z")) is None


def test_one_off() -> None:
    schedule = OneOff(at_ms=1_000)
    assert [schedule.next_after(at_ms) for at_ms in (0, 999, 1_000, 1_001)] == [1_000, 1_000, None, None]


def test_one_off_in_a_gap() -> None:
    value = {"at": "2026-03-29T02:30:00"}
    for rule, expected in (
        (DstRule(), ms("2026-03-29T01:00:00Z")),
        (DstRule(gap="shift"), ms("2026-03-29T01:30:00Z")),
        (DstRule(gap="skip"), None),
    ):
        schedule = read(value, zone="Europe/Berlin", dst=rule)
        assert schedule.next_after(0) == expected
        assert schedule_from_key(schedule.key) == schedule
    assert read(value, zone="Europe/Berlin", dst=DstRule(gap="skip")).period_ms() is None


def test_an_anchor_is_never_dropped() -> None:
    value = {"every": "PT1H", "anchor": "2026-03-29T02:30:00"}
    schedule = read(value, zone="Europe/Berlin", dst=DstRule(gap="skip"))
    assert isinstance(schedule, IntervalSchedule)
    assert schedule.anchor_ms == ms("2026-03-29T01:00:00Z")


def test_after_completion() -> None:
    assert AfterCompletion(delay_ms=300).next_after(1_000) == 1_300


def test_union_counts_a_shared_instant_once() -> None:
    schedule = read({"cron": ["0 6 * * *", "0 */6 * * *"]})
    found, at_ms = [], ms("2026-01-01T00:00:00Z")
    for _ in range(4):
        next_ms = schedule.next_after(at_ms)
        assert next_ms is not None
        at_ms = next_ms
        found.append((at_ms - ms("2026-01-01T00:00:00Z")) // 3_600_000)
    assert found == [6, 12, 18, 24]


@pytest.mark.parametrize(
    "value, period_ms",
    [
        ("*/5 * * * *", 300_000),
        ({"cron": ["0 * * * *", "*/10 * * * *"]}, 600_000),
        ({"every": "PT7S"}, 7_000),
        ({"at": "2026-01-01T00:00:00Z"}, None),
        ({"after_completion": "PT7S"}, 7_000),
    ],
)
def test_period(value: object, period_ms: int | None) -> None:
    assert read(value).period_ms() == period_ms


def test_never_is_answered_within_milliseconds() -> None:
    schedule = read({"cron": "0 0 0 29 2 ? 2020", "seconds": True}, zone="Europe/Berlin")
    started = time.thread_time()
    assert schedule.next_after(ms("2026-01-01T00:00:00Z")) is None
    assert time.thread_time() - started < 0.5


def test_a_rare_day_is_found() -> None:
    """A Sunday 29 February comes every 28 years, and every 40 across a century without a leap day."""
    sundays = [date(year, 2, 29) for year in range(2028, 2200, 4) if year != 2100 and date(year, 2, 29).weekday() == 6]
    schedule = read("0 0 29 2 */7")
    at_ms = ms("2026-01-01T00:00:00Z")
    for expected in sundays:
        next_ms = schedule.next_after(at_ms)
        assert next_ms is not None
        at_ms = next_ms
        assert date.fromordinal(at_ms // 86_400_000 + 719_163) == expected
    assert max(later.year - earlier.year for earlier, later in pairwise(sundays)) == 40


def test_a_leap_day_is_found_across_a_century_in_a_zone() -> None:
    leap = read("0 0 29 2 *", zone="America/New_York")
    assert leap.next_after(ms("2096-03-01T00:00:00Z")) == ms("2104-02-29T05:00:00Z")
