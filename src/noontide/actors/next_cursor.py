"""Where a job stands in its schedule once its definition has been accepted: keep its place, or begin anew."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from noontide.actors.timelines import NO_DATES, timeline_of
from noontide.core.cursor import Cursor, JobState
from noontide.core.job import Job
from noontide.core.occurrence import Occurrence, spread_offset
from noontide.core.schedule import OneOff
from noontide.records.config import ConfigView


class Terms(NamedTuple):
    """What besides the definitions has a say."""

    config: ConfigView
    completed_retention_ms: int


def cursor_after(job: Job, previous: Job | None, old: Cursor | None, *, at_ms: int, terms: Terms) -> Cursor:
    """The cursor of a job whose definition was accepted at `at_ms`. previous, old: what was in force before."""
    runs, generation, last_due_ms = 0, 1, None
    if old is not None and old.state is JobState.DELETED:
        generation = old.generation + 1
    elif old is not None:
        runs, generation, last_due_ms = old.runs, old.generation, old.last_due_ms
    if job.paused:
        return Cursor(JobState.PAUSED, None, None, runs, generation, last_due_ms, at_ms, job.note or None)
    same = old is not None and previous is not None and _moves_like(previous, job)
    if same and old is not None and old.state in (JobState.ACTIVE, JobState.COMPLETED):
        return old._replace(accepted_ms=at_ms, reason=None)
    is_new = not same or (old is not None and old.state is JobState.QUARANTINED)
    is_spent = _is_spent(job, runs=runs, last_due_ms=last_due_ms)
    # What was claimed before the request could be read stays claimed: the new schedule begins after it.
    after_ms = max(at_ms, last_due_ms or 0)
    first = None if is_spent else _first(job, after_ms, terms.config, may_be_past=is_new)
    if first is not None:
        return Cursor(JobState.ACTIVE, first.due_ms, first.start_ms, runs, generation, last_due_ms, at_ms)
    if job.schedule is None:
        return Cursor(JobState.ACTIVE, None, None, runs, generation, last_due_ms, at_ms)
    if not is_spent and _waits_for_dates(job, at_ms, terms.config):
        return Cursor(JobState.ACTIVE, None, None, runs, generation, last_due_ms, at_ms, NO_DATES)
    removal_ms = at_ms + terms.completed_retention_ms
    return Cursor(JobState.COMPLETED, None, removal_ms, runs, generation, last_due_ms, at_ms)


def _waits_for_dates(job: Job, at_ms: int, config: ConfigView) -> bool:
    """Whether only the days in its calendars keep a job from having a next occurrence."""
    if isinstance(job.schedule, OneOff) or not (job.calendar.include or job.calendar.exclude):
        return False
    return replace(timeline_of(job, config), include=(), exclude=()).next_after(at_ms) is not None


def _moves_like(old: Job, new: Job) -> bool:
    """Whether both definitions give the same occurrences."""

    def movement(job: Job) -> tuple[object, ...]:
        key = None if job.schedule is None else job.schedule.key
        return key, job.timing, job.starts_at_ms, job.ends_at_ms, job.max_runs, job.calendar

    return movement(old) == movement(new)


def _is_spent(job: Job, *, runs: int, last_due_ms: int | None) -> bool:
    """Whether all that this definition asks for has been claimed or decided before: a job never goes back."""
    if isinstance(job.schedule, OneOff) and last_due_ms is not None and job.schedule.at_ms <= last_due_ms:
        return True
    return job.max_runs is not None and runs >= job.max_runs


def _first(job: Job, after_ms: int, config: ConfigView, *, may_be_past: bool) -> Occurrence | None:
    """The first occurrence of a definition accepted at `after_ms`. A new one-off in the past is due at once."""
    if job.schedule is None:
        return None
    if isinstance(job.schedule, OneOff) and may_be_past:
        spread_ms = spread_offset(job.id, timing=job.timing, period_ms=None)
        return Occurrence(job.schedule.at_ms, job.schedule.at_ms + spread_ms)
    return timeline_of(job, config).next_after(after_ms)
