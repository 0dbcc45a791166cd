"""Occurrences: a schedule narrowed by start, end and calendars, and spread in time.

`due` is the nominal time: it names the run. `start` is when it may be claimed: due plus the job's own
fixed offset, so that a million jobs of 00:00 do not start in one second. Preview, API and scheduler ask
this module and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, NamedTuple

from noontide.core.calendar import Calendar
from noontide.core.dst import DEFAULT_DST, LAST_MS, resolve_local
from noontide.core.durations import MINUTE_MS, format_duration, parse_duration
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import FIRST_MS, format_instant
from noontide.core.schedule import AfterCompletion, CronSchedule, OneOff, Schedule, UnionSchedule
from noontide.core.zones import DAY_MS, Zone, load_zone

RELAXED_MAX_MS = 5 * MINUTE_MS
"""No relaxed job starts later than this after its due time because of the spread."""
RELAXED_SHARE = 10
"""A relaxed job is spread over the period divided by this number (10 %)."""
_SEARCH_MAX = 100_000  # members of a job's calendars that one search may pass


class Occurrence(NamedTuple):
    """One time of a job: when it is due and, spread, when it may start."""

    due_ms: int
    start_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a job is spread after its due time: not at all, a little by default, or over a window."""

    mode: Literal["relaxed", "exact", "window"]
    window_ms: int = 0


RELAXED = Timing(mode="relaxed")
EXACT = Timing(mode="exact")
DEFAULT_LANE, EXPRESS_LANE = "default", "express"


def lane_of(timing: Timing, schedule: Schedule | None) -> str:
    """The lane of a job that names none: one that insists on its minute every time does not queue behind the others."""
    recurs = schedule is not None and not isinstance(schedule, OneOff)
    return EXPRESS_LANE if recurs and timing == EXACT else DEFAULT_LANE


def parse_timing(value: object, *, schedule: Schedule, pointer: str) -> Timing:
    """The timing of `"relaxed"`, `"exact"` or `{"window": "PT5M"}`; None is the schedule's default.

    One-offs are exact by default, everything that recurs is relaxed.
    """
    if value is None:
        return EXACT if isinstance(schedule, OneOff) else RELAXED
    if value == "relaxed":
        return RELAXED
    if value == "exact":
        return EXACT
    if isinstance(value, Mapping) and set(value) == {"window"}:
        return Timing(mode="window", window_ms=parse_duration(value["window"], pointer=f"{pointer}/window"))
    raise InvalidDefinition.of(pointer, 'must be "relaxed", "exact" or {"window": "PT5M"}')


def spread_offset(job_id: str, *, timing: Timing, period_ms: int | None) -> int:
    """The fixed offset of a job in milliseconds, at least 0 and below the window.

    relaxed: the smaller of 5 minutes and 10 % of the period (5 minutes when there is no period).
    The same id gives the same offset on every machine and after every restart.
    """
    match timing.mode:
        case "exact":
            return 0
        case "window":
            window_ms = timing.window_ms
        case "relaxed":
            window_ms = RELAXED_MAX_MS if period_ms is None else min(RELAXED_MAX_MS, period_ms // RELAXED_SHARE)
    digest = blake2b(job_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % window_ms if window_ms > 0 else 0


class Step(NamedTuple):
    """A due time and, when calendars leave it out, why."""

    due_ms: int
    left_out_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The occurrences of one job.

    starts_at_ms, ends_at_ms: bounds of the due time, both included. zone: where a due time's date is
    looked up in the calendars. include: dates of any of these only; exclude: no date of any of these.
    """

    schedule: Schedule
    zone: str
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    include: tuple[Calendar, ...] = ()
    exclude: tuple[Calendar, ...] = ()
    spread_ms: int = 0

    def next_after(self, after_ms: int) -> Occurrence | None:
        """The first occurrence whose due time is strictly greater than `after_ms`; None when there is none."""
        if not self.include and not self.exclude:
            due_ms = self._due(after_ms, not_before_ms=self.starts_at_ms)
            return None if due_ms is None else Occurrence(due_ms, due_ms + self.spread_ms)
        for due_ms, left_out_by in self.steps_after(after_ms):
            if left_out_by is None:
                return Occurrence(due_ms, due_ms + self.spread_ms)
        return None

    def steps_after(self, after_ms: int) -> Iterator[Step]:
        """Due times that calendars leave out, the first of each stretch, and at last the one that stays."""
        zone = load_zone(self.zone, pointer="/timezone")
        not_before_ms = self.starts_at_ms
        for _ in range(_SEARCH_MAX):
            due_ms = self._due(after_ms, not_before_ms=not_before_ms)
            if due_ms is None:
                return
            day = zone.local_ms(due_ms) // DAY_MS
            left_out_by = self._left_out_by(day)
            yield Step(due_ms, left_out_by)
            open_day = self._open_day(day) if left_out_by is not None else None
            if open_day is None:
                return
            not_before_ms = max(due_ms + 1, _midnight_ms(zone, open_day))

    def _due(self, after_ms: int, *, not_before_ms: int | None) -> int | None:
        if not_before_ms is None or not_before_ms <= after_ms:
            due_ms = self.schedule.next_after(after_ms)
        elif isinstance(self.schedule, AfterCompletion):
            due_ms = max(after_ms + self.schedule.delay_ms, not_before_ms)
        else:
            due_ms = self.schedule.next_after(not_before_ms - 1)
        return None if due_ms is None or (self.ends_at_ms is not None and due_ms > self.ends_at_ms) else due_ms

    def _left_out_by(self, day: int) -> str | None:
        """Why a local date does not count, in words; None when it does."""
        for calendar in self.exclude:
            if calendar.covers_day(day):
                return f"in calendar {calendar.name}"
        if self.include and not any(calendar.covers_day(day) for calendar in self.include):
            return f"not in calendar {' or '.join(calendar.name for calendar in self.include)}"
        return None

    def _open_day(self, day: int) -> int | None:
        """The first date not before `day` that the calendars let through; None when there is none."""
        for _ in range(_SEARCH_MAX):
            start = day
            for calendar in self.exclude:
                day = calendar.first_uncovered(day)
            if self.include:
                days = [found for calendar in self.include if (found := calendar.first_covered(day)) is not None]
                if not days:
                    return None
                day = min(days)
            if day == start:
                return day
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One occurrence with what a person wants to know about it.

    local: due on the wall clock of the zone with its offset. notes: what daylight saving, the spread or a
    calendar changed, one sentence each.
    """

    due_ms: int
    start_ms: int
    local: str
    notes: tuple[str, ...]


def explain(timeline: Timeline, after_ms: int, count: int) -> list[Entry]:
    """The next `count` occurrences after an instant, fewer when there are no more."""
    zone = load_zone(timeline.zone, pointer="/timezone")
    entries: list[Entry] = []
    left_out: list[str] = []
    for due_ms, left_out_by in _all_steps(timeline, after_ms):
        local = _local_text(zone, due_ms)
        if left_out_by is not None:
            left_out.append(f"left out before it: {local}, {left_out_by}")
            continue
        notes = (*left_out, *_clock_notes(timeline, after_ms=after_ms, due_ms=due_ms), *_spread_notes(timeline))
        entries.append(Entry(due_ms=due_ms, start_ms=due_ms + timeline.spread_ms, local=local, notes=notes))
        after_ms, left_out = due_ms, []
        if len(entries) >= count:
            break
    return entries


def _all_steps(timeline: Timeline, after_ms: int) -> Iterator[Step]:
    while True:
        last: Step | None = None
        for last in timeline.steps_after(after_ms):
            yield last
        if last is None or last.left_out_by is not None:
            return
        after_ms = last.due_ms


def _spread_notes(timeline: Timeline) -> Iterator[str]:
    if isinstance(timeline.schedule, AfterCompletion):
        yield "counted from the end of the run before, shown as if runs took no time"
    if timeline.spread_ms:
        yield f"starts {format_duration(timeline.spread_ms)} after its due time (the job's own spread)"


def _clock_notes(timeline: Timeline, *, after_ms: int, due_ms: int) -> Iterator[str]:
    """What daylight saving did between the previous occurrence and this one."""
    schedule = timeline.schedule
    members = schedule.members if isinstance(schedule, UnionSchedule) else (schedule,)
    for member in members:
        if isinstance(member, CronSchedule):
            yield from _gap_notes(member, after_ms=after_ms, due_ms=due_ms)
            if member.fields.fixed_time and member.fields.names(member.zone.local_ms(due_ms)):
                yield from _overlap_notes(member, due_ms=due_ms)


def _gap_notes(member: CronSchedule, *, after_ms: int, due_ms: int) -> Iterator[str]:
    # A shifted time runs up to a gap's length after the gap, so the gap may lie before the previous occurrence.
    dropped, moved = [], []
    for local_ms, runs_ms in member.walk.moved_between(min(after_ms, due_ms - DAY_MS), due_ms):
        if runs_ms is None:
            dropped.append(local_ms)
        elif runs_ms == due_ms:
            moved.append(local_ms)
    if dropped:
        yield f"{_times_text(dropped)} does not exist in {member.zone.name} and is dropped"
    if moved:
        yield f"{_times_text(moved)} does not exist in {member.zone.name} and runs at this time instead"


def _overlap_notes(member: CronSchedule, *, due_ms: int) -> Iterator[str]:
    segment = member.zone.segment_at(due_ms)
    passes = {"first": "once, at its first pass", "second": "once, at its second pass", "both": "each time"}
    repeated_before = due_ms - segment.start_ms < segment.offset_before_ms - segment.offset_ms
    repeated_after = segment.end_ms - due_ms <= segment.offset_ms - segment.offset_after_ms
    if repeated_before or repeated_after:
        which = "second" if repeated_before else "first"
        yield f"this local time occurs twice and runs {passes[member.dst.repeat]}; this is the {which}"


def _times_text(local_times_ms: list[int]) -> str:
    first = format_instant(local_times_ms[0])[:19].replace("T", " ")
    others = len(local_times_ms) - 1
    return f"{first} (and {others} more)" if others else first


def _local_text(zone: Zone, instant_ms: int) -> str:
    """RFC 3339 with the zone's offset; seconds of an offset are left out, as in the format."""
    offset_ms = zone.offset_ms_at(instant_ms)
    if not FIRST_MS <= instant_ms + offset_ms <= LAST_MS:
        offset_ms = 0  # the calendar has no such local date: shown in UTC
    minutes = abs(offset_ms) // MINUTE_MS
    wall = format_instant(instant_ms + offset_ms)
    sign = "-" if offset_ms < 0 else "+"
    return f"{wall[:-5] if wall.endswith('.000Z') else wall[:-1]}{sign}{minutes // 60:02}:{minutes % 60:02}"


def _midnight_ms(zone: Zone, day: int) -> int:
    """The first instant of a local date."""
    instant_ms = resolve_local(zone, day * DAY_MS, DEFAULT_DST)
    assert instant_ms is not None
    return instant_ms
