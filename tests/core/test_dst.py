"""Daylight saving: the instant, one before and one after, in zones that change in unusual ways."""

from __future__ import annotations

import pytest

from noontide.core.cron import parse_cron
from noontide.core.dst import DEFAULT_DST, DstRule, Walk, parse_dst
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant, parse_instant
from noontide.core.zones import load_zone


def ms(text: str) -> int:
    return parse_instant(text, zone=None, pointer="")


def walk(cron: str, zone: str, rule: DstRule = DEFAULT_DST, *, seconds: bool = False) -> Walk:
    fields = parse_cron(cron, seconds=seconds, job_id="a", pointer="")
    return Walk(fields, zone=load_zone(zone, pointer=""), rule=rule)


def between(found: Walk, start: str, end: str) -> list[str]:
    """Instants in (start, end], without date where it is that of the start."""
    times = []
    at_ms = found.next_after(ms(start))
    while at_ms is not None and at_ms <= ms(end):
        times.append(format_instant(at_ms)[5:16])
        at_ms = found.next_after(at_ms)
    return times


NIGHT = ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z")
AUTUMN = ("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z")


@pytest.mark.parametrize(
    "cron, gap, expected",
    [
        ("30 2 * * *", "next_valid", ["03-29T01:00"]),
        ("30 2 * * *", "shift", ["03-29T01:30"]),
        ("30 2 * * *", "skip", []),
        ("59 1 * * *", "next_valid", ["03-29T00:59"]),
        ("0 3 * * *", "next_valid", ["03-29T01:00"]),
        ("0 2,3 * * *", "next_valid", ["03-29T01:00"]),
        ("0 2,3 * * *", "shift", ["03-29T01:00"]),
        ("0 2,3 * * *", "skip", ["03-29T01:00"]),
        ("15,45 2 * * *", "next_valid", ["03-29T01:00"]),
        ("15,45 2 * * *", "shift", ["03-29T01:15", "03-29T01:45"]),
        ("15,45 2,3 * * *", "shift", ["03-29T01:15", "03-29T01:45"]),
        ("15,45 2,3 * * *", "next_valid", ["03-29T01:00", "03-29T01:15", "03-29T01:45"]),
        ("*/30 2 * * *", "next_valid", []),
        ("30 */2 * * *", "skip", ["03-28T13:30", "03-28T15:30", "03-28T17:30", "03-28T19:30", "03-28T21:30"]),
    ],
)
def test_gap(cron: str, gap: str, expected: list[str]) -> None:
    """Berlin, 29 March 2026: 02:00-03:00 is missing; 03:00 is 01:00 UTC."""
    found = between(walk(cron, "Europe/Berlin", parse_dst({"gap": gap}, "")), *NIGHT)
    assert found[: len(expected)] == expected
    assert [time for time in found[len(expected) :] if "03-29T00:59" < time < "03-29T02:00"] == []


@pytest.mark.parametrize(
    "cron, repeat, expected",
    [
        ("30 2 * * *", "first", ["10-25T00:30"]),
        ("30 2 * * *", "second", ["10-25T01:30"]),
        ("30 2 * * *", "both", ["10-25T00:30", "10-25T01:30"]),
        ("0 2 * * *", "first", ["10-25T00:00"]),
        ("0 2 * * *", "second", ["10-25T01:00"]),
        ("59 2 * * *", "first", ["10-25T00:59"]),
        ("59 2 * * *", "second", ["10-25T01:59"]),
        ("59 1 * * *", "second", ["10-24T23:59"]),
        ("0 3 * * *", "second", ["10-25T02:00"]),
        (
            "0,30 1-3 * * *",
            "first",
            [f"10-{at}" for at in ("24T23:00", "24T23:30", "25T00:00", "25T00:30", "25T02:00")],
        ),
        (
            "0,30 1-3 * * *",
            "second",
            [f"10-{at}" for at in ("24T23:00", "24T23:30", "25T01:00", "25T01:30", "25T02:00")],
        ),
        ("*/30 2 * * *", "first", [f"10-25T{at}" for at in ("00:00", "00:30", "01:00", "01:30")]),
        ("*/30 2 * * *", "second", [f"10-25T{at}" for at in ("00:00", "00:30", "01:00", "01:30")]),
    ],
)
def test_overlap(cron: str, repeat: str, expected: list[str]) -> None:
    """Berlin, 25 October 2026: 02:00-03:00 is there twice, 00:00-01:00 and 01:00-02:00 UTC."""
    assert between(walk(cron, "Europe/Berlin", parse_dst({"repeat": repeat}, "")), *AUTUMN)[: len(expected)] == expected


def test_every_five_minutes_stays_so_through_both_nights() -> None:
    for start, end in (NIGHT, AUTUMN):
        for cron in ("*/5 * * * *", "*/5 0-23 * * *"):
            found = walk(cron, "Europe/Berlin")
            at_ms = ms(start)
            while at_ms < ms(end):
                assert found.next_after(at_ms) == at_ms + 300_000
                at_ms += 300_000


def test_a_date_the_zone_skipped_has_no_times() -> None:
    """Apia had no 30 December 2011; the 31st began at 10:00 UTC on the 30th."""
    start, end = "2011-12-29T09:00:00Z", "2011-12-31T12:00:00Z"
    for gap in ("next_valid", "shift", "skip"):
        rule = parse_dst({"gap": gap}, "")
        assert between(walk("0 12 30 12 *", "Pacific/Apia", rule), start, end) == []
        assert between(walk("0 12 * * *", "Pacific/Apia", rule), start, end) == ["12-29T22:00", "12-30T22:00"]


def test_a_local_day_in_two_pieces() -> None:
    """St. John's went back at 00:01 to 23:01 of the day before, until 2011: the 6th began twice."""
    start, end = "2010-11-06T12:00:00Z", "2010-11-08T00:00:00Z"
    zone = "America/St_Johns"
    assert between(walk("0 0 * * *", zone), start, end) == ["11-07T02:30"]
    assert between(walk("0 0 * * *", zone, DstRule(repeat="second")), start, end) == ["11-07T03:30"]
    assert between(walk("0 0 * * *", zone, DstRule(repeat="both")), start, end) == ["11-07T02:30", "11-07T03:30"]
    assert between(walk("30 23 * * *", zone), start, "2010-11-07T12:00:00Z") == ["11-07T02:00"]
    both = between(walk("30 23 * * *", zone, DstRule(repeat="both")), start, "2010-11-07T12:00:00Z")
    assert both == ["11-07T02:00", "11-07T03:00"]


def test_the_last_time_of_a_year_field_comes_back_in_the_overlap() -> None:
    """Nothing is left in the local year, except the repeated hour: Sao Paulo went back at the end of 17 February."""
    rule = DstRule(repeat="both")
    found = walk("0 30 23 17 2 ? 2018", "America/Sao_Paulo", rule, seconds=True)
    assert between(found, "2018-02-01T00:00:00Z", "2019-12-31T00:00:00Z") == ["02-18T01:30", "02-18T02:30"]


def test_the_same_answer_from_anywhere() -> None:
    """The kept plan never changes an answer: forwards, backwards and fresh agree."""
    shared = walk("15,45 2 * * *", "Europe/Berlin", DstRule(gap="shift", repeat="both"))
    asked = [ms("2026-01-01T00:00:00Z") + hour * 3_600_000 for hour in range(0, 24 * 400, 7)]
    forwards = [shared.next_after(at_ms) for at_ms in asked]
    backwards = [shared.next_after(at_ms) for at_ms in reversed(asked)]
    fresh = [
        walk("15,45 2 * * *", "Europe/Berlin", DstRule(gap="shift", repeat="both")).next_after(at_ms) for at_ms in asked
    ]
    assert forwards == backwards[::-1] == fresh


def test_the_ends_of_the_calendar() -> None:
    for zone in ("UTC", "Europe/Berlin", "Pacific/Apia", "America/Adak"):
        found = walk("0 0 * * *", zone)
        assert found.next_after(ms("9999-12-31T23:59:59.999Z")) is None
        assert found.next_after(-(10**14)) is not None
        assert found.next_after(ms("9998-12-31T12:00:00Z")) is not None


@pytest.mark.parametrize("value", [None, {}, {"gap": "next_valid"}, {"repeat": "first"}])
def test_rule_defaults(value: object) -> None:
    assert parse_dst(value, "/dst") == DstRule() == DstRule(gap="next_valid", repeat="first")


@pytest.mark.parametrize(
    "value, pointers",
    [
        ("skip", ["/dst"]),
        ([], ["/dst"]),
        ({"gap": "second"}, ["/dst/gap"]),
        ({"gap": None, "repeat": 1}, ["/dst/gap", "/dst/repeat"]),
        ({"gap": ["skip"]}, ["/dst/gap"]),
        ({"gaps": "skip"}, ["/dst/gaps"]),
    ],
)
def test_rule_refused(value: object, pointers: list[str]) -> None:
    with pytest.raises(InvalidDefinition) as error:
        parse_dst(value, "/dst")
    assert [problem.pointer for problem in error.value.problems] == pointers
