"""The runs of a backfill are made, cycle by cycle; see `actors.backfill` for how it begins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from noontide.actors.backfill import Subject, ended, forget, known_of, occurrences, put, stop, timeline_to_fill
from noontide.actors.effects import Effects, Scene
from noontide.actors.firing import Due
from noontide.actors.mailbox import reading
from noontide.actors.partition import Partition
from noontide.actors.settings import SchedulerSettings
from noontide.actors.ties import Ties
from noontide.core.errors import InvalidDefinition
from noontide.core.occurrence import Timeline
from noontide.core.policies import Overlap
from noontide.records import rows
from noontide.records.backfills import Backfills, Progress, backfill_key, decode_backfills
from noontide.records.job_row import EXPECTED, decode_job_row
from noontide.records.state import decode_cursor
from noontide.records.topics import Layout

_ALLOW = list(Overlap).index(Overlap.ALLOW)


class BackfillWork(NamedTuple):
    """What one cycle takes: jobs whose backfill may be able to go on, and how many runs are made at most."""

    job_ids: tuple[str, ...] = ()
    runs_max: int = 0


class BackfillRuns:
    """The backfills of one slot that are under way."""

    def __init__(
        self, layout: Layout, partitions: Mapping[int, Partition], ties: Ties, settings: SchedulerSettings
    ) -> None:
        self._layout = layout
        self._partitions = partitions
        self._ties = ties
        self._settings = settings
        self._ready: dict[str, None] = {}

    # --- gather

    def collect(self, limit: int) -> BackfillWork:
        """Take backfills that may be able to go on, for at most `limit` runs."""
        runs_max = min(limit, self._settings.backfill_cycle_max)
        return BackfillWork(tuple(islice(self._ready, runs_max)), runs_max)

    def wanted(self, work: BackfillWork) -> Iterator[bytes]:
        """Keys of the rows that deciding reads."""
        for job_id in work.job_ids:
            number = self._home(job_id)
            yield rows.job_key(number, job_id.encode())
            yield rows.cursor_key(number, job_id.encode())

    def next_wake_ms(self) -> int | None:
        """At once when one can go on; the others wait for the end of a run."""
        return 0 if self._ready else None

    # --- decide

    def decide(self, work: BackfillWork, scene: Scene, set_aside: Collection[object] = ()) -> None:
        """Make the next runs. Raises Misread, naming the record of a backfill."""
        for job_id in scene.effects.ties.gone:
            if scene.effects.find(rows.job_key(self._home(job_id), job_id.encode())) is None:
                forget(job_id, scene)
        share = work.runs_max // max(1, len(work.job_ids))
        for job_id in work.job_ids:
            if backfill_key(job_id) in set_aside:
                stop(job_id, scene)
                continue
            with reading(backfill_key(job_id)):
                self._advance(job_id, share, scene)

    def _advance(self, job_id: str, most: int, scene: Scene) -> None:
        known = known_of(job_id, scene)
        subject = self._subject(job_id, scene)
        if known.now is None or subject is None:
            return
        try:
            timeline = timeline_to_fill(subject, scene)
        except InvalidDefinition:  # the job has become one that has no past occurrences
            stop(job_id, scene)
            return
        progress = self._claim(job_id, known.now, subject, timeline, most, scene)
        if progress.left and progress.at < progress.end:
            if progress != known.now:
                put(job_id, Backfills(known.done, progress), scene)
        else:
            put(job_id, ended(known, progress), scene)

    def _claim(
        self, job_id: str, progress: Progress, subject: Subject, timeline: Timeline, most: int, scene: Scene
    ) -> Progress:
        """Claim the next occurrences; where that leads to. No further than its rule and the limits let it."""
        number = self._home(job_id)
        partition = self._partitions[number]
        row = subject.row._replace(overlap=_ALLOW, extras=subject.row.extras & ~EXPECTED)
        live_max = self._settings.backfill_live_max if progress.at_once else 1
        at, left = progress.at, progress.left
        for due_ms in occurrences(progress, timeline):
            if not most or not left or len(partition.live.of_job(job_id, scene.effects)) >= live_max:
                return replace(progress, at=at, left=left)
            now_ms, cursor = scene.world.now_ms, subject.cursor
            due = Due(number, job_id, due_ms, max(now_ms, due_ms), 0, cursor.generation, cursor.accepted_ms)
            partition.firing.claim(due, progress.run_id(job_id, due_ms, cursor.generation), row, scene)
            scene.effects.counts["backfilled"] += 1
            at, left, most = due_ms + 1, left - 1, most - 1
        return replace(progress, at=progress.end, left=left)

    def _subject(self, job_id: str, scene: Scene) -> Subject | None:
        number, key = self._home(job_id), job_id.encode()
        row = scene.effects.read(rows.job_key(number, key))
        cursor = scene.effects.read(rows.cursor_key(number, key))
        return None if row is None or cursor is None else Subject(decode_job_row(row), decode_cursor(cursor))

    def _home(self, job_id: str) -> int:
        return self._layout.partition_of(job_id)

    # --- apply

    def apply(self, work: BackfillWork, effects: Effects) -> None:
        """Take over what the commit made true."""
        for job_id in work.job_ids:
            self._ready.pop(job_id, None)
        for job_id, known in effects.ties.backfills.items():
            if known is None:
                self._ties.backfills.pop(job_id, None)
            else:
                self._ties.backfills[job_id] = known
        for job_id in effects.ties.backfills:
            self._consider(job_id)
        for job_id in self._ties.backfills if effects.live_changes else ():
            if job_id in effects.live_changes:
                self._consider(job_id)

    def load_note(self, key: bytes, value: bytes) -> None:
        """What an earlier owner had begun."""
        job_id, known = decode_backfills(key, value)
        self._ties.backfills[job_id] = known
        self._consider(job_id)

    def _consider(self, job_id: str) -> None:
        """A backfill may be able to go on: it has changed, or a run of its job has."""
        known = self._ties.backfills.get(job_id)
        if known is None or known.now is None:
            self._ready.pop(job_id, None)
        else:
            self._ready[job_id] = None
