"""What cursors were worked out with has changed: a release of the time zone database, or the days of a calendar.

What the slot's cursors rest on is a record in `state`. When it is not what is in force now, the owner goes through its
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
from noontide.records.config import ConfigView
from noontide.records.job_row import decode_job_row, has_calendars
from noontide.records.state import decode_cursor

REVIEWED_MAX = 200
"""Jobs reviewed in one cycle of a slot."""
PASSED_MAX = 5_000
"""Rows passed over in one cycle when only jobs with calendars are reviewed."""


def basis_of(config: ConfigView) -> str:
    """What cursors rest on: the release of the time zone database, and the calendars if there are any."""
    return f"{tzdata_version()}+{config.calendars_version}" if config.calendars_version else tzdata_version()


class Review:
    """The jobs of some partitions, in pieces. `is_over` once all have been taken. basis: what they follow then."""

    def __init__(self, index: DueIndex, partitions: list[int], *, basis: str, only_calendars: bool) -> None:
        self._index = index
        self._ranges = [rows.kind_range(number, b"j") for number in partitions]
        self._only_calendars = only_calendars
        self.basis = basis

    @classmethod
    def if_needed(cls, index: DueIndex, partitions: list[int], basis: str) -> Review | None:
        """A review when the rows were made on another basis; None when they were made on this one."""
        value = index.get_many([rows.meta_key(partitions[0], rows.TZDATA)])[0]
        if value == basis.encode():
            return None
        before = b"" if value is None else value
        same_release = before.partition(b"+")[0] == basis.encode().partition(b"+")[0]
        numbers = partitions if value is not None else []
        return cls(index, numbers, basis=basis, only_calendars=same_release)

    @classmethod
    def of_change(cls, index: DueIndex, partitions: list[int], before: str, basis: str) -> Review:
        """A review because what is in force has changed while the slot was at work."""
        same_release = before.partition("+")[0] == basis.partition("+")[0]
        return cls(index, partitions, basis=basis, only_calendars=same_release)

    @property
    def recorded(self) -> str:
        """What the record says in the meantime, so that a crash before the end begins anew; and at the end."""
        if self.is_over:
            return self.basis
        return f"{self.basis.partition('+')[0]}+unsettled" if self._only_calendars else "unsettled"

    @property
    def is_over(self) -> bool:
        """Whether no job is left."""
        return not self._ranges

    def take(self) -> dict[int, list[bytes]]:
        """Ids of the next jobs of one partition; empty when nothing is left, or many rows were passed over."""
        left = PASSED_MAX
        while self._ranges and left > 0:
            start, stop = self._ranges[0]
            found, chosen, left = self._page(start, stop, left)
            if found is None:
                self._ranges.pop(0)
            else:
                self._ranges[0] = (found + b"\0", stop)
            if chosen:
                return {start[0]: chosen}
        return {}

    def _page(self, start: bytes, stop: bytes, left: int) -> tuple[bytes | None, list[bytes], int]:
        """The last key looked at (None = the end was reached), ids of jobs to review, and how many rows may follow."""
        limit = min(left, PASSED_MAX) if self._only_calendars else REVIEWED_MAX
        found, chosen = self._index.scan(start, stop, limit), list[bytes]()
        for place, (key, row) in enumerate(found, start=1):
            if not self._only_calendars or has_calendars(row):
                chosen.append(key[2:])
                if len(chosen) == REVIEWED_MAX:
                    return key, chosen, left - place
        return (found[-1][0] if len(found) == limit else None), chosen, left - len(found) - 1


def review(partition: int, job_id: bytes, scene: Scene) -> None:
    """Move a job's cursor if what is in force now gives another next occurrence than the one it has."""
    row_bytes = scene.effects.read(rows.job_key(partition, job_id))
    value = scene.effects.read(rows.cursor_key(partition, job_id))
    if row_bytes is None or value is None:
        return
    cursor, row = decode_cursor(value), decode_job_row(row_bytes)
    if cursor.state is not JobState.ACTIVE or not (row.calendars or row.schedule_key.startswith(("cron:", "union:"))):
        return
    since_ms = max(cursor.accepted_ms, cursor.last_due_ms or 0)  # what passed during a pause is not made up for
    if row.calendars:
        if cursor.due_ms is not None and cursor.due_ms <= scene.world.now_ms:
            return  # it is about to be decided, by the days that are in force then
        since_ms = max(since_ms, scene.world.now_ms)  # days that were left out yesterday are not made up for
    elif cursor.due_ms is None or cursor.start_ms is None:
        return
    try:
        following = timeline_of(load_definition(row.document), scene.world.config).next_after(since_ms)
    except (InvalidDefinition, KeyError):  # its zone or a calendar is gone: the job is set aside when it is due
        scene.effects.counts["not_reviewed"] += 1
        return
    if following is not None and following != (cursor.due_ms, cursor.start_ms):
        _move(partition, job_id, cursor, following, scene)


def _move(partition: int, job_id: bytes, cursor: Cursor, following: Occurrence, scene: Scene) -> None:
    scene.effects.unschedule(partition, job_id, cursor)
    moved = cursor._replace(due_ms=following.due_ms, start_ms=following.start_ms, reason=None)
    scene.effects.put_cursor(partition, job_id, moved)
    scene.effects.counts["moved_by_review"] += 1
