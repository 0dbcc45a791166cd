"""A new release of the time zone database: the next occurrence of every job whose zone changed is worked out anew.

The release that cursors were computed with is a record in `state`. When an owner runs another one it goes through its
jobs, some in each cycle, and moves the cursors that differ. A crash in between starts the review again, harmlessly.
"""

from __future__ import annotations

from noontide.actors.effects import Scene
from noontide.actors.timelines import timeline_of
from noontide.core.cursor import Cursor, JobState
from noontide.core.definition import load_definition
from noontide.core.errors import InvalidDefinition
from noontide.core.occurrence import Occurrence
from noontide.core.zones import tzdata_version
from noontide.ports.due_index import DueIndex
from noontide.records import rows
from noontide.records.job_row import decode_job_row
from noontide.records.state import decode_cursor

REVIEWED_MAX = 200
"""Jobs reviewed in one cycle of a slot."""


class Review:
    """The jobs of some partitions, in pieces. `is_over` once all have been taken."""

    def __init__(self, index: DueIndex, partitions: list[int]) -> None:
        self._index = index
        self._ranges = [rows.kind_range(number, b"j") for number in partitions]

    @classmethod
    def if_needed(cls, index: DueIndex, partitions: list[int]) -> Review | None:
        """A review when the rows were made with another release; None when they were made with this one."""
        value = index.get_many([rows.meta_key(partitions[0], rows.TZDATA)])[0]
        if value == tzdata_version().encode():
            return None
        return cls(index, partitions if value is not None else [])

    @property
    def is_over(self) -> bool:
        """Whether no job is left."""
        return not self._ranges

    def take(self) -> dict[int, list[bytes]]:
        """Ids of the next jobs, by partition."""
        if self.is_over:
            return {}
        start, stop = self._ranges[0]
        found = [key for key, _ in self._index.scan(start, stop, REVIEWED_MAX)]
        if len(found) < REVIEWED_MAX:
            self._ranges.pop(0)
        else:
            self._ranges[0] = (found[-1] + b"\0", stop)
        return {start[0]: [key[2:] for key in found]} if found else {}


def review(partition: int, job_id: bytes, scene: Scene) -> None:
    """Move a job's cursor if today's rules give another next occurrence than the one it has."""
    row_bytes = scene.effects.read(rows.job_key(partition, job_id))
    value = scene.effects.read(rows.cursor_key(partition, job_id))
    if row_bytes is None or value is None:
        return
    cursor = decode_cursor(value)
    if cursor.state is not JobState.ACTIVE or cursor.due_ms is None or cursor.start_ms is None:
        return
    row = decode_job_row(row_bytes)
    if not row.schedule_key.startswith(("cron:", "union:")):
        return
    since_ms = max(cursor.accepted_ms, cursor.last_due_ms or 0)  # what passed during a pause is not made up for
    try:
        following = timeline_of(load_definition(row.document), scene.world.config).next_after(since_ms)
    except (InvalidDefinition, KeyError):  # its zone or a calendar is gone: the job is set aside when it is due
        scene.effects.counts["not_reviewed"] += 1
        return
    if following is not None and following != Occurrence(cursor.due_ms, cursor.start_ms):
        _move(partition, job_id, cursor, following, scene)


def _move(partition: int, job_id: bytes, cursor: Cursor, following: Occurrence, scene: Scene) -> None:
    scene.effects.unschedule(partition, job_id, cursor)
    moved = cursor._replace(due_ms=following.due_ms, start_ms=following.start_ms)
    scene.effects.put_cursor(partition, job_id, moved)
    scene.effects.counts["moved_by_tzdata"] += 1
