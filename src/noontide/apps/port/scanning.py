"""Rows of an index in the order of their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from noontide.actors.slot import Slot
from noontide.ports.due_index import DueIndex
from noontide.records import rows

Readable = Callable[[int], tuple[Slot, DueIndex] | None]
"""The slot and its index, while they say what is."""
Row = tuple[bytes, int, bytes]
"""Job or run id, partition, value."""


PAGE_ROWS, PAGE_BYTES = 256, 64 * 1024
"""Most rows, and about as many bytes, read at once of one partition."""


def grown(size: int, found: list[tuple[bytes, bytes]]) -> int:
    """How many rows to read next, after a page of that size: more, as long as they are not too large."""
    fit = PAGE_BYTES * len(found) // max(1, sum(len(value) for _, value in found))
    return max(1, min(size * 4, PAGE_ROWS, fit))


def rows_after(index: DueIndex, partition: int, kind: bytes, after: bytes) -> Iterator[Row]:
    """Rows of one kind behind an id, in order, read in pages that grow."""
    _, stop = rows.kind_range(partition, kind)
    start, size = bytes([partition]) + kind + after + b"\0", 16
    while found := index.scan(start, stop, size):
        for key, value in found:
            yield key[2:], partition, value
        start, size = found[-1][0] + b"\0", grown(size, found)
