"""Looking through jobs in the order of their ids for those that may be wanted, whole pages of rows at a time.

Each partition's rows are read in pages. The page that ends first says how far all have been read: what may be wanted
up to there is given in order, and that partition's next page is read. Rows that cannot be wanted are not handled one by
one.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from noontide.apps.port import wire
from noontide.apps.port.scanning import grown
from noontide.ports.due_index import DueIndex
from noontide.records import rows
from noontide.records.topics import Layout

_SCHEMES = ("kafka", "handler")
_FIRST_ROWS = 16


class Entry(NamedTuple):
    """A job. place: where it stands in the order asked for; row: its row."""

    place: str
    job_id: bytes
    partition: int
    row: bytes


class Block(NamedTuple):
    """What was looked at next. place: how far that is; scanned: rows; likely: those that may be wanted, in order."""

    place: str
    scanned: int
    likely: list[Entry]


class Hunt:
    """What is looked for, as bytes: it may say yes for a job that is not wanted, never no for one that is.

    A document may write a character in several ways (`\\u0041`), so one with escapes is always suspected. A row has its
    target without the scheme, so only what stands between `:` and `/` is looked for.
    """

    def __init__(self, wanted: wire.JobFilter) -> None:
        said = (wanted.text, wanted.target, *(name for name, _ in wanted.labels))
        self._sought = [part.lower().encode() for part in map(_telling, filter(None, said)) if part]

    def suspects(self, job_id: bytes, row: bytes) -> bool:
        """Whether a job may be wanted."""
        if not self._sought or b"\\" in row:
            return True
        low = row.lower()
        for each in self._sought:  # noqa: SIM110 - a third faster
            if each not in low and each not in job_id.lower():
                return False
        return True

    def among(self, found: list[tuple[bytes, bytes]]) -> bool:
        """Whether one of some rows may be wanted."""
        text = b"\n".join([part for row in found for part in row])
        if not self._sought or b"\\" in text:
            return True
        low = text.lower()
        return all(each in low for each in self._sought)


def _telling(text: str) -> str:
    """The longest part of a text that a row has wherever the text is said of it; "" when there is none."""
    parts = re.split("[:/]", text)
    telling = [part for part in parts if part.isascii() and not any(part.lower() in each for each in _SCHEMES)]
    return max(telling, key=len, default="")


def blocks_by_id(
    layout: Layout, indexes: Mapping[int, DueIndex], question: wire.JobPage, hunt: Hunt
) -> Iterator[Block]:
    """All jobs behind an id whose ids begin with a prefix."""
    pages = [
        _Pages(index, number, question.after.encode(), question.prefix.encode())
        for slot, index in indexes.items()
        for number in layout.partitions_of(slot)
    ]
    ends: list[tuple[bytes, int]] = []
    waiting: list[tuple[bytes, int, bytes]] = []
    scanned = 0
    for place, each in enumerate(pages):
        scanned += _read(each, place, hunt, ends, waiting)
    while ends:
        end, place = heapq.heappop(ends)
        yield Block(end.decode(), scanned, list(_until(end, waiting)))
        scanned = _read(pages[place], place, hunt, ends, waiting)
    likely = [Entry(key.decode(), key, number, row) for key, number, row in sorted(waiting)]
    yield Block(likely[-1].place if likely else "", scanned, likely)


def _until(end: bytes, waiting: list[tuple[bytes, int, bytes]]) -> Iterator[Entry]:
    while waiting and waiting[0][0] <= end:
        key, number, row = heapq.heappop(waiting)
        yield Entry(key.decode(), key, number, row)


def _read(
    pages: _Pages, place: int, hunt: Hunt, ends: list[tuple[bytes, int]], waiting: list[tuple[bytes, int, bytes]]
) -> int:
    """Read the next page of a partition; returns how many rows it has."""
    found = pages.next()
    if found and hunt.among(found):
        for key, row in found:
            if hunt.suspects(key[2:], row):
                heapq.heappush(waiting, (key[2:], pages.partition, row))
    if found and not pages.is_done:
        heapq.heappush(ends, (found[-1][0][2:], place))
    return len(found)


class _Pages:
    """The rows of jobs of one partition, a page at a time."""

    def __init__(self, index: DueIndex, partition: int, after: bytes, prefix: bytes) -> None:
        self.partition = partition
        self.is_done = False
        start, self._stop = rows.kind_range(partition, b"j")
        self._index, self._prefix = index, prefix
        self._start = start + after + b"\0" if after >= prefix and after else start + prefix
        self._size = _FIRST_ROWS

    def next(self) -> list[tuple[bytes, bytes]]:
        """The next rows; none when it is done."""
        found = [] if self.is_done else self._index.scan(self._start, self._stop, self._size)
        self.is_done = len(found) < self._size
        while found and not found[-1][0].startswith(self._prefix, 2):
            found.pop()
            self.is_done = True
        if found:
            self._start, self._size = found[-1][0] + b"\0", grown(self._size, found)
        return found


def in_blocks(entries: Iterator[Entry], size: int, hunt: Hunt) -> Iterator[Block]:
    """Jobs that come one by one."""
    chunk: list[Entry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) == size:
            yield _block(chunk, hunt)
            chunk = []
    if chunk:
        yield _block(chunk, hunt)


def _block(chunk: list[Entry], hunt: Hunt) -> Block:
    return Block(chunk[-1].place, len(chunk), [each for each in chunk if hunt.suspects(each.job_id, each.row)])
