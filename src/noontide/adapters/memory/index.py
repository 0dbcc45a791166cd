"""`DueIndex` in memory, for simulation and for tests: the same answers as on disk, and a model of what a kill loses."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

from noontide.ports.due_index import IndexBatch, IndexClosed

# Above this many new keys, sorting the nearly sorted whole is cheaper than inserting one by one.
_INSERT_ONE_BY_ONE_MAX = 16


class MemoryIndex:
    """Rows in a dict beside a sorted list of their keys.

    rows: what an earlier index left behind (`surviving_rows`), so that a simulator can kill and reopen.
    """

    def __init__(self, rows: Mapping[bytes, bytes] | None = None) -> None:
        self._values: dict[bytes, bytes] = dict(rows or {})
        self._keys: list[bytes] = sorted(self._values)
        self._survivors: dict[bytes, bytes] = dict(self._values)
        self._is_open = True

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of the keys; None where there is no row."""
        self._require_open("read")
        return [self._values.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows with start <= key < stop, ascending."""
        self._require_open("scan")
        first = bisect_left(self._keys, start)
        last = min(bisect_left(self._keys, stop), first + max(limit, 0))
        return [(key, self._values[key]) for key in self._keys[first:last]]

    def write(self, batch: IndexBatch) -> None:
        """Apply the range deletes, then the puts."""
        self._require_open("write")
        for start, stop in batch.deleted_ranges:
            self._delete_range(start, stop)
        fresh: list[bytes] = []
        for key, value in batch.puts.items():
            if value is None:
                self._delete(key)
                continue
            if key not in self._values:
                fresh.append(key)
            self._values[key] = value
        self._insert(fresh)

    def checkpoint(self) -> None:
        """Note what a kill leaves from now on."""
        self._require_open("flush")
        self._survivors = dict(self._values)

    def surviving_rows(self) -> dict[bytes, bytes]:
        """The rows a kill would leave: those of the last checkpoint or close. Allowed after `close`."""
        return dict(self._survivors)

    def wipe(self) -> None:
        """Delete every row, at once and for good."""
        self._require_open("wipe")
        self._values, self._keys, self._survivors = {}, [], {}

    def close(self) -> None:
        """Checkpoint and refuse further calls; again is allowed."""
        if self._is_open:
            self.checkpoint()
            self._is_open = False

    def _delete_range(self, start: bytes, stop: bytes) -> None:
        first, last = bisect_left(self._keys, start), bisect_left(self._keys, stop)
        for key in self._keys[first:last]:
            del self._values[key]
        if first < last:
            del self._keys[first:last]

    def _delete(self, key: bytes) -> None:
        if self._values.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def _insert(self, fresh: list[bytes]) -> None:
        if len(fresh) > _INSERT_ONE_BY_ONE_MAX:
            self._keys.extend(fresh)
            self._keys.sort()
            return
        for key in fresh:
            insort(self._keys, key)

    def _require_open(self, doing: str) -> None:
        if not self._is_open:
            raise IndexClosed(f"cannot {doing}: the index in memory is closed")
