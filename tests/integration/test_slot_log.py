"""The slot's writer on a real Kafka: what the contract suite cannot ask of a log in memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from tests.kafka_scene import create_topic, delete_topic, records

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.slot_log import KafkaSlotLog
from noontide.adapters.system_clock import BrokerClock, boot_ms, wall_now_ms
from noontide.ports.record_log import Doubt, Receipt, Record, TopicPartition


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture
async def log(kafka: Kafka, prefix: str) -> AsyncIterator[KafkaSlotLog]:
    made = KafkaSlotLog(KafkaConnection(kafka.bootstrap), transactional_id=f"{prefix}slot")
    yield made
    await made.close()


@pytest.fixture
async def topic(kafka: Kafka, prefix: str) -> str:
    await create_topic(kafka.bootstrap, f"{prefix}topic", partitions=2)
    return f"{prefix}topic"


async def test_a_topic_deleted_after_its_metadata_was_cached_is_named_within_the_limit(
    kafka: Kafka, log: KafkaSlotLog, topic: str, prefix: str
) -> None:
    doomed, well = TopicPartition(f"{prefix}doomed", 0), TopicPartition(topic, 0)
    await create_topic(kafka.bootstrap, doomed.topic)
    await log.open()
    await log.commit({doomed: records("a", 1), well: records("a", 1)}, timeout_ms=10_000)
    await delete_topic(kafka.bootstrap, doomed.topic)
    began_ms = boot_ms()
    with pytest.raises(Doubt) as doubt:
        await log.commit({doomed: records("b", 1), well: records("b", 1)}, timeout_ms=500)
    assert boot_ms() - began_ms < 10_000
    assert (doubt.value.suspects, doubt.value.refused) == (frozenset({doomed}), False)
    await log.open()
    receipts = await log.commit({well: records("c", 1)}, timeout_ms=10_000)
    assert receipts[well].first_offset in {2, 4}  # the lost attempt took two offsets if it got that far


async def test_a_partition_that_does_not_exist_is_named(log: KafkaSlotLog, topic: str) -> None:
    await log.open()
    with pytest.raises(Doubt, match="not acknowledged in time") as doubt:
        await log.commit(
            {TopicPartition(topic, 7): records("a", 1), TopicPartition(topic, 0): records("a", 1)}, timeout_ms=300
        )
    assert doubt.value.suspects == {TopicPartition(topic, 7)}


async def test_no_task_outlives_a_doubt(log: KafkaSlotLog, topic: str) -> None:
    before = asyncio.all_tasks()
    await log.open()
    with pytest.raises(Doubt):
        await log.commit({TopicPartition(topic, 7): records("a", 1)}, timeout_ms=200)
    await asyncio.sleep(0)
    gc.collect()
    assert asyncio.all_tasks() == before


async def test_no_task_outlives_a_commit_that_was_cancelled(log: KafkaSlotLog, topic: str) -> None:
    before = asyncio.all_tasks()
    await log.open()
    await log.commit({TopicPartition(topic, 0): records("a", 1)}, timeout_ms=10_000)
    commit = asyncio.create_task(log.commit({TopicPartition(topic, 7): records("b", 1)}, timeout_ms=10_000))
    await asyncio.sleep(0)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    with pytest.raises(Doubt, match="not open"):
        await log.commit({TopicPartition(topic, 0): records("c", 1)}, timeout_ms=10_000)


async def test_opening_without_a_broker_is_a_doubt(prefix: str, unused_tcp_port: int) -> None:
    log = KafkaSlotLog(KafkaConnection(f"127.0.0.1:{unused_tcp_port}"), transactional_id=f"{prefix}slot")
    with pytest.raises(Doubt, match="could not be opened"):
        await log.open()


async def test_commits_teach_the_clock(kafka: Kafka, topic: str, prefix: str) -> None:
    clock = BrokerClock()
    log = KafkaSlotLog(KafkaConnection(kafka.bootstrap), transactional_id=f"{prefix}slot", time_source=clock)
    await log.open()
    assert (clock.trusted(), clock.now_ms()) == (False, 0)
    before = wall_now_ms()  # the broker runs on this host, so the two clocks are one
    await log.commit({TopicPartition(topic, 0): records("a", 1)}, timeout_ms=10_000)
    assert clock.trusted()
    assert before - 5_000 < clock.now_ms() <= wall_now_ms()
    await log.close()


async def test_a_topic_with_create_time_borrows_the_time_of_the_others(
    kafka: Kafka, log: KafkaSlotLog, topic: str, prefix: str
) -> None:
    ours, theirs = TopicPartition(topic, 0), TopicPartition(f"{prefix}theirs", 0)
    await create_topic(kafka.bootstrap, theirs.topic, config={"message.timestamp.type": "CreateTime"})
    await log.open()
    receipts = await log.commit({theirs: records("a", 2), ours: records("a", 1)}, timeout_ms=10_000)
    assert receipts[theirs] == Receipt(0, 2, receipts[ours].appended_ms)


async def test_many_batches_of_many_partitions_in_one_transaction(kafka: Kafka, log: KafkaSlotLog, prefix: str) -> None:
    await create_topic(kafka.bootstrap, f"{prefix}wide", partitions=16)
    await log.open()
    bulky = [Record(b"key", b"x" * 1_000)] * 2_500  # three batches
    outputs = {TopicPartition(f"{prefix}wide", number): bulky for number in range(16)}
    receipts = await log.commit(outputs, timeout_ms=60_000)
    assert {receipt[:2] for receipt in receipts.values()} == {(0, 2_500)}
    assert receipts.keys() == outputs.keys()
