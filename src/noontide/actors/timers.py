"""The due rows of one partition that lie within the horizon: a sorted preload, and a heap for what arrives late.

The rows in the index are the truth; this is the part of them that is about to matter. Keys sort by start time.

    index   ····················|──────── preloaded ────────|·············>  key
                            low mark                     covered
    rows below the low mark are drained (one range delete per batch); a row added below `covered` goes to the heap.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from noontide.records.rows import due_key, due_key_parts, due_range

FRESH_MS = 50
"""Rows that fell due so long after the oldest one that waits are taken beside it, in part."""
DueItem = tuple[bytes, bytes]
Scan = Callable[[bytes, bytes, int], list[DueItem]]


class DueWindow:
    """Due rows in memory. Taking is destructive: after a doubt the window is built anew from the index."""

    def __init__(self, partition: int, *, preload_max: int, late_heap_max: int) -> None:
        self.partition = partition
        self._preload_max = preload_max
        self._late_heap_max = late_heap_max
        self._low, self._stop = due_range(partition)
        self._covered, self._covered_ms = self._low, 0
        self._rows: list[DueItem] = []
        self._next = 0
        self._told = 0
        self._late: list[DueItem] = []

    def refill(self, scan: Scan, *, now_ms: int, horizon_ms: int) -> None:
        """Load rows up to the horizon when half of it has passed, at most `preload_max` at a time."""
        if self._covered_ms - now_ms > horizon_ms // 2 or len(self._rows) - self._next > self._preload_max // 2:
            return
        until = due_key(self.partition, now_ms + horizon_ms, b"")
        found = scan(self._covered, until, self._preload_max)
        if len(found) == self._preload_max:
            self._covered, self._covered_ms = found[-1][0] + b"\0", due_key_parts(found[-1][0])[0]
        else:
            self._covered, self._covered_ms = until, now_ms + horizon_ms
        self._rows = self._rows[self._next :] + found
        self._next, self._told = 0, max(0, self._told - self._next)

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Rows were written to the index, or deleted (None), in this order."""
        covered = self._covered
        for key, value in changes:
            if value is None:
                self.remove(key)
            elif key < covered:
                self.add(key, value)

    def add(self, key: bytes, value: bytes) -> None:
        """A row was written to the index."""
        if key < self._covered:
            heapq.heappush(self._late, (key, value))
            if len(self._late) > self._late_heap_max:
                self._merge(self._late)
                self._late = []

    def remove(self, key: bytes) -> None:
        """A row was deleted from the index; one that is not in memory needs nothing."""
        place = bisect_left(self._rows, (key,), self._next)
        if place < len(self._rows) and self._rows[place][0] == key:
            del self._rows[place]
            self._told -= place < self._told
            return
        kept = [item for item in self._late if item[0] != key]
        if len(kept) != len(self._late):
            heapq.heapify(kept)
            self._late = kept

    def take(self, now_ms: int, limit: int) -> list[DueItem]:
        """The next rows with start <= now, ascending, at most `limit`."""
        bound = due_key(self.partition, now_ms + 1, b"")
        late = []
        while self._late and self._late[0][0] < bound:
            late.append(heapq.heappop(self._late))
        if late:
            self._merge(late)
        end = bisect_left(self._rows, (bound,), self._next)
        stop = min(end, self._next + limit)
        taken = self._rows[self._next : stop]
        self._next = stop
        return taken

    def take_fresh(self, now_ms: int, limit: int) -> list[DueItem]:
        """Of what is due and was not taken, the newest rows, at most `limit`, so that a backlog does not hold them up.

        Only rows that fell due well after the oldest one count: what is due at one instant has no order. Directly after
        `take`; unlike its rows they are no prefix, so each is to be deleted by its key.
        """
        end = bisect_left(self._rows, (due_key(self.partition, now_ms + 1, b""),), self._next)
        if end == self._next or limit <= 0:
            return []
        oldest_ms, _ = due_key_parts(self._rows[self._next][0])
        later = bisect_left(self._rows, (due_key(self.partition, oldest_ms + FRESH_MS, b""),), self._next, end)
        start = max(later, end - limit)
        taken = self._rows[start:end]
        del self._rows[start:end]
        self._told -= max(0, min(self._told, end) - start)
        return taken

    def coming(self, until_ms: int, limit: int) -> list[DueItem]:
        """The next rows with start <= until, ascending, at most `limit`; each is told once, or now and then again."""
        first = max(self._told, self._next)
        bound = due_key(self.partition, until_ms + 1, b"")
        self._told = bisect_left(self._rows, (bound,), first, min(first + limit, len(self._rows)))
        return self._rows[first : self._told]

    def give_back(self, count: int) -> None:
        """The last `count` rows of the latest `take` are not wanted yet; only directly after it."""
        self._next -= count

    def drained(self, taken: Sequence[DueItem]) -> tuple[bytes, bytes]:
        """The key range that holds the taken rows and no other; moves the low mark to its end."""
        start = min(self._low, taken[0][0])
        self._low = taken[-1][0] + b"\0"
        return start, self._low

    def next_ms(self) -> int | None:
        """Start time of the earliest row in memory; None when there is none."""
        heads = [*self._rows[self._next : self._next + 1], *self._late[:1]]
        return due_key_parts(min(heads)[0])[0] if heads else None

    def __len__(self) -> int:
        return len(self._rows) - self._next + len(self._late)

    def _merge(self, items: list[DueItem]) -> None:
        rows = self._rows[self._next :] + items
        rows.sort()
        self._rows, self._next, self._told = rows, 0, 0
