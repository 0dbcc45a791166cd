"""Reading from the log in memory: the feed of committed records, and replay."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from noontide.adapters.memory.log import MemoryLog
from noontide.ports.record_log import Doubt, Incoming, Sink, TopicPartition

CHUNK_MAX_RECORDS = 500


@dataclass(slots=True)
class _Subscription:
    sink: Sink
    position: int
    paused: bool = False


class MemoryFeed:
    """`Feed` on a `MemoryLog`.

    loop: deliver with `call_soon` after every change; without one nothing is delivered until `pump` is called, so that
    a simulation decides when.
    """

    def __init__(self, log: MemoryLog, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._log = log
        self._loop = loop
        self._subscriptions: dict[TopicPartition, _Subscription] = {}
        self._scheduled = False
        self._unsubscribe = log.subscribe(self._told)

    def attach(self, sink: Sink, positions: Mapping[TopicPartition, int]) -> None:
        """See `Feed.attach`."""
        taken = self._subscriptions.keys() & positions.keys()
        assert not taken, f"already attached: {sorted(taken)}"
        self._subscriptions.update({at: _Subscription(sink, offset) for at, offset in positions.items()})
        self._schedule()

    def detach(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.detach`; partitions that are not attached are ignored."""
        for partition in partitions:
            self._subscriptions.pop(partition, None)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.pause`."""
        self._set_paused(partitions, paused=True)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.resume`."""
        self._set_paused(partitions, paused=False)
        self._schedule()

    async def close(self) -> None:
        """Detach everything."""
        self._subscriptions.clear()
        self._unsubscribe()

    def pump(self, *, max_records: int = CHUNK_MAX_RECORDS) -> int:
        """Deliver up to `max_records` of each partition, one call per sink; returns how many there were."""
        by_sink: dict[Sink, list[TopicPartition]] = {}
        for partition, subscription in sorted(self._subscriptions.items(), key=lambda item: item[0]):
            by_sink.setdefault(subscription.sink, []).append(partition)
        return sum(self._deliver(sink, partitions, max_records) for sink, partitions in by_sink.items())

    def _deliver(self, sink: Sink, partitions: Sequence[TopicPartition], max_records: int) -> int:
        records = [record for partition in partitions for record in self._take(partition, max_records)]
        if records:
            sink(records)
        return len(records)

    def _take(self, partition: TopicPartition, max_records: int) -> list[Incoming]:
        subscription = self._subscriptions.get(partition)  # gone when a sink before this one detached it
        if subscription is None or subscription.paused or self._log.partitions(partition.topic) is None:
            return []
        records, subscription.position = self._log.read(partition, subscription.position, max_records=max_records)
        return records

    def _set_paused(self, partitions: Sequence[TopicPartition], *, paused: bool) -> None:
        for partition in partitions:
            if partition in self._subscriptions:
                self._subscriptions[partition].paused = paused

    def _told(self, _partitions: Collection[TopicPartition]) -> None:
        self._schedule()

    def _schedule(self) -> None:
        if self._loop is not None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self.pump():
            self._schedule()


class MemoryReplay:
    """`Replay` on a `MemoryLog`; an end behind an open transaction is never reached, which is a doubt at once."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See `Replay.topic_ids`."""
        self._require([TopicPartition(topic, 0) for topic in topics])
        return {topic: self._log.topic_id(topic) for topic in topics}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Replay.end_offsets`."""
        self._require(partitions)
        return {partition: self._log.end_offset(partition) for partition in partitions}

    def stable_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Replay.stable_offsets`."""
        existing = [partition for partition in partitions if self._exists(partition)]
        self._require(existing)
        return {partition: self._log.last_stable_offset(partition) for partition in existing}

    def read(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[list[Incoming]]:
        """See `Replay.read`."""
        for partition, position in positions.items():
            yield from self._read_partition(partition, position, ends[partition])

    def follow(self, positions: Mapping[TopicPartition, int]) -> MemoryFollower:
        """See `Replay.follow`."""
        return MemoryFollower(self._log, positions)

    def _read_partition(self, partition: TopicPartition, position: int, end: int) -> Iterator[list[Incoming]]:
        while position < end:
            records, moved_to = self._log.read(partition, position, max_records=CHUNK_MAX_RECORDS)
            if chunk := [record for record in records if record.offset < end]:
                yield chunk
            if moved_to == position:
                raise Doubt(f"reading made no progress at {position} of {end}", suspects=frozenset({partition}))
            position = moved_to

    def _exists(self, partition: TopicPartition) -> bool:
        return partition.partition < (self._log.partitions(partition.topic) or 0)

    def _require(self, partitions: Sequence[TopicPartition]) -> None:
        unknown = frozenset(each for each in partitions if not self._exists(each))
        if unknown or self._log.faults.silent:
            raise Doubt("the ends of partitions are unknown", suspects=unknown)


class MemoryFollower:
    """`Follower` on a `MemoryLog`."""

    def __init__(self, log: MemoryLog, positions: Mapping[TopicPartition, int]) -> None:
        self._log = log
        self._positions = dict(positions)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """See `Follower.positions`."""
        return self._positions

    def read(self, records_max: int) -> list[Incoming]:
        """See `Follower.read`."""
        found: list[Incoming] = []
        for partition, position in self._positions.items():
            records, self._positions[partition] = self._log.read(
                partition, position, max_records=records_max - len(found)
            )
            found += records
            if len(found) >= records_max:
                break
        return found

    def lag(self) -> int | None:
        """See `Follower.lag`."""
        return sum(self._log.end_offset(partition) - at for partition, at in self._positions.items())

    def close(self) -> None:
        """See `Follower.close`; there is nothing to end."""
