"""Cron expressions: what each form means, on days and times that can be checked by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noontide.core.cron import parse_cron, parse_resolved
from noontide.core.cron_fields import CronFields, compact
from noontide.core.dst import DstRule, Walk
from noontide.core.errors import InvalidDefinition
from noontide.core.zones import load_zone


def fields(text: str, *, seconds: bool = False, job_id: str = "a") -> CronFields:
    return parse_cron(text, seconds=seconds, job_id=job_id, pointer="/cron")


def days(text: str, *, year: int = 2026, month: int | None = None) -> list[str]:
    """Matching dates of a year or a month, as MM-DD."""
    table = fields(f"0 0 {text}").days
    first = datetime(year, month or 1, 1, tzinfo=UTC)
    found = []
    day = first.toordinal() - 719_163
    while (matching := table.first_on_or_after(day)) is not None:
        date = datetime.fromordinal(matching + 719_163)
        if date.year != year or (month and date.month != month):
            break
        found.append(date.strftime("%m-%d"))
        day = matching + 1
    return found


def hours(text: str) -> list[int]:
    return [second // 3600 for second in fields(f"0 {text} * * *").times]


def after(text: str, start: str, *, seconds: bool = False) -> str | None:
    walk = Walk(fields(text, seconds=seconds), zone=load_zone("UTC", pointer=""), rule=DstRule())
    found = walk.next_after(int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() * 1000))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return None if found is None else str(epoch + timedelta(milliseconds=found)).removesuffix("+00:00")


def refused(text: object, *, seconds: bool = False) -> str:
    with pytest.raises(InvalidDefinition) as error:
        parse_cron(text, seconds=seconds, job_id="a", pointer="/cron")
    assert [problem.pointer for problem in error.value.problems] == ["/cron"]
    return error.value.problems[0].message


@pytest.mark.parametrize(
    "text, expected",
    [
        ("8", [8]),
        ("8-8", [8]),
        ("8-10", [8, 9, 10]),
        ("8,20,8", [8, 20]),
        ("8-20/6", [8, 14, 20]),
        ("*/6", [0, 6, 12, 18]),
        ("20/2", [20, 22]),
        ("23/2", [23]),
        ("22-2", [0, 1, 2, 22, 23]),
        ("22-2/3", [1, 22]),
        ("22-2/2", [0, 2, 22]),
        ("*/24", [0]),
        ("08", [8]),
    ],
)
def test_clock_fields(text: str, expected: list[int]) -> None:
    assert hours(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("L * *", ["02-28"]),
        ("L-1 * *", ["02-27"]),
        ("L-27 * *", ["02-01"]),
        ("L-28 * *", []),
        ("LW * *", ["02-27"]),
        ("1W * *", ["02-02"]),
        ("14W * *", ["02-13"]),
        ("15W * *", ["02-16"]),
        ("16W * *", ["02-16"]),
        ("28W * *", ["02-27"]),
        ("31W * *", ["02-27"]),
        ("1,15W,L * *", ["02-01", "02-16", "02-28"]),
        ("* * 1#1", ["02-02"]),
        ("* * 1#1,1#3", ["02-02", "02-16"]),
        ("* * 1#5", []),
        ("* * MON#4", ["02-23"]),
        ("* * 1#1,FRI", ["02-02", "02-06", "02-13", "02-20", "02-27"]),
        ("* * MON-WED#2", ["02-09", "02-10", "02-11"]),
        ("* * 5L", ["02-27"]),
        ("* * FRIL", ["02-27"]),
        ("* * L5", ["02-27"]),
        ("* * 0L,7L", ["02-22"]),
        ("* * SUN", ["02-01", "02-08", "02-15", "02-22"]),
        ("* * 7", ["02-01", "02-08", "02-15", "02-22"]),
        ("* * sat-sun", ["02-01", "02-07", "02-08", "02-14", "02-15", "02-21", "02-22", "02-28"]),
        ("? * SUN", ["02-01", "02-08", "02-15", "02-22"]),
        ("13 * ?", ["02-13"]),
        ("13 * 1#1", ["02-02", "02-13"]),
        ("13 * */6", []),
        ("14 * */6", ["02-14"]),
        ("*/13 * SUN", ["02-01"]),
        ("1-31/13 * SUN", ["02-01", "02-08", "02-14", "02-15", "02-22", "02-27"]),
        ("27-2 * *", ["02-01", "02-02", "02-27", "02-28"]),
    ],
)
def test_days_of_a_month(text: str, expected: list[str]) -> None:
    """February 2026: 28 days, the 1st is a Sunday."""
    assert days(text, month=2) == expected


@pytest.mark.parametrize(
    "text, weekdays",
    [
        ("0-7", 7),
        ("1-7", 7),
        ("5-7", 3),
        ("7-1", 2),
        ("7-2", 3),
        ("FRI-MON", 4),
        ("FRI-MON/2", 2),
        ("1-7/2", 4),
        ("*/7", 1),
        ("1/2", 3),
    ],
)
def test_ranges_of_weekdays(text: str, weekdays: int) -> None:
    """March 2027 from the 1st (a Monday) to the 28th: four of each weekday."""
    assert len([day for day in days(f"* * {text}", year=2027, month=3) if day <= "03-28"]) == 4 * weekdays


def test_months() -> None:
    assert days("1 apr-Jan/3 *") == ["01-01", "04-01", "07-01", "10-01"]
    assert days("1 NOV-2 *") == ["01-01", "02-01", "11-01", "12-01"]
    assert days("1 11-3/4 *") == ["03-01", "11-01"]
    assert days("29 2 *") == []
    assert days("29 2 *", year=2028) == ["02-29"]
    assert days("L-28 2 *") == []
    assert days("L-28 2 *", year=2028) == ["02-01"]


def test_seconds_and_years() -> None:
    assert after("15,45 30 2 * * *", "2026-01-01T02:30:15", seconds=True) == "2026-01-01 02:30:45"
    assert after("0 0 0 1 1 ? 2028-2030/2", "2026-01-01T00:00:00", seconds=True) == "2028-01-01 00:00:00"
    assert after("0 0 0 1 1 ? 2028-2030/2", "2028-01-01T00:00:00", seconds=True) == "2030-01-01 00:00:00"
    assert after("0 0 0 1 1 ? 2028-2030/2", "2030-01-01T00:00:00", seconds=True) is None
    assert after("* * * * * *", "2026-12-31T23:59:59", seconds=True) == "2027-01-01 00:00:00"
    assert isinstance(fields("* * * * * *", seconds=True).times, range)


@pytest.mark.parametrize(
    "macro, text",
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
    ],
)
def test_macros(macro: str, text: str) -> None:
    assert fields(macro) == fields(macro, seconds=True) == fields(text)


def test_blanks_around_and_between_do_not_matter() -> None:
    assert fields("  0   6 * * *  ") == fields("0 6 * * *")


def test_fixed_time_is_about_minute_and_hour() -> None:
    fixed = ("30 2 * * *", "0,30 1-23/2 * * *", "H H * * *", "@daily")
    assert all(fields(text).fixed_time for text in fixed)
    assert not any(fields(text).fixed_time for text in ("30 * * * *", "*/5 2 * * *", "0 */2 * * *", "*,30 2 * * *"))
    assert fields("* 30 2 * * *", seconds=True).fixed_time


@pytest.mark.parametrize("name", ["H * * * *", "0 H * * *", "0 0 H * *", "0 0 1 H *", "0 0 * * H"])
def test_h_stays_the_same_and_spreads(name: str) -> None:
    texts = [fields(name, job_id=f"job-{number}").text for number in range(500)]
    assert texts == [fields(name, job_id=f"job-{number}").text for number in range(500)]
    values = {"H * * * *": 60, "0 H * * *": 24, "0 0 H * *": 28, "0 0 1 H *": 12, "0 0 * * H": 7}[name]
    assert len(set(texts)) > values * 0.95, "each value is some job's"
    assert "H" not in "".join(texts)


def test_h_of_two_fields_is_independent() -> None:
    texts = {fields("H H * * *", job_id=f"job-{number}").text for number in range(1500)}
    assert len(texts) > 850, "1,500 draws from 1,440 values leave about 930 distinct ones"


def test_h_with_range_and_step() -> None:
    for number in range(100):
        ranged = fields("H(10-19) * * * *", job_id=f"job-{number}").times
        assert 10 <= ranged[0] // 60 <= 19
        assert len(ranged) == 24
        stepped = [second // 60 for second in fields("H/15 0 * * *", job_id=f"job-{number}").times]
        assert stepped == [stepped[0] + 15 * step for step in range(4)]
        assert stepped[0] < 15
        both = [second // 60 for second in fields("H(0-29)/10 0 * * *", job_id=f"job-{number}").times]
        assert len(both) == 3
        assert both[-1] < 30
        assert len(fields("H(58-59)/15,5 0 * * *", job_id=f"job-{number}").times) == 2


def test_resolved_text_says_the_same() -> None:
    for text in ("H/15 H(0-6) * * *", "0 6 ? * MON#2,FRIL", "*/10 22-2/3 L-2,15W 1,JUN *"):
        found = fields(text, job_id="job")
        again = parse_resolved(found.text)
        assert again == found
        assert (list(again.times), again.days) == (list(found.times), found.days)
    with pytest.raises(InvalidDefinition, match="seven fields"):
        parse_resolved("0 6 * * *")


@pytest.mark.parametrize(
    "text, start",
    [
        *(("60 * * * *", "minute:"), ("5-60 * * * *", "minute:"), ("-5 * * * *", "minute:"), ("5- * * * *", "minute:")),
        *(
            ("*5 * * * *", "minute:"),
            ("5-10-15 * * * *", "minute:"),
            ("*/5/5 * * * *", "minute:"),
            ("*/ * * * *", "minute:"),
        ),
        *(
            (",5 * * * *", "minute:"),
            ("5, * * * *", "minute:"),
            ("1,,2 * * * *", "minute:"),
            ("1.5 * * * *", "minute:"),
        ),
        *(
            ("MON * * * *", "minute:"),
            ("*/61 * * * *", "minute:"),
            ("*/99999 * * * *", "minute:"),
            ("*/0 * * * *", "minute:"),
        ),
        *(("00000 * * * *", "minute:"), ("R * * * *", "minute:"), ("? * * * *", "minute:"), ("0x5 * * * *", "minute:")),
        *(("* 24 * * *", "hour:"), ("* */25 * * *", "hour:"), ("* ? * * *", "hour:"), ("* 5W * * *", "hour:")),
        *(("* * 0 * *", "day of month:"), ("* * 32 * *", "day of month:"), ("* * 0W * *", "day of month:")),
        *(("* * 32W * *", "day of month:"), ("* * L-31 * *", "day of month:"), ("* * 1-L * *", "day of month:")),
        *(("* * ?,1 * *", "day of month:"), ("* * WL * *", "day of month:"), ("* * 5#2 * *", "day of month:")),
        *(("* * * 0 *", "month:"), ("* * * 13 *", "month:"), ("* * * JANUARY *", "month:"), ("* * * SUN *", "month:")),
        *(("* * * * 8", "day of week:"), ("* * * * 1#0", "day of week:"), ("* * * * 1#6", "day of week:")),
        *(("* * * * 8#1", "day of week:"), ("* * * * 8L", "day of week:"), ("* * * * JANL", "day of week:")),
        *(("* * * * MONDAY", "day of week:"), ("* * * * L", "day of week:"), ("* * * * MON#", "day of week:")),
        *(
            ("H(5-60) * * * *", "minute:"),
            ("H(9-5) * * * *", "minute:"),
            ("H/0 * * * *", "minute:"),
            ("H5 * * * *", "minute:"),
        ),
        *(("0 0 30 2 *", "day of month:"), ("0 0 31 4,6,9,11 *", "day of month:"), ("0 0 L-30 2,4 *", "day of month:")),
    ],
)
def test_refused_with_the_field(text: str, start: str) -> None:
    assert refused(text).startswith(start)


@pytest.mark.parametrize("text", ["0 0 30 2 1", "0 0 31W 2 *", "0 0 29 2 *", "0 0 */31 2 *", "0 0 31 2,3 *"])
def test_days_that_do_come(text: str) -> None:
    assert fields(text).days.first_on_or_after(20_000) is not None


@pytest.mark.parametrize(
    "text, seconds, count",
    [
        ("", False, "no fields"),
        ("*", False, "1 field"),
        ("* * * *", False, "4 fields"),
        ("* * * * * *", False, "6 fields"),
        ("* * * * *", True, "5 fields"),
        ("* * * * * * * *", True, "8 fields"),
    ],
)
def test_refused_with_the_number_of_fields(text: str, seconds: bool, count: str) -> None:
    assert f"has {count}; " in refused(text, seconds=seconds)


@pytest.mark.parametrize("text", ["0 0 0 1 1 ? 1969", "0 0 0 1 1 ? 2100", "0 0 0 1 1 ? 2030-2027", "0 0 0 1 1 ? H"])
def test_refused_years(text: str) -> None:
    assert refused(text, seconds=True).startswith("year:")


def test_an_impossible_day_of_a_given_year_is_refused() -> None:
    assert "never comes" in refused("0 0 0 29 2 ? 2027", seconds=True)
    assert after("0 0 0 29 2 ? 2027-2028", "2026-01-01T00:00:00", seconds=True) == "2028-02-29 00:00:00"


@pytest.mark.parametrize(
    "text, part",
    [
        ("0 0 * * *\n", "control character"),
        ("0\t0 * * *", "control character"),
        ("0 0 * * *\x00", "control character"),
        ("0 0 * * *\x7f", "control character"),
        ("٥ 0 * * *", "outside ASCII"),
        ("\uff15 0 * * *", "outside ASCII"),
        ("0\u00a00 * * *", "outside ASCII"),
        ("0 " * 600, "at most 512"),
        ("@reboot", "names no time"),
        ("@every 90m", '{"every": "PT90M"}'),
        ("@fortnightly", "not a known macro"),
        ("rate(2 hours)", '{"every": "PT2H"}'),
        ("rate(1 day)", '{"every": "P1D"}'),
        ("10m", '{"every": "PT10M"}'),
        ("PT10M", '{"every": "PT10M"}'),
        ("CRON_TZ=UTC 0 0 * * *", "field timezone"),
        ("Mon..Fri 04:00", "systemd"),
        ("0 1 * * *; 0 2 * * *", "list"),
        ("0 1 * * * | 0 2 * * *", "list"),
        (None, "string"),
        (5, "string"),
        (True, "string"),
        (["0 0 * * *"], "string"),
    ],
)
def test_refused_with_a_hint(text: object, part: str) -> None:
    assert part in refused(text)


def test_two_lines_are_named_as_such() -> None:
    assert "list" in refused("0 1 * * *\n0 2 * * *")


@pytest.mark.parametrize("text, period_s", [("* * * * *", 60), ("*/5 * * * *", 300), ("0 0 * * *", 86_400)])
def test_period(text: str, period_s: int) -> None:
    assert fields(text).period_ms() == period_s * 1000


def test_period_is_the_smallest_distance() -> None:
    assert fields("0,5 * * * *").period_ms() == 300_000
    assert fields("0 0 * * 1").period_ms() == 7 * 86_400_000
    assert fields("0 0 1 * *").period_ms() == 28 * 86_400_000
    assert fields("0 0 1 1 *").period_ms() == 365 * 86_400_000


def test_compact_keeps_the_values() -> None:
    for values in ([], [1], [1, 2], [1, 2, 3], [1, 3, 5, 7], [1, 2, 4], [0, 10, 20, 25]):
        assert list(compact(values)) == values


def test_no_future_match_is_answered() -> None:
    assert after("0 0 0 1 1 ? 2020", "2026-01-01T00:00:00", seconds=True) is None
    assert fields("* * * * *").days.first_on_or_after(2_932_896) == 2_932_896
    assert fields("* * * * *").days.first_on_or_after(2_932_897) is None
    assert fields("* * * * *").days.first_on_or_after(-10_000_000) == -719_162
