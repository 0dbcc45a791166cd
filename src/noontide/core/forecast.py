"""How many runs start in each minute to come, from where the jobs stand and their schedules.

Jobs of one group whose schedule, next time and spread are the same are counted, and their schedule is walked once at
the end; so a million jobs of a few hundred expressions cost little more than looking at each. Everything is to the
minute. A job that counts from the end of its runs is taken to need no time for them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from noontide.core.durations import MINUTE_MS
from noontide.core.occurrence import RELAXED, Occurrence, spread_offset
from noontide.core.schedule import OneOff, schedule_from_key

OTHERS = "(others)"
"""The name of what is not told apart any more."""
Group = tuple[str, str, str]
"""(tenant, lane, target)."""
Following = Callable[[int], Occurrence | None]
_SECOND_MS = 1_000
_NEVER_MS = 1 << 62
_DENSE_MS = 2 * MINUTE_MS
"""Shorter intervals are counted minute by minute instead of run by run."""


class Coming(NamedTuple):
    """A job that waits for its next occurrence.

    spread_ms: from due to start. ends_at_ms: last instant of the schedule; left: runs it may still have, 0 = no bound.
    calendars: what decides about its dates besides the schedule, as a text, with `following` then; "" = nothing.
    """

    job_id: str
    group: Group
    schedule_key: str
    due_ms: int
    start_ms: int
    spread_ms: int = 0
    ends_at_ms: int = _NEVER_MS
    left: int = 0
    calendars: str = ""
    following: Following | None = None


class Series:
    """Runs per minute of one group, and how many jobs it has.

    exact: those that recur and insist on their minute; spread: where these would start if their timing were relaxed.
    """

    __slots__ = ("exact", "jobs", "runs", "spread")

    def __init__(self, minutes: int) -> None:
        self.jobs = 0
        self.runs = array("I", bytes(4 * minutes))
        self.exact: array[int] | None = None
        self.spread: array[int] | None = None

    def add(self, minute: int, count: int, kind: int) -> None:
        """Count runs of a minute. kind: ORDINARY, EXACT or SPREAD."""
        if kind == SPREAD:
            if self.spread is None:
                self.spread = array("I", bytes(4 * len(self.runs)))
            self.spread[minute] += count
            return
        self.runs[minute] += count
        if kind == EXACT:
            if self.exact is None:
                self.exact = array("I", bytes(4 * len(self.runs)))
            self.exact[minute] += count


ORDINARY, EXACT, SPREAD = 0, 1, 2


class _Mark(NamedTuple):
    """What jobs have in common whose runs are in the same minutes. place: of the series; at: due time or phase."""

    place: int
    kind: int
    schedule_key: str
    at: int
    shift: int
    ends_at_ms: int
    left: int
    calendars: str


class ForecastBook:
    """The runs of `minutes` minutes from `from_ms` on (a whole minute). groups_max: groups that are told apart."""

    def __init__(self, from_ms: int, *, minutes: int, groups_max: int) -> None:
        self.from_ms, self.minutes = from_ms, minutes
        self.jobs = 0
        self.merged = False
        self._until_ms = from_ms + minutes * MINUTE_MS
        self._groups_max = groups_max
        self._places: dict[Group, int] = {}
        self._series: list[Series] = []
        self._marks: Counter[_Mark] = Counter()
        self._following: dict[tuple[str, str], Following] = {}
        self._walks: dict[tuple[str, str, int], list[int]] = {}

    @property
    def groups(self) -> Mapping[Group, Series]:
        """The series of each group."""
        return {group: self._series[place] for group, place in self._places.items()}

    def add(self, coming: Coming) -> None:
        """Count a job."""
        if coming.start_ms >= self._until_ms:
            return
        self.jobs += 1
        place, key = self._place(coming.group), coming.schedule_key
        self._series[place].jobs += 1
        if not key or key.startswith("at:"):
            self._series[place].add(self._minute(coming.start_ms), 1, ORDINARY)
            return
        if coming.following is not None:
            self._following.setdefault((key, coming.calendars), coming.following)
        exact = coming.spread_ms == 0
        self._marks[self._mark(place, EXACT if exact else ORDINARY, coming, coming.spread_ms)] += 1
        if exact:
            relaxed_ms = spread_offset(coming.job_id, timing=RELAXED, period_ms=_period_ms(key))
            self._marks[self._mark(place, SPREAD, coming, relaxed_ms)] += 1

    def expand(self) -> Iterator[None]:
        """Walk the schedules; a pause is possible at each step, which is one schedule."""
        for mark, count in self._marks.items():
            if mark.schedule_key:
                self._expand_walk(mark, count)
            else:
                self._expand_interval(mark, count)
            yield
        self._marks.clear()
        self._walks.clear()

    def _mark(self, place: int, kind: int, coming: Coming, spread_ms: int) -> _Mark:
        key, ends_at_ms = coming.schedule_key, coming.ends_at_ms
        if ends_at_ms >= self._until_ms:
            ends_at_ms = _NEVER_MS
        if key.startswith(("every:", "after:")) and not coming.calendars:
            first_s, cut_ms = divmod(coming.due_ms + spread_ms, _SECOND_MS)
            if ends_at_ms != _NEVER_MS:
                ends_at_ms += spread_ms - cut_ms
            return _Mark(place, kind, "", first_s, _every_ms(key), ends_at_ms, coming.left, "")
        at, shift = coming.due_ms, spread_ms // MINUTE_MS
        return _Mark(place, kind, key, at, shift, ends_at_ms, coming.left, coming.calendars)

    def _place(self, group: Group) -> int:
        place = self._places.get(group)
        if place is not None:
            return place
        tenant, lane, _ = group
        if len(self._places) >= self._groups_max // 2:
            self.merged, group = True, (tenant, lane, OTHERS)
        if group not in self._places and len(self._places) >= self._groups_max:
            group = (OTHERS, lane, OTHERS)
        if group not in self._places:
            self._places[group] = len(self._series)
            self._series.append(Series(self.minutes))
        return self._places[group]

    def _minute(self, start_ms: int) -> int:
        return max(0, (start_ms - self.from_ms) // MINUTE_MS)  # what is overdue starts at once

    # --- schedules

    def _expand_walk(self, mark: _Mark, count: int) -> None:
        series, minutes, shift = self._series[mark.place], self.minutes, mark.shift
        found = self._walk(mark)
        if mark.left:
            found = found[: mark.left]
        last = (mark.ends_at_ms - self.from_ms) // MINUTE_MS
        for due in found:
            if due + shift >= minutes or due > last:
                break
            series.add(max(0, due + shift), count, mark.kind)

    def _walk(self, mark: _Mark) -> list[int]:
        """Minutes of the due times from the next one on; the same for all jobs of a schedule that are as far."""
        name = (mark.schedule_key, mark.calendars, mark.at)
        found = self._walks.get(name)
        if found is None:
            found = self._walks[name] = []
            following = self._following_of(mark)
            due_ms: int | None = mark.at
            while due_ms is not None and due_ms < self._until_ms:
                found.append((due_ms - self.from_ms) // MINUTE_MS)
                due_ms = following(due_ms)
        return found

    def _following_of(self, mark: _Mark) -> Callable[[int], int | None]:
        following = self._following.get((mark.schedule_key, mark.calendars))
        if following is None:
            return schedule_from_key(mark.schedule_key).next_after

        def next_after(after_ms: int) -> int | None:
            occurrence = following(after_ms)
            return None if occurrence is None else occurrence.due_ms

        return next_after

    def _expand_interval(self, mark: _Mark, count: int) -> None:
        series, every_ms = self._series[mark.place], mark.shift
        first_ms, until_ms = mark.at * _SECOND_MS, min(self._until_ms, mark.ends_at_ms + 1)
        if mark.left:
            until_ms = min(until_ms, first_ms + mark.left * every_ms)
        if every_ms >= _DENSE_MS:
            for start_ms in range(first_ms, until_ms, every_ms):
                series.add(self._minute(start_ms), count, mark.kind)
            return
        before = 0
        for minute in range(self._minute(first_ms), self.minutes):
            end_ms = min(self.from_ms + (minute + 1) * MINUTE_MS, until_ms)
            by_then = max(0, -(-(end_ms - first_ms) // every_ms))
            if by_then > before:
                series.add(minute, count * (by_then - before), mark.kind)
            before = max(before, by_then)


def _every_ms(schedule_key: str) -> int:
    return int(schedule_key.split(":")[1])


def _period_ms(schedule_key: str) -> int | None:
    if schedule_key.startswith(("every:", "after:")):
        return _every_ms(schedule_key)
    schedule = schedule_from_key(schedule_key)
    return None if isinstance(schedule, OneOff) else schedule.period_ms()
