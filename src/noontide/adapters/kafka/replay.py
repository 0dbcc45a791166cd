"""Bounded reading of committed records, for restoring.

The end of a partition is an uncommitted high watermark, so the last records before it may be markers, aborted, or
compacted away. librdkafka's "partition EOF" event carries the position behind all of these; a record's offset does not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.follower import KafkaFollower
from noontide.adapters.kafka.messages import incoming
from noontide.ports.record_log import Doubt, Incoming, TopicPartition

log = logging.getLogger(__name__)

CHUNK_MAX_RECORDS: Final = 2_000
REQUEST_TIMEOUT_S: Final = 5.0
SECOND_QUESTION_S: Final = 0.2
# After so long without anything the leaders are asked whether there is a hole, and a fresh consumer is used.
HOLE_CHECK_S: Final = 2.0
PROBE_S: Final = 3.0
PROBE_LOOKS: Final = 20
PROBE_LOOK_S: Final = 0.05

_Ends = dict[TopicPartition, int]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class KafkaReplay:
    """`Replay` on confluent-kafka; every `read` uses a consumer of its own, in the caller's thread.

    stall_timeout_ms: `read` raises Doubt when no partition moves for so long.
    """

    def __init__(self, connection: KafkaConnection, *, stall_timeout_ms: int = 30_000) -> None:
        self._connection = connection
        self._stall_timeout_ms = stall_timeout_ms
        self._admin: AdminClient | None = None

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See `Replay.topic_ids`. Raises Doubt when one topic has no answer."""
        self._existing(set(topics))  # first a request that is safe: this one aborts the process if a broker is not well
        try:
            answers = self._admin_client().describe_topics(
                ck.TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S
            )
            return {topic: str(future.result(REQUEST_TIMEOUT_S + 1).topic_id) for topic, future in answers.items()}
        except (ck.KafkaException, TimeoutError) as error:
            raise Doubt(f"the ids of topics are unknown: {error}") from error

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Replay.end_offsets`; one request per broker. Raises Doubt when one partition has no answer."""
        return self._latest(partitions, ck.IsolationLevel.READ_UNCOMMITTED)

    def stable_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Replay.stable_offsets`; one request per broker. Raises Doubt when one partition has no answer."""
        existing = self._existing({partition.topic for partition in partitions})
        known = [each for each in partitions if each.partition < existing.get(each.topic, 0)]
        return self._latest(known, ck.IsolationLevel.READ_COMMITTED)

    def read(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[list[Incoming]]:
        """See `Replay.read`; chunks of at most 2,000 records, in any order of partitions."""
        remaining = {partition: ends[partition] for partition, at in positions.items() if at < ends[partition]}
        if not remaining:
            return
        at, moved_at = dict(positions), time.monotonic()
        while remaining:
            consumer = ck.Consumer(_settings(self._connection))
            reading = _Reading(consumer, remaining, at, moved_at)
            try:
                consumer.assign([ck.TopicPartition(*partition, at[partition]) for partition in remaining])
                yield from self._chunks(reading)
            finally:
                consumer.close()
            moved_at = reading.moved_at

    def follow(self, positions: Mapping[TopicPartition, int]) -> KafkaFollower:
        """See `Replay.follow`; the follower has a consumer of its own."""
        return KafkaFollower(self._connection, positions)

    def _chunks(self, reading: _Reading) -> Iterator[list[Incoming]]:
        """Read until nothing remains, or until a silence that a fresh consumer may end."""
        quiet_since = time.monotonic()
        while reading.remaining:
            records, moved = reading.next_chunk()
            now = time.monotonic()
            if moved:
                reading.moved_at = quiet_since = now
            elif now - reading.moved_at > self._stall_timeout_ms / 1000:
                raise Doubt(f"reading made no progress: {reading.describe()}", suspects=frozenset(reading.remaining))
            elif now - quiet_since > HOLE_CHECK_S:
                reading.finish(self._holes(reading))
                return
            if records:
                yield records

    def _holes(self, reading: _Reading) -> set[TopicPartition]:
        """Partitions in which nothing is left to read although the end is not reached: compaction left a hole.

        Silence proves nothing: the client may wait for a broker that is frozen. So the leaders are asked.
        """
        holes: set[TopicPartition] = set()
        try:
            settled = self.stable_offsets(tuple(reading.remaining))
        except Doubt:
            return holes
        for partition, end in reading.remaining.items():
            answer = self._is_hole(partition, reading.at[partition], end) if settled[partition] >= end else False
            if answer is None:
                break  # one that does not answer at all is likely not the only one
            if answer:
                log.warning("nothing is left between %s and the end of %s", reading.at[partition], partition)
                holes.add(partition)
        return holes

    def _is_hole(self, partition: TopicPartition, position: int, end: int) -> bool | None:
        """Whether the leader answers a fetch from a position (and of nothing else) with nothing; None = no answer.

        The consumer knows the high watermark from such an answer only. What came with it is then in its queue, so it is
        looked at a number of times: this process may be frozen too, and then the clock says nothing.
        """
        consumer = ck.Consumer(_settings(self._connection))
        at = ck.TopicPartition(*partition, position)
        try:
            consumer.assign([at])
            asked_at, looks = time.monotonic(), 0
            while looks or time.monotonic() - asked_at < PROBE_S:
                message = consumer.poll(PROBE_LOOK_S)
                if message is not None and (error := message.error()) is None:
                    return False
                if message is not None and error is not None and _is_end(error):
                    return (message.offset() or 0) >= end
                _, high = consumer.get_watermark_offsets(at, cached=True)
                looks += high >= end
                if looks > PROBE_LOOKS:
                    return True
            return None
        finally:
            consumer.close()

    def _existing(self, topics: set[str]) -> dict[str, int]:
        """Topics that exist, and how many partitions they have."""
        try:
            metadata = self._admin_client().list_topics(timeout=REQUEST_TIMEOUT_S)
        except ck.KafkaException as error:
            raise Doubt(f"the brokers do not say which topics there are: {error}") from error
        return {name: len(metadata.topics[name].partitions) for name in topics if name in metadata.topics}

    def _admin_client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._connection.for_confluent("replay-admin"))
        return self._admin

    def _latest(self, partitions: Sequence[TopicPartition], isolation: ck.IsolationLevel) -> dict[TopicPartition, int]:
        """End offsets, asked twice: a client that has missed a change of leaders knows better after a fresh start."""
        if not partitions:
            return {}
        try:
            return self._ask_ends(partitions, isolation)
        except Doubt:
            self._admin = None
            time.sleep(SECOND_QUESTION_S)  # noqa: TID251 - a thread of the caller's own; new topics get their leaders
            return self._ask_ends(partitions, isolation)

    def _ask_ends(
        self, partitions: Sequence[TopicPartition], isolation: ck.IsolationLevel
    ) -> dict[TopicPartition, int]:
        wanted = {ck.TopicPartition(*partition): _LATEST for partition in partitions}
        try:
            admin = self._admin_client()
            answers = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)
            ends = {
                TopicPartition(asked.topic, asked.partition): int(future.result(REQUEST_TIMEOUT_S + 1).offset)
                for asked, future in answers.items()
            }
        except (ck.KafkaException, TimeoutError) as error:
            raise Doubt(f"the ends of partitions are unknown: {error}") from error
        if any(offset < 0 for offset in ends.values()):  # how this client reports that no broker answered in time
            raise Doubt("the ends of partitions are unknown: no answer")
        return ends


class _Reading:
    """A consumer and what it still has to reach."""

    def __init__(self, consumer: ck.Consumer, remaining: _Ends, at: _Ends, moved_at: float) -> None:
        self.remaining = remaining
        self.at = at
        self.moved_at = moved_at
        self._consumer = consumer

    def next_chunk(self) -> tuple[list[Incoming], bool]:
        """Records below the ends, and whether any position moved; waits at most 0.1 s."""
        first = self._consumer.poll(0.1)
        if first is None:
            return [], False
        messages = [first, *self._consumer.consume(CHUNK_MAX_RECORDS - 1, 0)]
        records: list[Incoming] = []
        done: set[TopicPartition] = set()
        moved = False
        for message in messages:
            moved |= self._take(message, records, done)
        self.finish(done)
        return records, moved

    def _take(self, message: ck.Message, records: list[Incoming], done: set[TopicPartition]) -> bool:
        error = message.error()
        if error is not None:
            return self._note(message, error, done)
        record = incoming(message)
        partition = TopicPartition(record.topic, record.partition)
        end = self.remaining.get(partition)
        if end is None or record.offset < self.at[partition]:
            return False
        self.at[partition] = record.offset + 1
        if record.offset < end:
            records.append(record)
        if record.offset + 1 >= end:
            done.add(partition)
        return True

    def _note(self, message: ck.Message, error: ck.KafkaError, done: set[TopicPartition]) -> bool:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if not _is_end(error):
            if error.retriable() or topic is None or number is None:
                return False
            raise Doubt(f"reading failed: {error}", suspects=frozenset({TopicPartition(topic, number)}))
        assert topic is not None
        assert number is not None
        assert offset is not None
        partition = TopicPartition(topic, number)
        moved = offset > self.at[partition]
        self.at[partition] = max(offset, self.at[partition])
        if partition in self.remaining and offset >= self.remaining[partition]:
            done.add(partition)
            return True
        return moved

    def finish(self, partitions: set[TopicPartition]) -> None:
        """Stop fetching what was reached."""
        if reached := [partition for partition in partitions if self.remaining.pop(partition, None) is not None]:
            self._consumer.incremental_unassign([ck.TopicPartition(*partition) for partition in reached])

    def describe(self) -> str:
        """The partitions that lag, with position and end, for an error message."""
        return ", ".join(
            f"{partition.topic}/{partition.partition} at {self.at[partition]} of {end}"
            for partition, end in sorted(self.remaining.items())
        )


def _is_end(error: ck.KafkaError) -> bool:
    return bool(error.code() == ck.KafkaError._PARTITION_EOF)  # noqa: SLF001 - the library's public name for it


def _settings(connection: KafkaConnection) -> ConfluentSettings:
    return {
        **connection.for_reader("replay"),
        "enable.partition.eof": True,
        # The end of a partition is only reported by the fetch after the last records, which waits so long.
        "fetch.wait.max.ms": 10,
        "queued.max.messages.kbytes": 32_768,
    }
