"""Rows of jobs that are due soon, read while nothing else is to be done, so that a wave does not begin with reading.

A cache of the index as the index is one of the log: whatever a cycle reads leaves it, whatever a cycle writes leaves it
too, and a doubt throws it away whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from noontide.actors.timers import DueWindow
from noontide.ports.due_index import DueIndex, IndexBatch
from noontide.records.rows import DUE_KEY_FORM_BYTES, job_key

STEP_ROWS = 256
"""Rows read in one step: about a millisecond."""


class ReadAhead:
    """The index of a slot with some of its job rows in memory, at most `bytes_max` of them (and one step beyond).

    Range deletes must not cover job rows; those of a slot cover due rows only.
    """

    def __init__(self, index: DueIndex, *, bytes_max: int) -> None:
        self._index = index
        self._bytes_max = bytes_max
        self._rows: dict[bytes, bytes] = {}
        self._bytes = 0
        self.scan = index.scan

    def step(self, windows: Collection[DueWindow], until_ms: int) -> bool:
        """Read rows of what is due until then; False when there is nothing left to read, or no room."""
        if self._bytes >= self._bytes_max:
            return False
        limit = max(1, STEP_ROWS // len(windows))
        keys = [
            key
            for window in windows
            for due_key, _ in window.coming(until_ms, limit)
            if (key := job_key(window.partition, due_key[DUE_KEY_FORM_BYTES:])) not in self._rows
        ]
        if not keys:
            return False
        found = {key: row for key, row in zip(keys, self._index.get_many(keys), strict=True) if row is not None}
        self._rows.update(found)
        self._bytes += sum(map(len, found.values()))
        return True

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `DueIndex.get_many`. A row is held for its next reader only."""
        if not self._rows:
            return self._index.get_many(keys)
        found = [self._rows.pop(key, None) for key in keys]
        missing = [key for key, row in zip(keys, found, strict=True) if row is None]
        self._bytes -= sum(len(row) for row in found if row is not None)
        if not missing:
            return found
        read = iter(self._index.get_many(missing))
        return [next(read) if row is None else row for row in found]

    def write(self, batch: IndexBatch) -> None:
        """See `DueIndex.write`."""
        for key in self._rows.keys() & batch.puts.keys():
            self._bytes -= len(self._rows.pop(key))
        self._index.write(batch)

    def checkpoint(self) -> None:
        """See `DueIndex.checkpoint`."""
        self._index.checkpoint()

    def wipe(self) -> None:
        """See `DueIndex.wipe`."""
        self._rows, self._bytes = {}, 0
        self._index.wipe()

    def close(self) -> None:
        """See `DueIndex.close`."""
        self._rows, self._bytes = {}, 0
        self._index.close()
