"""The log as the actors see it: transactions out, committed records in, and the errors that matter.

One slot has one `SlotLog` (one transactional id). Whatever goes wrong in `commit` ends in one of two errors:
`Fenced` (somebody else owns the slot: stop) or `Doubt` (outcome unknown: drop memory, replay, never retry by hand).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from noontide.core.errors import NoontideError

Headers = Sequence[tuple[str, bytes]]


class TopicPartition(NamedTuple):
    """A partition of a topic, by its full name."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record to be written; its timestamp is the broker's append time."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


quick_record: Callable[..., Record] = tuple.__new__
"""`quick_record(Record, (key, value, headers))`: the same record in less time, for what is made by the thousand."""


class Incoming(NamedTuple):
    """A record that was read. `appended_ms` is the broker's append time (all topics use LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    appended_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Receipt(NamedTuple):
    """Where the records of one partition ended up.

    first_offset: offset of the first record of this commit in the partition.
    next_offset: offset after the last one.
    appended_ms: broker time of the last append.
    """

    first_offset: int
    next_offset: int
    appended_ms: int


Outputs = Mapping[TopicPartition, Sequence[Record]]


class Fenced(NoontideError):
    """Another owner took the slot's transactional id; this one must stop working on it."""


class Doubt(NoontideError):
    """A commit whose outcome is unknown.

    suspects: partitions whose records were refused or did not answer in time (empty when nothing points anywhere).
    refused: the broker answered and will not take these records, however often they are tried.
    """

    def __init__(
        self, message: str, *, suspects: frozenset[TopicPartition] = frozenset(), refused: bool = False
    ) -> None:
        super().__init__(message)
        self.suspects = suspects
        self.refused = refused


class SlotLog(Protocol):
    """The transactional writer of one slot."""

    async def open(self) -> None:
        """Take the slot: fences every older owner and settles its open transaction. May be called again after a doubt.

        Raises Doubt when the broker does not answer in time.
        """

    async def commit(self, outputs: Outputs, *, timeout_ms: int) -> dict[TopicPartition, Receipt]:
        """Write all records in one transaction, each partition's in order; returns after the commit.

        Raises Fenced, or Doubt for everything else (a refused record aborts; time over; any client error).
        After either the writer is unusable until `open`.
        """

    async def close(self) -> None:
        """Give up the writer within a bounded time; never raises."""


Sink = Callable[[list[Incoming]], None]


class Feed(Protocol):
    """Committed records of many partitions, pushed to their subscribers on the event loop's thread, in offset order."""

    def attach(self, sink: Sink, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on; an offset that retention removed becomes the earliest there is.

        Each call of `sink` gets records of one partition or of several, each partition's in order.
        A partition belongs to one sink at a time.
        """

    def detach(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading; nothing of them reaches the sink after this returns."""

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Hold the partitions (back-pressure); records already fetched may still arrive, bounded by the prefetch."""

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Go on after `pause`."""


class Replay(Protocol):
    """Bounded reading of committed records, used to restore; blocking, for a thread of its own."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """What tells a topic from another of the same name that was created after it was deleted."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks (uncommitted view), so that open and aborted transactions are covered."""

    def stable_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Last stable offsets: how far a reader of committed records can come now. What does not exist is left out."""

    def read(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[list[Incoming]]:
        """Committed records of each partition from its position until its *position* reaches the end.

        Ends that are markers or compacted holes count as reached. Raises Doubt when nothing moves for the time limit.
        """

    def follow(self, positions: Mapping[TopicPartition, int]) -> Follower:
        """Committed records of each partition from its position on, without an end; the caller closes it."""


class Follower(Protocol):
    """Unbounded reading of committed records, used by standbys; for one thread at a time."""

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """What was read of each partition lies below; markers and holes at the end of what can be read count too."""

    def read(self, records_max: int) -> list[Incoming]:
        """What is there now, at most so many; does not wait. Raises Doubt when a partition cannot be read."""

    def lag(self) -> int | None:
        """Records (and markers) between the positions and the ends; None before all ends are known."""

    def close(self) -> None:
        """End the reading."""


class Delivery(NamedTuple):
    """What became of a record sent outside of transactions; `error` is None when it was acknowledged."""

    receipt: Receipt | None
    error: str | None
    retriable: bool = True


class Courier(Protocol):
    """An idempotent, non-transactional sender, for records whose promise is at least once."""

    async def send(self, topic: str, record: Record, *, partition: int | None, timeout_ms: int) -> Delivery:
        """Send one record; never raises, never hangs. partition None = murmur2 of the key over the topic's."""


class TopicFacts(NamedTuple):
    """What is known of somebody else's topic.

    problem: None when records can be written now, else why not (one sentence).
    """

    partitions: int
    max_message_bytes: int
    problem: str | None


class TopicInspector(Protocol):
    """Preflight of target topics: cached facts, refreshed in the background for topics in use."""

    def facts(self, topic: str) -> TopicFacts | None:
        """The latest facts; None when never looked at yet (the look-up is then begun)."""

    def distrust(self, topic: str, reason: str) -> None:
        """A write to the topic failed or hung: facts report this problem until a fresh inspection disagrees."""
