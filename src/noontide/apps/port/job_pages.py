"""Pages of jobs: by id or by next start, filtered. A search takes a bounded share of a core, however many search.

A page looks at rows for a bounded time and says how far it came. Most rows that are not wanted are told by their bytes,
without being decoded.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.apps.port import wire
from noontide.apps.port.hunting import Block, Entry, Hunt, blocks_by_id, in_blocks
from noontide.apps.port.matching import job_matches
from noontide.apps.port.scanning import grown
from noontide.ports.due_index import DueIndex
from noontide.records import rows
from noontide.records.job_row import JobRow, decode_job_row
from noontide.records.topics import Layout

CHUNK = 64
KEPT_MAX, KEPT_S = 8, 5.0
"""Searches that are kept between two pages, and for how long; each holds up to 64 KiB of each partition."""
_PLACE_DIGITS = 15
_Indexes = dict[int, DueIndex]


class JobPages:
    """Pages of the jobs of this process. opened: a slot and its index; raises when they are not here."""

    def __init__(
        self, layout: Layout, opened: Callable[[int], tuple[Slot, DueIndex]], settings: SchedulerSettings
    ) -> None:
        self._layout = layout
        self._open = opened
        self._piece_s = settings.search_piece_ms / 1000
        self._rest = 100 / settings.search_cpu_percent - 1
        self._turn = asyncio.Lock()
        self._free_at_s = 0.0
        self._going = _Going(time.monotonic)
        self.longest_s = 0.0
        """The longest piece so far."""

    async def of(self, question: wire.JobPage | wire.DuePage) -> wire.FoundJobs:
        """A page. One that filters waits until the one before has rested for as long as its share demands."""
        if question.filter == wire.JobFilter():
            return self._page(question)
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(max(0.0, self._free_at_s - clock()))
            began_s = clock()
            found = self._page(question)
            took_s = clock() - began_s
            self._free_at_s = clock() + took_s * self._rest
            self.longest_s = max(self.longest_s, took_s)
        return found

    def _page(self, question: wire.JobPage | wire.DuePage) -> wire.FoundJobs:
        indexes = {slot: self._open(slot)[1] for slot in question.slots}
        blocks = self._going.begin(question) or self._blocks(question, indexes)
        clock = asyncio.get_running_loop().time
        until_s, page = clock() + self._piece_s, _Page(question)
        for block in blocks:
            page.scanned += block.scanned
            for at, job_id, row, cursor in self._with_cursors(block.likely, indexes):
                if job_matches(job_id, row, cursor, question.filter) and page.is_full_with(at, job_id, row, cursor):
                    return page.found(at)
            if clock() >= until_s:
                self._going.pause(question, block.place, blocks)
                return page.found(block.place)
        return page.found(None)

    def _blocks(self, question: wire.JobPage | wire.DuePage, indexes: _Indexes) -> Iterator[Block]:
        hunt = Hunt(question.filter)
        if isinstance(question, wire.DuePage):
            return in_blocks(self._by_due(question, indexes), CHUNK, hunt)
        return blocks_by_id(self._layout, indexes, question, hunt)

    def _by_due(self, question: wire.DuePage, indexes: _Indexes) -> Iterator[Entry]:
        """Jobs that are to start by themselves; one that starts while pages are turned may come twice, or not."""
        start_ms, after = int(question.after[:_PLACE_DIGITS] or 0), question.after[_PLACE_DIGITS + 1 :].encode()
        streams = (
            self._starts(index, number, start_ms, after)
            for slot, index in indexes.items()
            for number in self._layout.partitions_of(slot)
        )
        merged = heapq.merge(*streams)
        while chunk := list(islice(merged, CHUNK)):
            found = self._rows_of(chunk, indexes, rows.job_key)
            for at_ms, job_id, partition in chunk:
                value = found[partition, job_id]
                if value is not None:
                    yield Entry(wire.due_place(at_ms, job_id.decode()), job_id, partition, value)

    @staticmethod
    def _starts(index: DueIndex, partition: int, start_ms: int, after: bytes) -> Iterator[tuple[int, bytes, int]]:
        start, stop = rows.due_key(partition, start_ms, after) + (b"\0" if after else b""), rows.due_range(partition)[1]
        size = 16
        while found := index.scan(start, stop, size):
            for key, value in found:
                if rows.decode_due_row(value).purpose == rows.Purpose.FIRE:
                    at_ms, job_id = rows.due_key_parts(key)
                    yield at_ms, job_id, partition
            start, size = found[-1][0] + b"\0", grown(size, found)

    def _with_cursors(self, chunk: list[Entry], indexes: _Indexes) -> Iterator[tuple[str, str, JobRow, bytes | None]]:
        """Rows with the cursors of their jobs, in the same order."""
        cursors = self._rows_of([(0, job_id, partition) for _, job_id, partition, _ in chunk], indexes, rows.cursor_key)
        for place, job_id, partition, value in chunk:
            yield place, job_id.decode(), decode_job_row(value), cursors[partition, job_id]

    def _rows_of(
        self, wanted: list[tuple[int, bytes, int]], indexes: _Indexes, key_of: Callable[[int, bytes], bytes]
    ) -> dict[tuple[int, bytes], bytes | None]:
        by_slot: dict[int, list[tuple[int, bytes]]] = {}
        for _, job_id, partition in wanted:
            by_slot.setdefault(self._layout.slot_of(partition), []).append((partition, job_id))
        found: dict[tuple[int, bytes], bytes | None] = {}
        for slot, names in by_slot.items():
            values = indexes[slot].get_many([key_of(partition, job_id) for partition, job_id in names])
            found.update(zip(names, values, strict=True))
        return found


class _Page:
    """What is found of one page."""

    def __init__(self, question: wire.JobPage | wire.DuePage) -> None:
        self.scanned = 0
        self._limit, self._by_due = question.limit, isinstance(question, wire.DuePage)
        self._jobs: list[wire.FoundJob | None] = []
        self._places: list[str] = []

    def is_full_with(self, at: str, job_id: str, row: JobRow, cursor: bytes | None) -> bool:
        """Add a job; whether it was the last that fits."""
        self._jobs.append(found_job(job_id, row, cursor))
        self._places.append(at)
        return len(self._jobs) == self._limit

    def found(self, reached: str | None) -> wire.FoundJobs:
        """The answer."""
        places = self._places if self._by_due else []
        return wire.FoundJobs(jobs=self._jobs, reached=reached, scanned=self.scanned, places=places)


class _Going:
    """Searches that have paused: whoever goes on does not begin with a row of each of 64 partitions again.

    What they have read may be some seconds old: jobs that come and go meanwhile are on a page or not.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paused: OrderedDict[bytes, tuple[float, Iterator[Block]]] = OrderedDict()

    def begin(self, question: wire.JobPage | wire.DuePage) -> Iterator[Block] | None:
        """The search that paused where this one begins."""
        kept = self._paused.pop(_name_of(question, question.after), None)
        return None if kept is None or self._clock() - kept[0] > KEPT_S else kept[1]

    def pause(self, question: wire.JobPage | wire.DuePage, place: str, blocks: Iterator[Block]) -> None:
        """Keep a search for a while."""
        self._paused[_name_of(question, place)] = (self._clock(), blocks)
        while len(self._paused) > KEPT_MAX:
            self._paused.popitem(last=False)


def _name_of(question: wire.JobPage | wire.DuePage, after: str) -> bytes:
    return wire.encode(msgspec.structs.replace(question, after=after, limit=0))


def found_job(job_id: str, row: JobRow, cursor: bytes | None) -> wire.FoundJob:
    """A job as it is told."""
    return wire.FoundJob(
        id=job_id,
        tenant=row.tenant,
        etag=row.etag,
        created_ms=row.created_ms,
        document=msgspec.Raw(row.document),
        cursor=wire.NOTHING if cursor is None else msgspec.Raw(cursor),
    )
