"""Replay on a real Kafka ends where compaction, aborts and outages have been."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from confluent_kafka import Consumer
from tests.kafka_scene import create_topic

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.slot_log import KafkaSlotLog
from noontide.ports.record_log import Doubt, Record, TopicPartition


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture
async def log(kafka: Kafka, prefix: str) -> AsyncIterator[KafkaSlotLog]:
    made = KafkaSlotLog(KafkaConnection(kafka.bootstrap), transactional_id=f"{prefix}slot")
    await made.open()
    yield made
    await made.close()


def replayed(replay: KafkaReplay, at: TopicPartition, position: int = 0) -> list[tuple[int, bytes | None]]:
    chunks = replay.read({at: position}, replay.end_offsets([at]))
    return [(record.offset, record.key) for chunk in chunks for record in chunk]


async def one_record(kafka: Kafka, log: KafkaSlotLog, prefix: str) -> TopicPartition:
    """A partition with one committed record, and the marker behind it."""
    at = TopicPartition(f"{prefix}topic", 0)
    await create_topic(kafka.bootstrap, at.topic)
    await log.commit({at: [Record(b"a", b"v")]}, timeout_ms=10_000)
    return at


async def test_a_deleted_beginning_is_skipped(kafka: Kafka, log: KafkaSlotLog, prefix: str) -> None:
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    at = TopicPartition(f"{prefix}topic", 0)
    await create_topic(kafka.bootstrap, at.topic)
    await log.commit({at: [Record(b"%d" % number, b"v") for number in range(5)]}, timeout_ms=10_000)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    replay = KafkaReplay(KafkaConnection(kafka.bootstrap))
    (deleted,) = admin.delete_records([Place(at.topic, 0, 3)]).values()
    await asyncio.to_thread(deleted.result, 10)
    assert await asyncio.to_thread(replayed, replay, at) == [(3, b"3"), (4, b"4")]
    (deleted,) = admin.delete_records([Place(at.topic, 0, 6)]).values()  # everything, the marker too
    await asyncio.to_thread(deleted.result, 10)
    assert await asyncio.to_thread(replayed, replay, at) == []


async def test_an_end_behind_an_open_transaction_is_a_doubt_after_the_limit(
    kafka: Kafka, log: KafkaSlotLog, prefix: str
) -> None:
    from aiokafka import AIOKafkaProducer

    at = await one_record(kafka, log, prefix)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=f"{prefix}other")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(at.topic, b"open", partition=0)
    replay = KafkaReplay(KafkaConnection(kafka.bootstrap), stall_timeout_ms=300)
    with pytest.raises(Doubt, match=f"{at.topic}/0 at 2 of 3") as doubt:
        await asyncio.to_thread(replayed, replay, at)
    assert doubt.value.suspects == {at}
    await producer.abort_transaction()
    await producer.stop()
    assert await asyncio.to_thread(replayed, replay, at) == [(0, b"a")]


@pytest.mark.slow
async def test_holes_of_real_compaction_are_crossed(kafka: Kafka, log: KafkaSlotLog, prefix: str) -> None:
    at = TopicPartition(f"{prefix}table", 0)
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    await create_topic(kafka.bootstrap, at.topic, config=config)
    for number in range(10):
        await log.commit({at: [Record(b"same", b"%d" % number)]}, timeout_ms=10_000)
        await asyncio.sleep(0.11)  # the segment's time passes, so that the next record rolls it
    replay = KafkaReplay(KafkaConnection(kafka.bootstrap))
    found: list[tuple[int, bytes | None]] = [(0, b"")] * 10
    async with asyncio.timeout(60):  # the cleaner looks every 15 s
        while len(found) == 10:
            found = await asyncio.to_thread(replayed, replay, at)
            assert found[-1] == (18, b"same")
    assert await asyncio.to_thread(replayed, replay, at, 3) == found


async def test_a_silent_hole_at_the_end_is_given_up_on_when_all_before_it_is_settled(
    kafka: Kafka, log: KafkaSlotLog, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = await one_record(kafka, log, prefix)
    monkeypatch.setattr("noontide.adapters.kafka.replay.HOLE_CHECK_S", 0.3)

    class Mute(Consumer):
        """A consumer that is given records and no event at the end, as behind a hole."""

        def poll(self, timeout: float = -1) -> object:  # type: ignore[override]
            message = super().poll(timeout)
            return None if message is not None and message.error() is not None else message

        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[object]:  # type: ignore[override]
            return [message for message in super().consume(num_messages, timeout) if message.error() is None]

    monkeypatch.setattr("noontide.adapters.kafka.replay.ck.Consumer", Mute)
    replay = KafkaReplay(KafkaConnection(kafka.bootstrap), stall_timeout_ms=20_000)
    assert await asyncio.to_thread(replayed, replay, at) == [(0, b"a")]


async def test_a_consumer_that_hears_nothing_is_replaced_and_nothing_is_skipped(
    kafka: Kafka, log: KafkaSlotLog, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may wait for a frozen broker while the new leader of the partition answers everybody else."""
    at = await one_record(kafka, log, prefix)
    monkeypatch.setattr("noontide.adapters.kafka.replay.HOLE_CHECK_S", 0.3)
    made: list[Consumer] = []

    class DeafAtFirst(Consumer):
        """The first one hears nothing."""

        def __init__(self, settings: dict[str, object]) -> None:
            super().__init__(settings)
            made.append(self)

        def poll(self, timeout: float = -1) -> object:  # type: ignore[override]
            message = super().poll(timeout)
            return None if made[0] is self else message

        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[object]:  # type: ignore[override]
            found = super().consume(num_messages, timeout)
            return [] if made[0] is self else list(found)

    monkeypatch.setattr("noontide.adapters.kafka.replay.ck.Consumer", DeafAtFirst)
    replay = KafkaReplay(KafkaConnection(kafka.bootstrap), stall_timeout_ms=20_000)
    assert await asyncio.to_thread(replayed, replay, at) == [(0, b"a")]
    assert len(made) == 3, "the deaf one, the one that asked about a hole, and the one that read"


async def test_leaders_that_do_not_answer_are_no_holes(
    kafka: Kafka, log: KafkaSlotLog, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = await one_record(kafka, log, prefix)
    monkeypatch.setattr("noontide.adapters.kafka.replay.HOLE_CHECK_S", 0.2)
    monkeypatch.setattr("noontide.adapters.kafka.replay.PROBE_S", 0.2)

    class Deaf(Consumer):
        """Hears nothing, ever."""

        def poll(self, timeout: float = -1) -> None:
            super().poll(timeout)

        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[object]:  # type: ignore[override]
            return []

        def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
            return -1001, -1001

    monkeypatch.setattr("noontide.adapters.kafka.replay.ck.Consumer", Deaf)
    with pytest.raises(Doubt, match="no progress"):
        await asyncio.to_thread(replayed, KafkaReplay(KafkaConnection(kafka.bootstrap), stall_timeout_ms=1_500), at)
