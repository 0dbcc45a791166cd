"""Schedules against oracles: croniter and cronsim over naive time, and brute force around every transition."""

from __future__ import annotations

import json
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from itertools import islice, product
from pkgutil import get_data
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, croniter
from cronsim import CronSim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noontide.apps.cli.preview import answers
from noontide.core.cron import parse_cron, parse_resolved
from noontide.core.dst import DstRule, Gap, Repeat, Walk
from noontide.core.errors import InvalidDefinition
from noontide.core.schedule import IntervalSchedule, ScheduleContext, parse_schedule, schedule_from_key
from noontide.core.zones import load_zone, zone_names

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY, SATURDAY = timedelta(days=1), 5
# Naive times in, naive times out: the oracles know no zone.
STARTS = st.integers(631_152_000, 2_208_988_800).map(
    lambda second: (EPOCH + timedelta(seconds=second)).replace(tzinfo=None)
)
SLOW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def walk(text: str, zone: str = "UTC", rule: DstRule | None = None, *, seconds: bool = False) -> Walk:
    fields = parse_cron(text, seconds=seconds, job_id="a", pointer="")
    return Walk(fields, zone=load_zone(zone, pointer=""), rule=rule or DstRule())


def ms(at: datetime) -> int:
    return (at.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


@st.composite
def items(draw: st.DrawFn, low: int, high: int) -> str:
    """One value, ascending range or step of a field: forms that every dialect reads alike."""
    first = draw(st.integers(low, high))
    if first == high or draw(st.booleans()):
        return str(first)
    last = draw(st.integers(first + 1, high))
    step = draw(st.integers(1, min(12, high - low + 1)))
    return draw(st.sampled_from([f"{first}-{last}", f"{first}-{last}/{step}"]))


def lists(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(items(low, high), min_size=1, max_size=3).map(",".join)


def any_of(low: int, high: int) -> st.SearchStrategy[str]:
    return st.just("*") | lists(low, high) | st.integers(2, min(30, high)).map("*/{}".format)


WEEKDAYS = st.just("*") | lists(0, 6) | st.sampled_from(["SUN", "mon-fri", "6-7", "1#1", "5#5", "TUE#2,WED#3"])
DAYS = st.just("*") | lists(1, 31) | st.just("L")
CLOCKS = st.tuples(any_of(0, 59), any_of(0, 23)).map(" ".join)


def ours(text: str, start: datetime, count: int, *, seconds: bool = False) -> list[datetime]:
    found, at_ms = [], ms(start)
    schedule = walk(text, seconds=seconds)
    for _ in range(count):
        next_ms = schedule.next_after(at_ms)
        if next_ms is None:
            break
        assert next_ms > at_ms
        at_ms = next_ms
        found.append((EPOCH + timedelta(milliseconds=at_ms)).replace(tzinfo=None))
    return found


def accepted(text: str, *, seconds: bool = False) -> bool:
    """Whether the expression is one; among those made here only impossible dates are refused."""
    try:
        parse_cron(text, seconds=seconds, job_id="a", pointer="")
    except InvalidDefinition as refused:
        if "never comes" not in str(refused):
            raise
        return False
    return True


@SLOW
@given(CLOCKS, DAYS, any_of(1, 12), WEEKDAYS, STARTS)
def test_croniter_agrees(clock: str, day: str, month: str, weekday: str, start: datetime) -> None:
    text = f"{clock} {day} {month} {weekday}"
    if not accepted(text) or ("#" in weekday and day != "*"):  # croniter wants both there, classic cron either
        return
    oracle = croniter(text, start, ret_type=datetime)
    expected: list[datetime] = []
    try:
        expected.extend(oracle.get_next() for _ in range(4))
    except CroniterBadDateError:
        return
    assert ours(text, start, 4) == expected


@SLOW
@given(st.tuples(any_of(0, 59), CLOCKS, any_of(1, 12)), STARTS)
def test_croniter_agrees_on_seconds(parts: tuple[str, str, str], start: datetime) -> None:
    second, clock, month = parts
    text = f"{second} {clock} * {month} *"
    oracle = croniter(text, start, ret_type=datetime, second_at_beginning=True)
    assert ours(text, start, 4, seconds=True) == [oracle.get_next() for _ in range(4)]


@SLOW
@given(CLOCKS, DAYS | any_of(1, 31), any_of(1, 12), any_of(0, 6) | st.sampled_from(["1#1", "5L", "0-7", "7"]), STARTS)
def test_cronsim_agrees(clock: str, day: str, month: str, weekday: str, start: datetime) -> None:
    """Cronsim follows Debian's cron, where a day field that begins with * leaves the choice to the other."""
    text = f"{clock} {day} {month} {weekday}"
    if not accepted(text):
        return
    oracle = CronSim(text, start)
    assert ours(text, start, 4) == [found for _, found in zip(range(4), oracle, strict=False)]


@SLOW
@given(st.sampled_from(["1W", "15W", "31W", "L", "LW"]), any_of(1, 12), STARTS)
def test_weekdays_near_a_date_agree_with_an_oracle(day: str, month: str, start: datetime) -> None:
    text = f"0 0 {day} {month} *"
    if day in ("L", "LW"):
        expected = [found for _, found in zip(range(4), CronSim(text, start), strict=False)]
    else:
        months = CronSim(f"0 0 1 {month} *", start.replace(day=1) - DAY)
        expected = list(islice(_nearest_weekdays(int(day[:-1]), months, start), 4))
    assert ours(text, start, 4) == expected


def _nearest_weekdays(day: int, months: Iterator[datetime], start: datetime) -> Iterator[datetime]:
    """The weekday nearest to a day of each month, within the month, after `start`; short months: to their last day."""
    for first in months:
        wanted = first.replace(day=min(day, monthrange(first.year, first.month)[1]))
        near = [wanted + DAY * step for step in (0, -1, 1, -2, 2)]
        found = next(each for each in near if each.weekday() < SATURDAY and each.month == first.month)
        if found > start:
            yield found


@SLOW
@given(CLOCKS, DAYS, st.sampled_from(sorted(zone_names())), STARTS)
def test_next_is_the_least_later_instant(clock: str, day: str, zone: str, start: datetime) -> None:
    """From just before an answer comes that answer, from the answer itself a later one, from its past never more."""
    shared = walk(f"{clock} {day} * *", zone)
    first_ms = shared.next_after(ms(start))
    if first_ms is None:
        return
    assert ms(start) < first_ms
    assert shared.next_after(first_ms - 1) == first_ms
    assert shared.next_after((ms(start) + first_ms) // 2) == first_ms
    second_ms = shared.next_after(first_ms)
    assert second_ms is None or second_ms > first_ms
    assert walk(f"{clock} {day} * *", zone).next_after(first_ms) == second_ms


@settings(deadline=None)
@given(st.integers(1, 10**12), st.integers(-(10**14), 10**14), st.integers(-(10**14), 10**14))
def test_intervals_are_whole_steps_from_the_anchor(every_ms: int, anchor_ms: int, after_ms: int) -> None:
    next_ms = IntervalSchedule(every_ms=every_ms, anchor_ms=anchor_ms).next_after(after_ms)
    assert next_ms is not None
    assert after_ms < next_ms <= after_ms + every_ms
    assert (next_ms - anchor_ms) % every_ms == 0


@SLOW
@given(CLOCKS, DAYS, st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]), STARTS)
def test_the_key_says_everything(clock: str, day: str, zone: str, start: datetime) -> None:
    context = ScheduleContext(timezone=zone, job_id="a", created_ms=0)
    schedule = parse_schedule({"cron": [f"{clock} {day} * *", "0 0 1 1 *"]}, context=context)
    again = schedule_from_key.__wrapped__(schedule.key)
    assert again.key == schedule.key
    assert again.next_after(ms(start)) == schedule.next_after(ms(start))


@settings(deadline=None)
@given(st.text(alphabet="0123456789*/-,?#LWHlwhMONJAN()@ ", max_size=30), st.booleans())
def test_any_text_is_an_expression_or_a_refusal(text: str, seconds: bool) -> None:
    """Never another exception than the refusal."""
    with suppress(InvalidDefinition):
        fields = parse_cron(text, seconds=seconds, job_id="a", pointer="/cron")
        assert len(fields.times) > 0
        assert parse_resolved(fields.text) == fields


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
ROW_VALUES = JSON | st.sampled_from(
    ["* * * * *", "PT1S", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "Pacific/Apia", "relaxed", "first", 3]
)
ROW_NAMES = st.sampled_from(
    ["id", "cron", "interval", "run_at", "timezone", "after", "count", "anchor", "seconds", "dst", "timing"]
)


@settings(deadline=None)
@given(st.dictionaries(ROW_NAMES, ROW_VALUES, max_size=6) | JSON)
def test_a_batch_answers_every_line(row: object) -> None:
    bounded = row | {"count": 3} if isinstance(row, dict) and isinstance(row.get("count"), int) else row
    (answer,) = answers([json.dumps(bounded).encode()])
    assert ("times" in answer) != ("error" in answer)


@settings(deadline=None)
@given(st.binary(max_size=60).filter(lambda line: line.strip()))
def test_a_batch_answers_every_line_of_bytes(line: bytes) -> None:
    (answer,) = answers([line])
    assert "error" in answer


# Every transition of every zone in two years, by brute force over the minutes around it.

FIRST, LAST = datetime(2025, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Transition:
    zone: str
    info: ZoneInfo
    at: datetime


@cache
def packaged(name: str) -> bytes:
    data = get_data("tzdata", f"zoneinfo/{name}")
    assert data is not None
    return data


def offset(info: ZoneInfo, at: datetime) -> timedelta:
    found = at.astimezone(info).utcoffset()
    assert found is not None
    return found


def transitions() -> Iterator[Transition]:
    """One zone for each different file; every change of offset, found in steps of four days, then halved."""
    by_data = {packaged(name): name for name in sorted(zone_names(), reverse=True)}
    for data, name in by_data.items():
        info = ZoneInfo.from_file(BytesIO(data), key=name)
        at = FIRST
        while at < LAST:
            later = at + timedelta(days=4)
            if offset(info, at) != offset(info, later):
                low, high = at, later
                while high - low > MINUTE:
                    middle = low + (high - low) // 2 // MINUTE * MINUTE
                    low, high = (middle, high) if offset(info, middle) == offset(info, low) else (low, middle)
                yield Transition(name, info, high)
            at = later


TRANSITIONS = list(transitions())


def minutes(start: datetime, count: int) -> list[datetime]:
    return [start + MINUTE * number for number in range(count)]


def fixed_instants(change: Transition, local_times: set[datetime], gap: Gap, repeat: Repeat) -> list[datetime]:
    """What the rules say about naive local times, from what `zoneinfo` says about each."""
    found: set[datetime] = set()
    for local in local_times:
        passes = [local.replace(tzinfo=change.info, fold=fold).astimezone(UTC) for fold in (0, 1)]
        exists = passes[0].astimezone(change.info).replace(tzinfo=None) == local
        if exists and passes[0] == passes[1]:
            found.add(passes[0])
        elif exists:
            found.update({"first": passes[:1], "second": passes[1:], "both": passes}[repeat])
        elif gap == "next_valid":
            found.add(change.at)
        elif gap == "shift":
            found.add(passes[0])
    return sorted(found)


def listed(schedule: Walk, start: datetime, end: datetime) -> list[datetime]:
    found, at_ms = [], schedule.next_after(ms(start) - 1)
    while at_ms is not None and at_ms < ms(end):
        found.append(EPOCH + timedelta(milliseconds=at_ms))
        at_ms = schedule.next_after(at_ms)
    return found


def test_there_are_transitions_of_every_kind() -> None:
    jumps = {offset(each.info, each.at) - offset(each.info, each.at - MINUTE) for each in TRANSITIONS}
    assert {timedelta(hours=1), timedelta(hours=-1), timedelta(minutes=30), timedelta(hours=2)} <= jumps
    assert len(TRANSITIONS) > 200


@pytest.mark.parametrize("part", range(4))
def test_rules_hold_around_every_transition(part: int) -> None:
    for change in TRANSITIONS[part::4]:
        check_fixed_times(change)
        check_wall_followers(change)


def check_fixed_times(change: Transition) -> None:
    before = (change.at - MINUTE).astimezone(change.info).replace(tzinfo=None)
    after = change.at.astimezone(change.info).replace(tzinfo=None)
    hours = sorted({before.hour, after.hour, (max(before, after) + timedelta(hours=1)).hour})
    text = f"0,30,45 {','.join(map(str, hours))} * * *"
    naive = minutes(min(before, after).replace(hour=0, minute=0) - timedelta(days=1), 3 * 1440)
    local_times = {local for local in naive if local.minute in (0, 30, 45) and local.hour in hours}
    start, end = change.at - timedelta(hours=12), change.at + timedelta(hours=12)
    rules: product[tuple[Gap, Repeat]] = product(("next_valid", "shift", "skip"), ("first", "second", "both"))
    for gap, repeat in rules:
        expected = [at for at in fixed_instants(change, local_times, gap, repeat) if start <= at < end]
        found = listed(walk(text, change.zone, DstRule(gap=gap, repeat=repeat)), start, end)
        assert found == expected, (change.zone, change.at, text, gap, repeat)


def check_wall_followers(change: Transition) -> None:
    start, end = change.at - timedelta(hours=5), change.at + timedelta(hours=5)
    wall = [(at, at.astimezone(change.info)) for at in minutes(start, 600)]
    hour = (change.at - MINUTE).astimezone(change.info).hour
    for text, minute_step, hours in (
        ("*/20 * * * *", 20, range(24)),
        (f"*/15 {hour} * * *", 15, [hour]),
        ("30 */2 * * *", None, range(0, 24, 2)),
    ):
        expected = [
            at
            for at, local in wall
            if local.hour in hours and (local.minute % minute_step == 0 if minute_step else local.minute == 30)
        ]
        found = listed(walk(text, change.zone, DstRule(gap="shift", repeat="second")), start, end)
        assert found == expected, (change.zone, change.at, text)
