"""The index of one slot: an ordered map of bytes with atomic batches. A cache of the log: may be wiped at any time.

Keys begin with the partition (1 byte) and the row kind (1 byte); `records.rows` knows the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from noontide.core.errors import NoontideError


class IndexFailed(NoontideError):
    """The index could not be read or written; close it, open it again and refill what is missing from the log."""


class IndexInUse(IndexFailed):
    """The folder is held by somebody else; nothing in it was touched."""


class IndexClosed(IndexFailed):
    """A call came after `close`."""


@dataclass(slots=True)
class IndexBatch:
    """Changes applied together or not at all, in this order: range deletes, then `puts` (None = delete the key)."""

    deleted_ranges: list[tuple[bytes, bytes]] = field(default_factory=list)
    puts: dict[bytes, bytes | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.deleted_ranges or self.puts)


class DueIndex(Protocol):
    """Ordered rows. All calls are synchronous and short (bounded by their arguments)."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of the keys; None where there is no row."""

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows with start <= key < stop, ascending."""

    def write(self, batch: IndexBatch) -> None:
        """Apply atomically (also across kill -9: all of a batch or nothing, batches in order)."""

    def checkpoint(self) -> None:
        """Make everything written so far survive kill -9 (a flush; the log covers what comes later)."""

    def wipe(self) -> None:
        """Delete every row."""

    def close(self) -> None:
        """Flush and release; the index may be opened again."""
