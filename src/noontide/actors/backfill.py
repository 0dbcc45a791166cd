"""The runs of past occurrences, made because somebody asked for them.

    request ──> how many are there, how many of them have been decided before? ──> a record of what is to be done
    each cycle: the next occurrences, as many as its rule lets live ──> claimed ──> the record moves on with them

Record and runs are in one transaction, so a crash or another owner neither repeats nor leaves out an occurrence.
The schedule's own place does not move, and a job that is paused stays so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from noontide.actors.effects import Scene
from noontide.actors.guards import Accepted
from noontide.actors.request_input import Input
from noontide.actors.timelines import loaded, timeline_of
from noontide.core.cursor import Cursor, JobState
from noontide.core.errors import Conflict, InvalidDefinition
from noontide.core.instants import format_instant
from noontide.core.occurrence import Timeline
from noontide.core.policies import Overlap
from noontide.core.schedule import AfterCompletion, OneOff
from noontide.records.backfills import (
    Backfills,
    Progress,
    Span,
    backfill_key,
    encode_backfills,
    merged,
)
from noontide.records.job_row import FOLLOWS, JobRow
from noontide.records.requests import Backfill

DONE_MAX = 100
"""Separate ranges that are remembered per job; a backfill that would make one more is refused."""
_NONE = Backfills()
_begin = attrgetter("from_ms")


class Subject(NamedTuple):
    """The job that a backfill is about: its row as it is and decoded, and where it stands."""

    row: JobRow
    cursor: Cursor


class _Count(NamedTuple):
    """Occurrences of a range: runs to be made, and those that have been decided before."""

    runs: int
    skipped: int


def begin(request: Backfill, subject: Subject, item: Input, scene: Scene) -> Accepted:
    """Accept a request, and write down what is to be done. Raises InvalidDefinition."""
    known = known_of(request.job_id, scene)
    timeline = timeline_to_fill(subject, scene)
    at_once = _is_at_once(request, subject.row)
    if request.to_ms > item.appended_ms:
        raise InvalidDefinition.of("/to", f"is in the future: it is {format_instant(item.appended_ms)} now")
    own_ms = _own_ms(subject.cursor)
    progress = Progress(
        request=(item.origin.offset, item.source_name),
        begin=request.from_ms,
        end=request.to_ms if own_ms is None else max(request.from_ms, min(request.to_ms, own_ms)),
        at=request.from_ms,
        left=0,
        at_once=at_once,
        reprocess=request.reprocess,
        passed=() if request.reprocess else merged((*known.done, _decided(subject))),
    )
    count = _count(progress, timeline, request.max_runs)
    if not request.dry_run and count.runs:
        _check_room(known, progress)
        put(request.job_id, Backfills(known.done, replace(progress, left=count.runs)), scene)
    answer = {
        "from": format_instant(progress.begin), "to": format_instant(progress.end),
        "runs": count.runs, "skipped": count.skipped, "dry_run": request.dry_run,
    }  # fmt: skip
    return Accepted(subject.row.etag, backfill=answer)


def _check_room(known: Backfills, progress: Progress) -> None:
    if known.now is not None:
        raise Conflict.of("", f"a backfill of this job is under way: {known.now.left} of its runs are still to be made")
    if len(merged((*known.done, Span(progress.begin, progress.end)))) > DONE_MAX:
        raise InvalidDefinition.of("/from", f"backfills of the job would have more than {DONE_MAX} separate ranges")


def stop(job_id: str, scene: Scene) -> bool:
    """End the backfill of a job: runs that are not made yet are not made. False when none was under way."""
    known = known_of(job_id, scene)
    if known.now is None:
        return False
    put(job_id, ended(known, known.now), scene)
    scene.effects.counts["backfills_stopped"] += 1
    return True


def forget(job_id: str, scene: Scene) -> None:
    """The job is deleted: so is everything that is known of its backfills."""
    if known_of(job_id, scene) is not _NONE:
        put(job_id, None, scene)


def known_of(job_id: str, scene: Scene) -> Backfills:
    """The backfills of a job as this cycle sees them."""
    changes = scene.effects.ties.backfills
    found = changes[job_id] if job_id in changes else scene.world.ties.backfills.get(job_id)
    return _NONE if found is None else found


def put(job_id: str, backfills: Backfills | None, scene: Scene) -> None:
    """Write down how the backfills of a job stand; None = nothing is known any more."""
    scene.effects.ties.backfills[job_id] = backfills
    scene.effects.put_note(backfill_key(job_id), None if backfills is None else encode_backfills(backfills))


def ended(known: Backfills, progress: Progress) -> Backfills:
    """The backfill under way is over, this far."""
    return Backfills(merged((*known.done, Span(progress.begin, progress.at))))


def timeline_to_fill(subject: Subject, scene: Scene) -> Timeline:
    """The times of a job. Raises InvalidDefinition when it has none that a backfill could be about."""
    job = loaded(subject.row.document)
    if subject.row.extras & FOLLOWS:
        raise InvalidDefinition.of("", "the job waits for other jobs: trigger the first of them, with its dependants")
    if job.schedule is None or isinstance(job.schedule, OneOff | AfterCompletion):
        raise InvalidDefinition.of("", "only a job with a recurring schedule has past occurrences; trigger it instead")
    missing = [
        each for each in (*job.calendar.include, *job.calendar.exclude) if each not in scene.world.config.calendars
    ]
    if missing:
        raise InvalidDefinition.of("", f"no calendar is called {missing[0]!r}")
    return timeline_of(job, scene.world.config)


def occurrences(progress: Progress, timeline: Timeline) -> Iterator[int]:
    """Nominal times that a backfill still has to deal with, in order."""
    after_ms, passed = progress.at - 1, progress.passed
    while (found := timeline.next_after(after_ms)) is not None and found.due_ms < progress.end:
        after_ms = found.due_ms
        span = _span_with(passed, after_ms)
        if span is None:
            yield after_ms
        else:
            after_ms = span.to_ms - 1


def _span_with(spans: tuple[Span, ...], due_ms: int) -> Span | None:
    place = bisect_right(spans, due_ms, key=_begin) - 1
    return spans[place] if place >= 0 and due_ms < spans[place].to_ms else None


def _count(progress: Progress, timeline: Timeline, most: int) -> _Count:
    runs = skipped = 0
    for due_ms in occurrences(replace(progress, passed=()), timeline):
        if _span_with(progress.passed, due_ms) is None:
            runs += 1
        else:
            skipped += 1
        if runs + skipped > most:
            raise InvalidDefinition.of("/to", f"the range has more than {most} occurrences; ask for less at a time")
    return _Count(runs, skipped)


def _is_at_once(request: Backfill, row: JobRow) -> bool:
    """Whether its runs may overlap. None is ever left out for another one: that is not what was asked for."""
    if request.overlap in (Overlap.SKIP, Overlap.REPLACE):
        raise InvalidDefinition.of(
            "/overlap", "a backfill leaves none of its runs out: 'queue' (one after the other) or 'allow' (together)"
        )
    return (request.overlap or row.overlap_rule) is Overlap.ALLOW


def _decided(subject: Subject) -> Span:
    """Occurrences that the schedule has dealt with: they ran, or it is recorded why not."""
    first_ms, last_ms = subject.row.created_ms + 1, subject.cursor.last_due_ms
    return Span(first_ms, first_ms) if last_ms is None else Span(min(first_ms, last_ms), last_ms + 1)


def _own_ms(cursor: Cursor) -> int | None:
    """From here on occurrences are the schedule's own; None = it has none to come."""
    return cursor.due_ms if cursor.state is JobState.ACTIVE else None
