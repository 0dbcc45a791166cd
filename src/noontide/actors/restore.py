"""Bring a slot's index up to the log: replay `jobs`, `state` and `leases` from the local copy's offsets to their ends.

Replaying a record twice is harmless (each says what is, not what changed), so rows and offsets need only agree
roughly: rows may be newer than their offset, never older. They are written in one batch all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from noontide.actors.effects import Names
from noontide.actors.settings import SchedulerSettings
from noontide.core.definition import load_definition
from noontide.core.errors import InvalidDefinition
from noontide.ports.due_index import DueIndex, IndexBatch
from noontide.ports.record_log import Doubt, Incoming, Replay, TopicPartition
from noontide.records import rows, state
from noontide.records.job_row import encode_job_row
from noontide.records.jobs import read_job_headers
from noontide.records.leases import decode_lease

SWEPT_MAX = 10_000
"""Reminders dropped in one go."""

Row = tuple[bytes, bytes | None]
_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, IndexError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a replay did. wiped_because: why the local copy was thrown away, None when it was used."""

    records: int
    unreadable: tuple[str, ...]
    wiped_because: str | None

    def __str__(self) -> str:
        wiped = f"; local copy thrown away: {self.wiped_because}" if self.wiped_because else ""
        return f"{self.records} records replayed{wiped}"


class Progress(NamedTuple):
    """How much of a replay is done, in offsets."""

    read: int
    total: int


@dataclass(frozen=True, slots=True)
class _Source:
    """A topic partition that rows are made from, and the row that remembers its offset."""

    at: TopicPartition
    offset_key: bytes


class Restorer:
    """Restores one slot. Blocking; for a thread of its own.

    progress: of the replay under way. abandoned: set by another thread, the replay ends in a Doubt soon.
    """

    def __init__(self, names: Names, *, index: DueIndex, replay: Replay, settings: SchedulerSettings) -> None:
        self._names = names
        self._index = index
        self._replay = replay
        self._settings = settings
        self._numbers = names.layout.partitions_of(names.slot)
        first = self._numbers[0]
        self._identity_key = rows.meta_key(first, rows.TOPIC_IDS)
        sources = [
            *(_Source(TopicPartition(names.jobs, each), rows.offset_key(each, rows.JOBS)) for each in self._numbers),
            _Source(names.state, rows.offset_key(first, rows.STATE)),
            _Source(names.leases, rows.offset_key(first, rows.LEASES)),
        ]
        self._sources = {source.at: source for source in sources}
        self._complete_key = rows.meta_key(first, rows.COMPLETE)
        self._unreadable: list[str] = []
        self.progress = Progress(0, 0)
        self.abandoned = False

    def restore(self, *, now_ms: int) -> Restored:
        """Replay to the ends as of now. Raises Doubt when the log cannot be read, IndexFailed when the disk cannot."""
        return self._replayed(self._replay.end_offsets(tuple(self._sources)), now_ms)

    def catch_up(self, *, now_ms: int) -> Restored:
        """Replay what can be read now, while another owner may be writing; raises like `restore`."""
        return self._replayed(self._replay.stable_offsets(tuple(self._sources)), now_ms)

    def _replayed(self, ends: Mapping[TopicPartition, int], now_ms: int) -> Restored:
        wiped_because = self._check(ends, now_ms)
        positions, records = dict(self.offsets()), 0
        self.progress = Progress(0, sum(max(0, ends[at] - offset) for at, offset in positions.items()))
        for chunk in self._replay.read(positions, ends):
            if self.abandoned:
                raise Doubt("the replay was given up")
            self.apply(chunk)
            records += len(chunk)
            self._move(positions, chunk)
        self.progress = Progress(self.progress.total, self.progress.total)
        self.note_complete(now_ms)
        self._index.checkpoint()
        return Restored(records=records, unreadable=tuple(self._unreadable), wiped_because=wiped_because)

    def prepare(self, *, now_ms: int) -> dict[TopicPartition, int]:
        """Throw the copy away if it cannot be trusted; where to read on. Raises like `restore`."""
        self._check(self._replay.end_offsets(tuple(self._sources)), now_ms)
        return self.offsets()

    def apply(self, chunk: list[Incoming]) -> None:
        """Make rows of records."""
        self._index.write(self._batch(chunk))

    def offsets(self) -> dict[TopicPartition, int]:
        """What the rows reflect, by source."""
        return {at: self._offset(source)[0] for at, source in self._sources.items()}

    def sweep(self, before_ms: int) -> None:
        """Drop reminders of what the owner has forgotten since; its records say that, but not which reminder it was."""
        first = self._numbers[0]
        start, _ = rows.kind_range(first, b"v")
        found = self._index.scan(start, rows.forget_key(first, max(0, before_ms), b""), SWEPT_MAX)
        if found:
            self._index.write(IndexBatch(puts=dict.fromkeys((key for key, _ in found), None)))

    def checkpoint(self) -> None:
        """Make the rows durable."""
        self._index.checkpoint()

    def note_complete(self, at_ms: int) -> None:
        """Everything that was committed before a time (broker time) is in the rows."""
        self._index.write(IndexBatch(puts={self._complete_key: rows.encode_complete(at_ms)}))

    def _move(self, positions: dict[TopicPartition, int], chunk: list[Incoming]) -> None:
        read, total = self.progress
        for record in chunk:
            at = TopicPartition(record.topic, record.partition)
            read += record.offset + 1 - positions[at]
            positions[at] = record.offset + 1
        self.progress = Progress(min(read, total), total)

    def _check(self, ends: Mapping[TopicPartition, int], now_ms: int) -> str | None:
        """Why the local copy was thrown away; None when it is used."""
        ids = self._replay.topic_ids(sorted({at.topic for at in self._sources}))
        names = ",".join(f"{topic}={ids[topic]}" for topic in sorted(ids))
        identity = f"{names},slots={self._names.layout.slots}".encode()
        wiped_because = self._unusable(ends, identity, now_ms)
        if wiped_because is not None:
            self._index.wipe()
        self._index.write(IndexBatch(puts={self._identity_key: identity}))
        return wiped_because

    def _unusable(self, ends: Mapping[TopicPartition, int], identity: bytes, now_ms: int) -> str | None:
        """Why the local copy cannot be trusted: older than tombstones live, or from another log."""
        known, complete = self._index.get_many([self._identity_key, self._complete_key])
        if known is not None and known != identity:
            return "the topics it was made from have been created anew"
        old: dict[TopicPartition, int] = {}
        for at, source in self._sources.items():
            offset, appended_ms = self._offset(source)
            if offset > ends[at]:
                return f"{at.topic}/{at.partition} ends at {ends[at]}, before the copy's {offset}"
            age_ms = now_ms - max(appended_ms, rows.decode_complete(complete))
            if offset and offset < ends[at] and age_ms > self._settings.checkpoint_max_age_ms:
                old[at] = offset
        # What follows may be the marker of the copy's own last transaction: then it lacks nothing, however old.
        for missing in self._replay.read(old, {at: ends[at] for at in old}):
            at = TopicPartition(missing[0].topic, missing[0].partition)
            _, appended_ms = self._offset(self._sources[at])
            return f"the copy of {at.topic}/{at.partition} is {(now_ms - appended_ms) // 60_000} minutes old"
        return None

    def _offset(self, source: _Source) -> tuple[int, int]:
        value = self._index.get_many([source.offset_key])[0]
        return (0, 0) if value is None else rows.decode_offset(value)

    def _batch(self, chunk: list[Incoming]) -> IndexBatch:
        latest = {(record.topic, record.key): record for record in chunk}
        batch = IndexBatch()
        cursors: list[Incoming] = []
        for record in latest.values():
            if record.topic == self._names.state.topic and (record.key or b"").startswith(state.CURSOR):
                cursors.append(record)
            else:
                batch.puts.update(self._readable_rows(record))
        batch.puts.update(self._cursor_rows(cursors))
        for record in chunk:
            source = self._sources[TopicPartition(record.topic, record.partition)]
            batch.puts[source.offset_key] = rows.encode_offset(record.offset + 1, record.appended_ms)
        return batch

    def _readable_rows(self, record: Incoming) -> Iterable[Row]:
        """Rows of a record; none of one that only a stranger can have written. One such record must not stop a slot."""
        try:
            return self._rows(record)
        except _UNREADABLE as error:
            self._unreadable.append(f"{record.topic}/{record.partition}/{record.offset}: {error!r}")
            return []

    def _rows(self, record: Incoming) -> Iterable[Row]:
        key = record.key or b""
        if record.topic == self._names.jobs:
            return [(rows.job_key(record.partition, key), self._job_row(record))]
        if record.topic == self._names.leases.topic:
            if record.value is not None:
                decode_lease(key, record.value)
            return [(rows.live_key(self._home(key.rpartition(b":")[0]), key), record.value)]
        if key.startswith(state.RUN):
            run_id = key[len(state.RUN) :]
            home = self._home(run_id.rpartition(b":")[0])
            return [(rows.claimed_key(home, run_id), self._claimed_row(record))]
        if key.startswith((state.DEAD, state.VERDICT, state.GUARD)):
            return self._kept_rows(record, key)
        if key.startswith(state.POSITION):
            name = key[len(state.POSITION) :]
            if record.value is not None:
                state.decode_position(record.value)
            owner = int(name) if name.isdigit() else self._numbers[0]
            return [(rows.meta_key(owner, key), record.value)]
        if key.startswith(state.NOTES):
            return [(rows.note_key(self._numbers[0], key), record.value)]
        if key == state.TZDATA:
            return [(rows.meta_key(self._numbers[0], rows.TZDATA), record.value)]
        self._unreadable.append(f"{record.topic}/{record.partition}/{record.offset}: unknown key {key[:50]!r}")
        return []

    def _cursor_rows(self, records: list[Incoming]) -> Iterable[Row]:
        """Cursors bring their due rows along; the due row of the cursor before goes."""
        records = [record for record in records if self._is_cursor(record)]
        ids = [(record.key or b"")[len(state.CURSOR) :] for record in records]
        keys = [rows.cursor_key(self._home(job_id), job_id) for job_id in ids]
        for job_id, key, old, record in zip(ids, keys, self._index.get_many(keys), records, strict=True):
            before = None if old is None else rows.due_row_of(key[0], job_id, state.decode_cursor(old))
            if before is not None:
                yield before[0], None
            yield key, record.value
            after = None if record.value is None else rows.due_row_of(key[0], job_id, state.decode_cursor(record.value))
            if after is not None:
                yield after

    def _is_cursor(self, record: Incoming) -> bool:
        try:
            return record.value is None or bool(state.decode_cursor(record.value))
        except _UNREADABLE as error:
            self._unreadable.append(f"{record.topic}/{record.partition}/{record.offset}: {error!r}")
            return False

    def _job_row(self, record: Incoming) -> bytes | None:
        if record.value is None:
            return None
        headers = read_job_headers(record.headers)
        return self._compiled(
            record, record.value, etag=headers.etag, created_ms=headers.created_ms, trace=headers.trace
        )

    def _claimed_row(self, record: Incoming) -> bytes | None:
        if record.value is None:
            return None
        headers = dict(record.headers)
        return self._compiled(record, record.value, etag=headers["etag"].decode(), created_ms=int(headers["created"]))

    def _compiled(
        self, record: Incoming, document: bytes, *, etag: str, created_ms: int, trace: str = ""
    ) -> bytes | None:
        try:
            return encode_job_row(load_definition(document), document, etag=etag, created_ms=created_ms, trace=trace)
        except InvalidDefinition as error:
            self._unreadable.append(f"{record.topic}/{record.partition}/{record.offset}: {error}")
            return None

    def _kept_rows(self, record: Incoming, key: bytes) -> Iterable[Row]:
        """Rows of what is kept for a while."""
        if key.startswith(state.DEAD):
            return self._dead_rows(record, key[len(state.DEAD) :])
        return self._verdict_row(record) if key.startswith(state.VERDICT) else self._guard_rows(record, key)

    def _verdict_row(self, record: Incoming) -> Iterable[Row]:
        """A verdict is kept in the reminder to forget it."""
        if record.value is None or record.key is None:
            return []
        forget_ms = record.appended_ms + self._settings.verdict_retention_ms
        return [(rows.forget_key(self._numbers[0], forget_ms, record.key), record.value)]

    def _guard_rows(self, record: Incoming, key: bytes) -> Iterable[Row]:
        row_key = rows.guard_key(self._home(state.guarded_job_id(key)), key[len(state.GUARD) :])
        if record.value is None:
            return [(row_key, None)]
        state.decode_guard(record.value)
        forget_ms = record.appended_ms + self._settings.marker_retention_ms
        return [(row_key, record.value), (rows.forget_key(self._numbers[0], forget_ms, key), b"")]

    def _dead_rows(self, record: Incoming, run_id: bytes) -> Iterable[Row]:
        """Dead runs, and when they are to be forgotten."""
        home = self._home(run_id.rpartition(b":")[0])
        if record.value is None or record.key is None:
            return [(rows.dead_key(home, run_id), None)]
        decode_lease(run_id, record.value)
        forget_ms = record.appended_ms + self._settings.dead_retention_ms
        return [
            (rows.dead_key(home, run_id), record.value),
            (rows.forget_key(self._numbers[0], forget_ms, record.key), b""),
        ]

    def _home(self, job_id: bytes) -> int:
        return self._names.layout.partition_of(job_id)
