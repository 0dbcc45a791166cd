"""The next times of a job with what a person wants to know about them, for the command line and the API."""

from __future__ import annotations

from noontide.actors.timelines import timeline_of
from noontide.core.dst import LAST_MS
from noontide.core.instants import format_instant
from noontide.core.job import Job
from noontide.core.occurrence import Entry, explain
from noontide.records.config import ConfigView


def entries_of(job: Job, config: ConfigView, *, after_ms: int, count: int) -> list[Entry]:
    """Up to `count` occurrences after an instant, as many as `max_runs` leaves; none without a schedule.

    Raises KeyError for a calendar that is not configured.
    """
    if job.schedule is None:
        return []
    most = count if job.max_runs is None else min(count, job.max_runs)
    return explain(timeline_of(job, config), after_ms, most)


def shown_instant(instant_ms: int) -> str:
    """UTC, with milliseconds only when there are any."""
    text = format_instant(min(instant_ms, LAST_MS))
    return f"{text[:-5]}Z" if text.endswith(".000Z") else text
