"""The logs that the suite of contracts runs over, and what it needs to set a scene on each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Protocol, TypeVar

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.kafka_scene import create_topic

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.courier import KafkaCourier
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.producer import DisposableProducer
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.slot_log import KafkaSlotLog
from noontide.adapters.memory.log import MemoryLog
from noontide.adapters.memory.readers import MemoryFeed, MemoryReplay
from noontide.adapters.memory.slot_log import MemorySlotLog
from noontide.adapters.memory.targets import MemoryCourier
from noontide.adapters.system_clock import wall_now_ms
from noontide.ports.record_log import Courier, Feed, Incoming, Record, Replay, SlotLog, TopicPartition

MESSAGE_MAX_BYTES = 20_000
UPKEEP_WITHIN_S = 90.0
FILLER = b"filler"
"""Key of records that a broker needs to see before it compacts what came before; readers of the suite pass over it."""

QUICKLY_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "100",
}

_Closable = TypeVar("_Closable", KafkaSlotLog, KafkaFeed, KafkaCourier)


class Broker(Protocol):
    """What the suite needs to set a scene."""

    async def create_topic(self, name: str, *, partitions: int, compacted: bool = False) -> None: ...

    def slot_log(self, transactional_id: str) -> SlotLog: ...

    def feed(self) -> Feed: ...

    def replay(self) -> Replay: ...

    def courier(self) -> Courier: ...

    async def write_unsettled(
        self, transactional_id: str, partition: TopicPartition, records: Sequence[Record], *, timeout_ms: int = 60_000
    ) -> None:
        """Write in a transaction that stays open until somebody opens the same id, or the broker ends it."""

    async def compact(self, partition: TopicPartition) -> None:
        """Wait until nothing is left but the latest of each key, without old tombstones."""

    async def drop_before(self, partition: TopicPartition, offset: int) -> None:
        """Remove what is older than an offset, as retention does."""

    async def expire(self, transactional_id: str, partition: TopicPartition) -> None:
        """Wait until the broker has ended a transaction that was open for too long."""

    async def close(self) -> None: ...


class MemoryBroker:
    def __init__(self) -> None:
        self.log = MemoryLog(now_ms=wall_now_ms)

    async def create_topic(self, name: str, *, partitions: int, compacted: bool = False) -> None:
        self.log.create_topic(name, partitions=partitions, max_message_bytes=MESSAGE_MAX_BYTES)

    def slot_log(self, transactional_id: str) -> SlotLog:
        return MemorySlotLog(self.log, transactional_id=transactional_id)

    def feed(self) -> Feed:
        return MemoryFeed(self.log, loop=asyncio.get_running_loop())

    def replay(self) -> Replay:
        return MemoryReplay(self.log)

    def courier(self) -> Courier:
        return MemoryCourier(self.log)

    async def write_unsettled(
        self, transactional_id: str, partition: TopicPartition, records: Sequence[Record], *, timeout_ms: int = 60_000
    ) -> None:
        self.log.append(partition, records, session=self.log.open_session(transactional_id))

    async def compact(self, partition: TopicPartition) -> None:
        self.log.compact(partition.topic, drop_tombstones=True)

    async def drop_before(self, partition: TopicPartition, offset: int) -> None:
        self.log.drop_before(partition, offset)

    async def expire(self, transactional_id: str, partition: TopicPartition) -> None:
        assert self.log.expire(transactional_id)

    async def close(self) -> None:
        pass


class KafkaBroker:
    def __init__(self, bootstrap: str) -> None:
        self.connection = KafkaConnection(bootstrap)
        self.opened: list[KafkaSlotLog | KafkaFeed | KafkaCourier] = []
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    async def create_topic(self, name: str, *, partitions: int, compacted: bool = False) -> None:
        config = {"max.message.bytes": str(MESSAGE_MAX_BYTES), **(QUICKLY_COMPACTED if compacted else {})}
        await create_topic(self.connection.bootstrap, name, partitions=partitions, config=config)

    def slot_log(self, transactional_id: str) -> SlotLog:
        return self._closed_later(
            KafkaSlotLog(self.connection, transactional_id=transactional_id, batch_limit=lambda _: MESSAGE_MAX_BYTES)
        )

    def feed(self) -> Feed:
        return self._closed_later(KafkaFeed(self.connection, loop=asyncio.get_running_loop()))

    def replay(self) -> Replay:
        return KafkaReplay(self.connection, stall_timeout_ms=10_000)

    def courier(self) -> Courier:
        return self._closed_later(KafkaCourier(self.connection))

    async def write_unsettled(
        self, transactional_id: str, partition: TopicPartition, records: Sequence[Record], *, timeout_ms: int = 60_000
    ) -> None:
        settings = self.connection.for_aiokafka(transactional_id)
        producer = DisposableProducer(**settings, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        await producer.start()
        await producer.begin_transaction()
        for record in records:
            await producer.send_and_wait(
                partition.topic, key=record.key, value=record.value, partition=partition.partition
            )
        await producer.discard()

    async def compact(self, partition: TopicPartition) -> None:
        self._clean_often()
        courier = self.courier()
        async with asyncio.timeout(UPKEEP_WITHIN_S):
            for number in count():
                filler = Record(FILLER, b"%d" % number)
                await courier.send(partition.topic, filler, partition=partition.partition, timeout_ms=10_000)
                left = [each for each in await read_stable(self, partition) if each.key != FILLER]
                if len({each.key for each in left}) == len(left) and all(each.value is not None for each in left):
                    return
                await asyncio.sleep(0.11)  # the segment's time passes, so that the next record begins another

    def _clean_often(self) -> None:
        """The cleaner looks every second instead of every fifteen."""
        entry = ConfigEntry("log.cleaner.backoff.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        for number in self.admin.list_topics(timeout=10).brokers:
            broker = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
            for answer in self.admin.incremental_alter_configs([broker]).values():
                answer.result(10)

    async def drop_before(self, partition: TopicPartition, offset: int) -> None:
        removed = self.admin.delete_records([KafkaPartition(*partition, offset)])
        for answer in removed.values():
            await asyncio.to_thread(answer.result, 10)

    async def expire(self, transactional_id: str, partition: TopicPartition) -> None:
        async with asyncio.timeout(UPKEEP_WITHIN_S):
            while await asyncio.to_thread(self._is_held_up, partition):  # noqa: ASYNC110 - the broker looks every 10 s
                await asyncio.sleep(0.1)

    def _is_held_up(self, partition: TopicPartition) -> bool:
        replay = self.replay()
        return replay.stable_offsets([partition]) != replay.end_offsets([partition])

    async def close(self) -> None:
        for each in self.opened:
            await each.close()

    def _closed_later(self, opened: _Closable) -> _Closable:
        self.opened.append(opened)
        return opened


async def read(broker: Broker, *partitions: TopicPartition, start: int = 0) -> list[Incoming]:
    return await asyncio.to_thread(_read, broker.replay(), dict.fromkeys(partitions, start))


def _read(replay: Replay, positions: Mapping[TopicPartition, int]) -> list[Incoming]:
    ends = replay.end_offsets(tuple(positions))
    return [each for chunk in replay.read(positions, ends) for each in chunk]


async def read_stable(broker: Broker, partition: TopicPartition) -> list[Incoming]:
    """All that a reader of committed records can come to now; an open transaction ends it."""
    return await asyncio.to_thread(_read_stable, broker.replay(), partition)


def _read_stable(replay: Replay, partition: TopicPartition) -> list[Incoming]:
    ends = replay.stable_offsets([partition])
    return [each for chunk in replay.read({partition: 0}, ends) for each in chunk]
