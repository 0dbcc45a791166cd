"""Verdicts, guards and dead runs whose time is over: which they are, and what deciding about them reads."""

from __future__ import annotations

from collections.abc import Iterator

from noontide.actors.effects import Names
from noontide.actors.settings import MINUTE_MS, SchedulerSettings
from noontide.ports.due_index import DueIndex
from noontide.records import rows
from noontide.records.state import DEAD, GUARD, guarded_job_id

MORE_MS = 100
"""When there may be more than one cycle takes, the next look comes so soon."""


class Forgetting:
    """The reminders of one slot."""

    def __init__(self, index: DueIndex, names: Names, settings: SchedulerSettings) -> None:
        self._index = index
        self._layout = names.layout
        self._first = names.layout.partitions_of(names.slot)[0]
        self._at_once_max = settings.forgotten_max
        self._look_ms = 0

    def due(self, now_ms: int) -> list[bytes]:
        """Reminders that are due, a bounded number; looked for once a minute, sooner while there are many."""
        if now_ms < self._look_ms:
            return []
        start, _ = rows.kind_range(self._first, b"v")
        stop = rows.forget_key(self._first, max(0, now_ms), b"")
        found = [key for key, _ in self._index.scan(start, stop, self._at_once_max)]
        self._look_ms = now_ms + (MORE_MS if len(found) == self._at_once_max else MINUTE_MS)
        return found

    def wanted(self, reminders: list[bytes]) -> Iterator[bytes]:
        """Rows that decide what becomes of them: the dead run, the guarded job."""
        for key in map(rows.forgotten_record_key, reminders):
            if key.startswith(DEAD):
                run_id = key[len(DEAD) :]
                yield rows.dead_key(self._layout.partition_of(run_id.rpartition(b":")[0]), run_id)
            elif key.startswith(GUARD):
                job_id = guarded_job_id(key)
                yield rows.job_key(self._layout.partition_of(job_id), job_id)
