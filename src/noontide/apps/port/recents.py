"""The last executions of the slots of this process, in an index of their own: a copy of the topic `executions`.

A thread follows the topic at a measured pace, so that a wave of runs is not slowed down by the writing of its history.

    key = slot (1 byte) | kind (1 byte) | rest                value
    o     offset, inverted                                    append time (u64) | execution
    j     job id | 0 | place, inverted                        offset of its last line (u64)
    c     job id | 0 | until, inverted | place, inverted      the same, of decisions over many occurrences
    r     run id | 0 | offset, inverted                       empty
    m, t  minute | tenant                                     how many ended, and how late; see `tallies`
    p                                                         next offset to read (u64) | oldest offset kept (u64)

What is inverted sorts the greatest first. A run that ends again, since it was redriven, keeps its place in `j`.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple, Protocol

import orjson

from noontide.apps.port.tallies import Counts, Tallies, counts_between, outdated
from noontide.core.errors import InvalidDefinition
from noontide.ports.due_index import DueIndex, IndexBatch, IndexFailed
from noontide.ports.history import Place, place_of
from noontide.ports.record_log import Doubt, Incoming, TopicPartition

log = logging.getLogger("noontide.port")
FORMAT_ID = "recents-3"

_U64, _POSITION = struct.Struct(">Q"), struct.Struct(">QQ")
_LAST = 2**64 - 1
_EPOCH = 2**62  # so that times before 1970 sort too
_INVERTED = bytes(255 - each for each in range(256))
_CHUNK = 256
_POLL_S = 0.1
_SLOTS_CHANGED_S = 0.25
_PRUNE_EVERY = 200
_PRUNED_MAX = 2_000
_AWAY_S = 1.0


class Entry(NamedTuple):
    """One line of `executions`."""

    offset: int
    appended_ms: int
    execution: bytes


class Follower(Protocol):
    """Records of some partitions as they come; see `adapters.kafka.tail.Tail`."""

    def poll(self, timeout_s: float) -> list[Incoming]:
        """What has come."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where executions come from.

    topic: its full name. owned: slots of this process now. follow: opens a follower at positions. ends: end offsets.
    """

    topic: str
    owned: Callable[[], frozenset[int]]
    follow: Callable[[Mapping[TopicPartition, int]], Follower]
    ends: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]


class Recents:
    """Follows the executions of the slots that the process owns, and finds lines in the copy.

    per_second_max: lines copied per second. retention_ms: older lines are removed. Reading is for any thread.
    """

    def __init__(self, index: DueIndex, source: Source, *, per_second_max: int, retention_ms: int) -> None:
        self._index = index
        self._source = source
        self._per_second_max = per_second_max
        self._retention_ms = retention_ms
        self._positions: dict[int, int] = {}
        self._oldest: dict[int, int] = {}
        self._stop = threading.Event()
        self._batches = 0
        self._tallies = Tallies(index)
        self._thread = threading.Thread(target=self._run, name="recents", daemon=True)

    # --- reading

    def position(self, slot: int) -> int:
        """The next offset that will be copied; 0 before the slot is followed."""
        return self._positions.get(slot, 0)

    def complete_since_ms(self, slot: int) -> int | None:
        """What was appended from this instant on is in the copy; None while nothing is."""
        oldest = self._oldest.get(slot)
        found = [] if oldest is None else self._entries(slot, [oldest])
        return found[0].appended_ms if found else None

    def kept(self, slot: int) -> tuple[int | None, bool, int]:
        """Append time of the oldest line, whether nothing was forgotten, and for how long lines are kept (ms)."""
        return self.complete_since_ms(slot), not self._oldest.get(slot), self._retention_ms

    def of_job(
        self,
        slot: int,
        job_id: str,
        *,
        limit: int,
        after: Place | None = None,
        since_ms: int | None = None,
        tenants: Collection[str] | None = None,
    ) -> list[Entry]:
        """The last line of each run and decision of a job, in the order of their places, those behind `after`.

        since_ms: due from then on; then come decisions over many that begin earlier and reach it.
        """
        places = bytes([slot]) + b"j" + job_id.encode() + b"\0"
        start = places if after is None else places + _inverted_place(after) + b"\0"
        stop = places + b"\xff" * 9 if since_ms is None else places + _inverted(_EPOCH + since_ms) + b"\xff"
        offsets = self._listed(start, stop)
        if since_ms is not None:
            offsets = chain(offsets, self._reaching(slot, job_id, since_ms))
        found: list[Entry] = []
        while len(found) < limit and (chunk := list(islice(offsets, min(limit, _CHUNK)))):
            lines = self._entries(slot, chunk)
            found += lines if tenants is None else [each for each in lines if _tenant_of(each) in tenants]
        return found[:limit]

    def of_run(self, slot: int, run_id: str, *, limit: int) -> list[Entry]:
        """The newest lines of a run (several when it was redriven)."""
        prefix = bytes([slot]) + b"r" + run_id.encode() + b"\0"
        found = self._index.scan(prefix, prefix + b"\xff" * 9, limit)
        return self._entries(slot, [_LAST - _U64.unpack(key[-8:])[0] for key, _ in found])

    def newest(self, slot: int, *, before: int | None, limit: int) -> list[Entry]:
        """The newest lines of a slot."""
        prefix = bytes([slot]) + b"o"
        start = prefix + _inverted(_LAST if before is None else before - 1)
        found = self._index.scan(start, bytes([slot]) + b"p", limit)
        return [_entry(key, value) for key, value in found]

    def since(self, slot: int, offset: int, *, limit: int) -> list[Entry]:
        """Lines from an offset on, the newest first."""
        prefix = bytes([slot]) + b"o"
        found = self._index.scan(prefix, prefix + _inverted(offset) + b"\0", limit)
        return [_entry(key, value) for key, value in found]

    def ended(self, slot: int, first: int, stop: int, tenants: list[str] | None) -> Iterator[list[tuple[int, Counts]]]:
        """Counts of the minutes from `first` to before `stop` (since the epoch), a few at a time; see `tallies`."""
        return counts_between(self._index, slot, first, stop, tenants)

    def _listed(self, start: bytes, stop: bytes) -> Iterator[int]:
        """Offsets in the order of their keys."""
        while found := self._index.scan(start, stop, _CHUNK):
            for _, value in found:
                yield _U64.unpack(value)[0]
            start = found[-1][0] + b"\0"

    def _reaching(self, slot: int, job_id: str, since_ms: int) -> Iterator[int]:
        """Decisions that begin before an instant and reach it."""
        prefix = bytes([slot]) + b"c" + job_id.encode() + b"\0"
        begin = len(prefix) + 8
        start, stop = prefix, prefix + _inverted(_EPOCH + since_ms) + b"\xff"
        while found := self._index.scan(start, stop, _CHUNK):
            for key, value in found:
                if key[begin : begin + 8] > _inverted(_EPOCH + since_ms):
                    yield _U64.unpack(value)[0]
            start = found[-1][0] + b"\0"

    def _entries(self, slot: int, offsets: Sequence[int]) -> list[Entry]:
        keys = [bytes([slot]) + b"o" + _inverted(offset) for offset in offsets]
        found = zip(keys, self._index.get_many(keys) if keys else [], strict=True)
        return [_entry(key, value) for key, value in found if value is not None]

    # --- following

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the index."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._index.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow_slots(self._source.owned())
            except (Doubt, IndexFailed) as error:
                log.warning("recent executions: %s", error)
                self._stop.wait(_AWAY_S)

    def _follow_slots(self, slots: frozenset[int]) -> None:
        """Until the process owns other slots."""
        if not slots:
            self._stop.wait(_SLOTS_CHANGED_S)
            return
        self._positions = {slot: each for slot, each in self._positions.items() if slot in slots}
        follower = self._source.follow(self.begin(slots))
        try:
            while not self._stop.is_set() and self._source.owned() == slots:
                records = follower.poll(_POLL_S)
                if records:
                    self.copy(records)
                    self._stop.wait(len(records) / self._per_second_max)
        finally:
            follower.close()

    def begin(self, slots: frozenset[int]) -> dict[TopicPartition, int]:
        """Where to go on; a copy that is ahead of the topic is of a topic that is gone, and is thrown away."""
        self._tallies.forget()
        partitions = [TopicPartition(self._source.topic, slot) for slot in sorted(slots)]
        ends, starts = self._source.ends(partitions), {}
        for at in partitions:
            value = self._index.get_many([bytes([at.partition]) + b"p"])[0]
            position, oldest = (0, 0) if value is None else _POSITION.unpack(value)
            if position > ends[at]:
                self._index.write(IndexBatch([(bytes([at.partition]), bytes([at.partition + 1]))]))
                position = 0
            starts[at] = self._positions[at.partition] = position
            if position:
                self._oldest[at.partition] = oldest
            else:
                self._oldest.pop(at.partition, None)
        return starts

    def copy(self, records: list[Incoming]) -> None:
        """Add lines; part of `start`, and for those who follow by themselves."""
        batch = IndexBatch()
        positions = dict(self._positions)
        for record in records:
            self._add(batch, record)
            positions[record.partition] = record.offset + 1
        self._tallies.add_to(batch, records)
        self._batches += 1
        if self._batches % _PRUNE_EVERY == 1:
            self._prune(batch, max(record.appended_ms for record in records) - self._retention_ms)
        for slot, position in positions.items():
            batch.puts[bytes([slot]) + b"p"] = _POSITION.pack(position, self._oldest.get(slot, 0))
        self._index.write(batch)
        self._positions = positions

    def _add(self, batch: IndexBatch, record: Incoming) -> None:
        value = record.value or b"{}"
        keys = _keys(record.partition, record.offset, value)
        if not keys:
            log.warning("recent executions: what is at %d/%d is none", record.partition, record.offset)
            return
        batch.puts[keys[0]] = _U64.pack(record.appended_ms) + value
        batch.puts[keys[1]] = b""
        batch.puts.update(dict.fromkeys(keys[2:], _U64.pack(record.offset)))
        self._oldest.setdefault(record.partition, record.offset)

    def _prune(self, batch: IndexBatch, until_ms: int) -> None:
        """Remove what is older."""
        for slot, oldest in self._oldest.items():
            batch.deleted_ranges += outdated(slot, until_ms)
            prefix = bytes([slot]) + b"o"
            start, stop = prefix + _inverted(oldest + _PRUNED_MAX), prefix + _inverted(oldest) + b"\0"
            for key, value in reversed(self._index.scan(start, stop, _PRUNED_MAX + 1)):
                entry = _entry(key, value)
                if entry.appended_ms >= until_ms:
                    self._oldest[slot] = entry.offset
                    break
                self._remove(batch, slot, entry)

    def _remove(self, batch: IndexBatch, slot: int, entry: Entry) -> None:
        """A place stays when a later line has taken it."""
        first, second, *places = _keys(slot, entry.offset, entry.execution)
        batch.puts |= {first: None, second: None}
        mine = _U64.pack(entry.offset)
        for key, value in zip(places, self._index.get_many(places), strict=True):
            if batch.puts.get(key, value) == mine:
                batch.puts[key] = None
        self._oldest[slot] = entry.offset + 1


def _keys(slot: int, offset: int, value: bytes) -> list[bytes]:
    """The rows of a line: it, that of its run, then its places. None when it cannot be read."""
    try:
        execution = orjson.loads(value)
        place, until = place_of(execution), execution.get("until")
        until_ms = None if until is None else place_of({**execution, "due": until}).due_ms
        run_id = place.run_id.encode()
    except (ValueError, TypeError, KeyError, AttributeError, InvalidDefinition):
        return []
    head, job_id, at = bytes([slot]), run_id.rpartition(b":")[0], _inverted_place(place)
    keys = [head + b"o" + _inverted(offset), head + b"r" + run_id + b"\0" + _inverted(offset)]
    keys.append(head + b"j" + job_id + b"\0" + at)
    if until_ms is not None:
        keys.append(head + b"c" + job_id + b"\0" + _inverted(_EPOCH + until_ms) + at)
    return keys


def _tenant_of(entry: Entry) -> object:
    return orjson.loads(entry.execution).get("tenant")


def _inverted_place(place: Place) -> bytes:
    return _inverted(_EPOCH + place.due_ms) + place.run_id.encode().translate(_INVERTED) + b"\xff"


def _inverted(offset: int) -> bytes:
    return _U64.pack(_LAST - offset)


def _entry(key: bytes, value: bytes) -> Entry:
    return Entry(_LAST - _U64.unpack(key[-8:])[0], _U64.unpack_from(value)[0], value[8:])
