"""The feed on a real Kafka, through trouble."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest
from tests.kafka_scene import Collector, create_topic, keys, records, until

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.slot_log import KafkaSlotLog
from noontide.ports.record_log import Incoming, TopicPartition


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture
async def topic(kafka: Kafka, prefix: str) -> str:
    await create_topic(kafka.bootstrap, f"{prefix}topic", partitions=3)
    return f"{prefix}topic"


@pytest.fixture
async def log(kafka: Kafka, prefix: str) -> AsyncIterator[KafkaSlotLog]:
    made = KafkaSlotLog(KafkaConnection(kafka.bootstrap), transactional_id=f"{prefix}slot")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def feed(kafka: Kafka) -> AsyncIterator[KafkaFeed]:
    made = KafkaFeed(KafkaConnection(kafka.bootstrap), loop=asyncio.get_running_loop())
    yield made
    await made.close()


async def test_closing_ends_the_thread_and_is_fine_without_one(kafka: Kafka, topic: str) -> None:
    before = threading.active_count()
    feed = KafkaFeed(KafkaConnection(kafka.bootstrap), loop=asyncio.get_running_loop())
    await feed.close()
    feed.attach(Collector(), {TopicPartition(topic, 0): 0})
    assert any(thread.name == "kafka-feed" for thread in threading.enumerate())
    await feed.close()
    assert not any(thread.name == "kafka-feed" for thread in threading.enumerate())
    assert threading.active_count() <= before + 1  # the executor that waited for it


async def test_a_busy_event_loop_holds_the_reading_and_loses_nothing(
    feed: KafkaFeed, log: KafkaSlotLog, topic: str
) -> None:
    at = TopicPartition(topic, 0)
    await log.commit({at: records("a", 20_000)}, timeout_ms=20_000)
    slow = Collector()

    def sink(arrived: list[Incoming]) -> None:
        threading.Event().wait(0.002)  # blocks the loop, as a long step would
        slow(arrived)

    feed.attach(sink, {at: 0})
    got = await slow.until(lambda got: len(got) >= 20_000)
    assert [each.offset for each in got] == list(range(20_000))


async def test_a_sink_that_raises_costs_the_others_nothing(feed: KafkaFeed, log: KafkaSlotLog, topic: str) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    well = Collector()

    def broken(arrived: list[Incoming]) -> None:
        raise ValueError(f"{len(arrived)} too many")

    feed.attach(broken, {TopicPartition(topic, 0): 0})
    feed.attach(well, {TopicPartition(topic, 1): 0})
    outputs = {TopicPartition(topic, number): records("a", 3) for number in range(2)}
    await log.commit(outputs, timeout_ms=10_000)
    await well.until(lambda got: keys(got) == ["a0", "a1", "a2"])
    await until(lambda: bool(reported))
    assert isinstance(reported[0]["exception"], ValueError)


async def test_a_sink_may_detach_the_partitions_of_another_while_it_runs(
    feed: KafkaFeed, log: KafkaSlotLog, topic: str
) -> None:
    first, second, fence = (TopicPartition(topic, number) for number in range(3))
    ran: list[str] = []

    def one(_: list[Incoming]) -> None:
        ran.append("one")
        feed.detach([second])

    def other(_: list[Incoming]) -> None:
        ran.append("other")
        feed.detach([first])

    await log.commit({first: records("a", 1), second: records("b", 1)}, timeout_ms=10_000)
    feed.attach(one, {first: 0})
    feed.attach(other, {second: 0})
    settled = Collector()
    await until(lambda: bool(ran))
    feed.attach(settled, {fence: 0})
    await log.commit({fence: records("c", 1)}, timeout_ms=10_000)
    await settled.until(lambda got: len(got) == 1)
    assert len(ran) == 1


async def test_an_offset_below_the_start_of_the_log_becomes_the_earliest(
    kafka: Kafka, feed: KafkaFeed, log: KafkaSlotLog, topic: str
) -> None:
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    at = TopicPartition(topic, 0)
    await log.commit({at: records("a", 10)}, timeout_ms=10_000)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (deleted,) = admin.delete_records([Place(topic, 0, 6)]).values()
    await asyncio.to_thread(deleted.result, 10)
    sink = Collector()
    feed.attach(sink, {at: 2})
    got = await sink.until(lambda got: len(got) == 4)
    assert [each.offset for each in got] == [6, 7, 8, 9]


async def test_without_a_broker_it_keeps_trying_and_says_so(unused_tcp_port: int) -> None:
    feed = KafkaFeed(KafkaConnection(f"127.0.0.1:{unused_tcp_port}"), loop=asyncio.get_running_loop())
    feed.attach(Collector(), {TopicPartition("topic", 0): 0})
    await until(lambda: feed.last_error is not None)
    assert feed.error_count > 0
    await feed.close()
