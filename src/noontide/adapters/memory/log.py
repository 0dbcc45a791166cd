"""A log in memory that behaves like Kafka where the actors can tell: offsets, markers, transactions, fencing.

What it shares with the real one: every record and every transaction marker takes an offset; a reader of committed
records stops at the last stable offset (the first offset of the oldest open transaction); aborted records take offsets
and are never seen; a newer epoch of a transactional id refuses the older one and settles its open transaction;
compaction leaves holes, also at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from noontide.adapters.memory.faults import Faults
from noontide.ports.record_log import Fenced, Incoming, Receipt, Record, TopicPartition

Listener = Callable[[Collection[TopicPartition]], None]
MESSAGE_MAX_BYTES: Final = 1_048_588  # Kafka's default of max.message.bytes


class Refused(Exception):
    """A record that the log does not take; `reason` is for people, `retriable` says whether waiting may help."""

    def __init__(self, reason: str, *, retriable: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retriable = retriable


class _Entry(NamedTuple):
    """One offset that is in use; a marker has no record."""

    offset: int
    appended_ms: int
    record: Record | None
    transaction: int | None


@dataclass(slots=True)
class Transaction:
    """An open transaction: where it wrote, and the first offset in each partition."""

    number: int
    first_offsets: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """A producer's hold on a transactional id; a newer session of the same id makes it worthless."""

    transactional_id: str
    epoch: int
    transaction: Transaction | None = None


@dataclass(slots=True)
class _Topic:
    partitions: list[_Partition]
    max_message_bytes: int
    id: str


class _Partition:
    """Entries in offset order; `offsets` is kept beside them for bisecting."""

    __slots__ = ("aborted", "entries", "next_offset", "offsets", "open_transactions", "start_offset")

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.offsets: list[int] = []
        self.next_offset = 0
        self.start_offset = 0
        self.aborted: set[int] = set()
        self.open_transactions: dict[int, int] = {}

    def append(self, record: Record | None, appended_ms: int, transaction: int | None) -> int:
        offset = self.next_offset
        self.entries.append(_Entry(offset, appended_ms, record, transaction))
        self.offsets.append(offset)
        self.next_offset = offset + 1
        return offset

    @property
    def last_stable_offset(self) -> int:
        return min(self.open_transactions.values(), default=self.next_offset)

    def visible(self, entry: _Entry) -> bool:
        return entry.record is not None and entry.transaction not in self.aborted

    def from_offset(self, offset: int) -> Iterator[_Entry]:
        """Entries from `offset` to the last stable offset."""
        entries, end = self.entries, self.last_stable_offset
        for index in range(bisect_left(self.offsets, offset), bisect_left(self.offsets, end)):
            yield entries[index]

    def keep(self, entries: list[_Entry]) -> None:
        self.entries = entries
        self.offsets = [entry.offset for entry in entries]


class MemoryLog:
    """Topics with partitions, for one thread.

    now_ms: gives the append times (the log's own clock, like a broker's).
    faults: what goes wrong on purpose, see `Faults`.
    """

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self.faults = Faults()
        self._now_ms = now_ms
        self._topics: dict[str, _Topic] = {}
        self._created = 0
        self._sessions: dict[str, Session] = {}
        self._transactions = 0
        self._listeners: list[Listener] = []

    # Topics

    def create_topic(self, name: str, *, partitions: int, max_message_bytes: int = MESSAGE_MAX_BYTES) -> None:
        """Create an empty topic; the name must be free."""
        assert name not in self._topics, f"topic {name} exists"
        self._created += 1
        self._topics[name] = _Topic([_Partition() for _ in range(partitions)], max_message_bytes, str(self._created))

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its records."""
        del self._topics[name]

    def topic_id(self, name: str) -> str:
        """The id of a topic: another one each time a topic is created."""
        return self._topics[name].id

    def partitions(self, topic: str) -> int | None:
        """Number of partitions, None when there is no such topic."""
        found = self._topics.get(topic)
        return None if found is None else len(found.partitions)

    def max_message_bytes(self, topic: str) -> int:
        """The greatest record the topic takes, in bytes of key, value and headers."""
        return self._topics[topic].max_message_bytes

    # Writing

    def open_session(self, transactional_id: str) -> Session:
        """Take a transactional id: fences the older session and aborts its open transaction."""
        older = self._sessions.get(transactional_id)
        if older is not None and older.transaction is not None:
            self._settle(older, committed=False)
        session = Session(transactional_id, 0 if older is None else older.epoch + 1)
        self._sessions[transactional_id] = session
        return session

    def append(
        self, partition: TopicPartition, records: Sequence[Record], *, session: Session | None = None
    ) -> Receipt:
        """Append records, in the session's transaction when one is given (it is begun if needed).

        Raises Refused for a record that cannot be taken (then none is), Fenced for an old session.
        """
        self.check(partition, records)
        transaction = None if session is None else self._transaction(session, partition)
        at = self._partition(partition)
        number = None if transaction is None else transaction.number
        appended_ms = self._now_ms()
        first_offset = at.next_offset
        for record in records:
            at.append(record, appended_ms, number)
        if transaction is None:
            self._tell([partition])
        return Receipt(first_offset, at.next_offset, appended_ms)

    def check(self, partition: TopicPartition, records: Sequence[Record]) -> None:
        """Raise Refused when the log would not take these records."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            raise Refused(f"topic {partition.topic} does not exist", retriable=True)
        if (reason := self.faults.refused_topics.get(partition.topic)) is not None:
            raise Refused(reason, retriable=True)
        if any(_size_bytes(record) > topic.max_message_bytes for record in records):
            raise Refused(f"a record exceeds {topic.max_message_bytes} bytes", retriable=False)

    def commit(self, session: Session) -> None:
        """Make the session's transaction visible. Raises Fenced for an old session."""
        self._require_current(session)
        self._settle(session, committed=True)

    def abort(self, session: Session) -> None:
        """Hide the session's transaction for ever. Raises Fenced for an old session."""
        self._require_current(session)
        self._settle(session, committed=False)

    def open_transaction(self, transactional_id: str) -> int | None:
        """The number of the transaction that this id has open; None when it has none."""
        session = self._sessions.get(transactional_id)
        return None if session is None or session.transaction is None else session.transaction.number

    def expire(self, transactional_id: str) -> bool:
        """The transaction of this id was open for too long: it is aborted, and its session fenced. False: none is."""
        session = self._sessions.get(transactional_id)
        if session is None or session.transaction is None:
            return False
        self.open_session(transactional_id)
        return True

    # Reading

    def end_offset(self, partition: TopicPartition) -> int:
        """The high watermark: the next offset, open transactions included."""
        return self._partition(partition).next_offset

    def last_stable_offset(self, partition: TopicPartition) -> int:
        """How far a reader of committed records may go."""
        return self._partition(partition).last_stable_offset

    def read(self, partition: TopicPartition, position: int, *, max_records: int) -> tuple[list[Incoming], int]:
        """Committed records from a position on, and the position behind them (markers and holes included)."""
        at = self._partition(partition)
        found: list[Incoming] = []
        position = max(position, at.start_offset)
        for entry in at.from_offset(position):
            if len(found) == max_records:
                return found, entry.offset
            if at.visible(entry):
                assert entry.record is not None
                key, value, headers = entry.record
                found.append(Incoming(*partition, entry.offset, entry.appended_ms, key, value, tuple(headers)))
        return found, max(position, at.last_stable_offset)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the partitions in which records may have become visible; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Upkeep

    def compact(self, topic: str, *, drop_tombstones: bool = False, older_than_ms: int = 1 << 62) -> None:
        """Keep the latest committed record of each key; drops markers and aborted records too.

        Only below the last stable offset, as the cleaner of a broker does. older_than_ms: tombstones appended later
        than this stay (`delete.retention.ms`).
        """
        for at in self._topics[topic].partitions:
            _compact(at, tombstones_before_ms=older_than_ms if drop_tombstones else 0)

    def drop_before(self, partition: TopicPartition, offset: int) -> None:
        """Retention: forget everything below an offset."""
        at = self._partition(partition)
        at.start_offset = max(at.start_offset, min(offset, at.next_offset))
        at.keep([entry for entry in at.entries if entry.offset >= at.start_offset])

    def _partition(self, partition: TopicPartition) -> _Partition:
        return self._topics[partition.topic].partitions[partition.partition]

    def _require_current(self, session: Session) -> None:
        if self._sessions[session.transactional_id] is not session:
            raise Fenced(f"{session.transactional_id} was taken by a newer session")

    def _transaction(self, session: Session, partition: TopicPartition) -> Transaction:
        self._require_current(session)
        if session.transaction is None:
            self._transactions += 1
            session.transaction = Transaction(self._transactions)
        transaction, at = session.transaction, self._partition(partition)
        if partition not in transaction.first_offsets:
            transaction.first_offsets[partition] = at.next_offset
            at.open_transactions[transaction.number] = at.next_offset
        return transaction

    def _settle(self, session: Session, *, committed: bool) -> None:
        transaction, session.transaction = session.transaction, None
        if transaction is None:
            return
        for partition in transaction.first_offsets:
            if partition.topic not in self._topics:
                continue
            at = self._partition(partition)
            del at.open_transactions[transaction.number]
            if not committed:
                at.aborted.add(transaction.number)
            at.append(None, self._now_ms(), transaction.number)
        self._tell(transaction.first_offsets)

    def _tell(self, partitions: Collection[TopicPartition]) -> None:
        for listener in tuple(self._listeners):
            listener(partitions)


def _compact(at: _Partition, *, tombstones_before_ms: int) -> None:
    stable = at.last_stable_offset
    latest = {
        entry.record.key: entry.offset
        for entry in at.entries
        if entry.offset < stable and entry.record is not None and at.visible(entry)
    }
    at.keep([entry for entry in at.entries if entry.offset >= stable or _survives(entry, latest, tombstones_before_ms)])


def _survives(entry: _Entry, latest: dict[bytes | None, int], tombstones_before_ms: int) -> bool:
    record = entry.record
    if record is None or latest.get(record.key) != entry.offset:
        return False
    return record.value is not None or entry.appended_ms >= tombstones_before_ms


def _size_bytes(record: Record) -> int:
    headers = sum(len(name) + len(value) for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
