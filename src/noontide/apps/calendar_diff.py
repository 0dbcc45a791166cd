"""Which fires move when a calendar changes: the jobs that use it, with the old days and the new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from noontide.actors.timelines import timeline_of
from noontide.core.calendar import Calendar
from noontide.core.job import Job
from noontide.records.config import ConfigView

FIRES_MAX = 1_000
"""Fires of one job that are compared."""


class Moved(NamedTuple):
    """What changes for one job: due times that go and that come, in order, ms. cut: more than were compared."""

    job_id: str
    tenant: str
    gone: tuple[int, ...]
    new: tuple[int, ...]
    cut: bool


def uses(job: Job, calendar: str) -> bool:
    """Whether the job's occurrences depend on the calendar."""
    return calendar in (*job.calendar.include, *job.calendar.exclude)


def moved_fires(job: Job, changed: Calendar, config: ConfigView, *, after_ms: int, until_ms: int) -> Moved | None:
    """The difference for one job; None when nothing moves (or another calendar of it is missing)."""
    if job.schedule is None:
        return None
    with_new = replace(config, calendars={**config.calendars, changed.name: changed})
    without = Calendar(name=changed.name, ranges=())
    with_old = replace(config, calendars={changed.name: without, **config.calendars})
    try:
        old, new = (list(_fires(job, each, after_ms, until_ms)) for each in (with_old, with_new))
    except KeyError:
        return None
    cut = len(old) == FIRES_MAX or len(new) == FIRES_MAX
    last_ms = min(old[-1], new[-1]) if cut and old and new else until_ms
    before, after = ({each for each in fires if each <= last_ms} for fires in (old, new))
    if before == after:
        return None
    return Moved(job.id, job.tenant, tuple(sorted(before - after)), tuple(sorted(after - before)), cut)


def _fires(job: Job, config: ConfigView, after_ms: int, until_ms: int) -> Iterator[int]:
    timeline = timeline_of(job, config)
    for _ in range(FIRES_MAX):
        found = timeline.next_after(after_ms)
        if found is None or found.due_ms > until_ms:
            return
        after_ms = found.due_ms
        yield after_ms


def as_document(moved: Moved, texts: Mapping[int, str]) -> dict[str, object]:
    """The difference for programs. texts: instants by ms."""
    return {
        "job_id": moved.job_id, "tenant": moved.tenant, "gone": [texts[at] for at in moved.gone],
        "new": [texts[at] for at in moved.new], "cut": moved.cut,
    }  # fmt: skip
