"""The future of a job, as its index row and the calendars give it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from noontide.core.definition import load_definition
from noontide.core.job import Job
from noontide.core.occurrence import Occurrence, Timeline, spread_offset
from noontide.core.schedule import AfterCompletion, OneOff, Schedule, schedule_from_key
from noontide.records.config import ConfigView
from noontide.records.job_row import JobRow


class Plan(NamedTuple):
    """A schedule with its bounds.

    ends_at_ms: last instant; spread_ms: distance from due to start; timeline: present when calendars have a say.
    """

    schedule: Schedule | None
    ends_at_ms: int
    spread_ms: int
    timeline: Timeline | None

    def following(self, after_ms: int) -> Occurrence | None:
        """The first occurrence after an instant; None for a schedule that waits for a completion."""
        if self.timeline is not None:
            return self.timeline.next_after(after_ms)
        schedule = self.schedule
        if schedule is None or type(schedule) is OneOff or type(schedule) is AfterCompletion:
            return None
        return self._at(schedule.next_after(after_ms))

    @property
    def after_completion_ms(self) -> int | None:
        """The delay of a schedule that counts from the end of the run."""
        return self.schedule.delay_ms if type(self.schedule) is AfterCompletion else None

    def after_completion(self, ended_ms: int) -> Occurrence | None:
        """The occurrence that follows a run that ended now."""
        return self._at(ended_ms + (self.after_completion_ms or 0))

    def allows(self, due_ms: int) -> bool:
        """Whether the calendars of today still let this occurrence happen."""
        if self.timeline is None:
            return True
        step = next(self.timeline.steps_after(due_ms - 1), None)
        return step is not None and step.due_ms == due_ms and step.left_out_by is None

    def waits_for_dates(self, after_ms: int) -> bool:
        """Whether the schedule would go on if its calendars had more days."""
        if self.timeline is None or type(self.timeline.schedule) is OneOff:
            return False
        return replace(self.timeline, include=(), exclude=()).next_after(after_ms) is not None

    def _at(self, due_ms: int | None) -> Occurrence | None:
        if due_ms is None or due_ms > self.ends_at_ms:
            return None
        return Occurrence(due_ms, due_ms + self.spread_ms)


def plan_of(row: JobRow, job_id: str, config: ConfigView) -> Plan:
    """The plan of an accepted job."""
    if row.schedule_key.startswith("at:") and not row.calendars:
        return _ONCE
    schedule = schedule_from_key(row.schedule_key) if row.schedule_key else None
    timeline = timeline_of(loaded(row.document), config) if row.calendars else None
    return Plan(schedule, row.ends_at_ms, row.spread_ms, timeline)


_ONCE = Plan(None, 0, 0, None)


def timeline_of(job: Job, config: ConfigView) -> Timeline:
    """The whole timeline of a job. Raises KeyError for a calendar that is not configured."""
    assert job.schedule is not None
    return Timeline(
        schedule=job.schedule,
        zone=job.timezone,
        starts_at_ms=job.starts_at_ms,
        ends_at_ms=job.ends_at_ms,
        include=tuple(config.calendars[name] for name in job.calendar.include),
        exclude=tuple(config.calendars[name] for name in job.calendar.exclude),
        spread_ms=spread_offset(job.id, timing=job.timing, period_ms=job.schedule.period_ms()),
    )


NO_DATES = "its calendars have no more days"
"""Reason of a job that waits for days in its calendars."""


@lru_cache(maxsize=10_000)
def loaded(document: bytes) -> Job:
    """The job of an accepted document; those in use are remembered."""
    return load_definition(document)
