"""How many jobs of a tenant insist on each minute, and which minute is free.

A job counts once in every minute (UTC) in which its schedule has a time, for as long as it recurs with exact timing.
Days are worked out when somebody asks about them; a schedule is walked once per day, whoever has it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from noontide.core.durations import DAY_MS, MINUTE_MS
from noontide.core.job import Job
from noontide.core.occurrence import EXACT
from noontide.core.schedule import CronSchedule, IntervalSchedule, UnionSchedule, schedule_from_key

LOOKS_MAX = 100
"""Minutes of a new schedule that are looked at, the first ones, within `LOOK_MS`."""
LOOK_MS = 8 * DAY_MS
NEAR_MINUTES = 720
"""How far away a free minute is looked for."""
DAYS_KEPT = 16
SCHEDULES_MAX = 2_000
"""Different schedules with exact timing of one tenant with a quota."""
_DAY_MINUTES = DAY_MS // MINUTE_MS


class Insisting(NamedTuple):
    """A job that counts: its schedule, and until when (ms), 0 = without end."""

    schedule_key: str
    until_ms: int = 0


class Full(NamedTuple):
    """A minute in which no more fit, and the nearest in which there is room; None = none within half a day."""

    minute_ms: int
    free_ms: int | None


def insisting(job: Job) -> Insisting | None:
    """How a job counts; None when it does not."""
    if job.timing != EXACT or not isinstance(job.schedule, CronSchedule | UnionSchedule | IntervalSchedule):
        return None
    return Insisting(job.schedule.key, job.ends_at_ms or 0)


class ExactBook:
    """The jobs of one tenant that count."""

    def __init__(self) -> None:
        self.jobs: dict[str, Insisting] = {}
        self._schedules: Counter[str] = Counter()
        self._days: dict[int, array[int]] = {}

    def put(self, job_id: str, now: Insisting | None) -> None:
        """A job counts like this from now on; None = not at all."""
        before = self.jobs.pop(job_id, None)
        if now is not None:
            self.jobs[job_id] = now
        for each, step in ((before, -1), (now, 1)):
            if each is not None:
                self._schedules[each.schedule_key] += step
                for day, counts in self._days.items():
                    for minute in minutes_of(each.schedule_key, day):
                        counts[minute] += step
        if before is not None and not self._schedules[before.schedule_key]:
            del self._schedules[before.schedule_key]

    def over(self, now_ms: int) -> list[str]:
        """Jobs whose time is over."""
        return [job_id for job_id, each in self.jobs.items() if 0 < each.until_ms < now_ms]

    def judge(
        self, job_id: str, schedule_key: str, *, quota: int, after_ms: int, changes: Mapping[str, Insisting | None]
    ) -> Full | None:
        """The first minute in which a schedule would be one too many; None when there is room.

        changes: what besides is true in this moment, by job. The job itself does not count.
        """
        differences = self._differences({**changes, job_id: None})
        if len(self.jobs) + differences.total() < quota:
            return None
        for minute_ms in _minutes_from(schedule_key, after_ms):
            if self._count(minute_ms, differences) >= quota:
                return Full(minute_ms, self._nearest(minute_ms, quota, after_ms, differences))
        return None

    def has_room_for(self, schedule_key: str) -> bool:
        """Whether another schedule can be looked after."""
        return schedule_key in self._schedules or len(self._schedules) < SCHEDULES_MAX

    def _differences(self, changes: Mapping[str, Insisting | None]) -> Counter[str]:
        found: Counter[str] = Counter()
        for job_id, now in changes.items():
            before = self.jobs.get(job_id)
            if before is not None:
                found[before.schedule_key] -= 1
            if now is not None:
                found[now.schedule_key] += 1
        return found

    def _count(self, minute_ms: int, differences: Mapping[str, int]) -> int:
        day, minute = divmod(minute_ms // MINUTE_MS, _DAY_MINUTES)
        counts = self._days.get(day)
        if counts is None:
            counts = self._days[day] = array("i", bytes(4 * _DAY_MINUTES))
            for schedule_key, jobs in self._schedules.items():
                for each in minutes_of(schedule_key, day):
                    counts[each] += jobs
            while len(self._days) > DAYS_KEPT:
                self._days.pop(next(iter(self._days)))
        return counts[minute] + sum(
            jobs for schedule_key, jobs in differences.items() if jobs and minute in minutes_of(schedule_key, day)
        )

    def _nearest(self, minute_ms: int, quota: int, after_ms: int, differences: Mapping[str, int]) -> int | None:
        for distance in range(1, NEAR_MINUTES + 1):
            for at_ms in (minute_ms + distance * MINUTE_MS, minute_ms - distance * MINUTE_MS):
                if at_ms > after_ms and self._count(at_ms, differences) < quota:
                    return at_ms
        return None


@lru_cache(maxsize=8_192)
def minutes_of(schedule_key: str, day: int) -> frozenset[int]:
    """Minutes of a day (counted from 1970, UTC) in which a schedule has a time."""
    start_ms = day * DAY_MS
    return frozenset((at_ms - start_ms) // MINUTE_MS for at_ms in _walk(schedule_key, start_ms, start_ms + DAY_MS))


def _minutes_from(schedule_key: str, after_ms: int) -> Iterator[int]:
    """The first minutes in which a schedule has a time after an instant."""
    first_ms = schedule_from_key(schedule_key).next_after(after_ms)
    if first_ms is not None:
        for number, at_ms in enumerate(_walk(schedule_key, first_ms, first_ms + LOOK_MS)):
            if number == LOOKS_MAX:
                return
            yield at_ms - at_ms % MINUTE_MS


def _walk(schedule_key: str, start_ms: int, end_ms: int) -> Iterator[int]:
    """The first time in each minute of a range that has one."""
    schedule = schedule_from_key(schedule_key)
    at_ms = schedule.next_after(start_ms - 1)
    while at_ms is not None and at_ms < end_ms:
        yield at_ms
        at_ms = schedule.next_after(at_ms - at_ms % MINUTE_MS + MINUTE_MS - 1)
