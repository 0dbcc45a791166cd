"""The courier: one sick topic must not hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from tests.kafka_scene import create_topic, delete_topic

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.courier import KafkaCourier
from noontide.ports.record_log import Record


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture
async def courier(kafka: Kafka) -> AsyncIterator[KafkaCourier]:
    made = KafkaCourier(KafkaConnection(kafka.bootstrap))
    yield made
    await made.close()


@pytest.fixture
async def well(kafka: Kafka, prefix: str) -> str:
    await create_topic(kafka.bootstrap, f"{prefix}well")
    return f"{prefix}well"


RECORD = Record(b"key", b"value", (("run-id", b"1"),))


async def test_a_topic_that_hangs_hangs_alone_and_is_found_missing(
    kafka: Kafka, courier: KafkaCourier, well: str, prefix: str
) -> None:
    doomed = f"{prefix}doomed"
    await create_topic(kafka.bootstrap, doomed)
    assert (await courier.send(doomed, RECORD, partition=None, timeout_ms=10_000)).error is None
    await delete_topic(kafka.bootstrap, doomed)
    hanging = asyncio.create_task(courier.send(doomed, RECORD, partition=None, timeout_ms=2_000))
    deliveries = [await courier.send(well, RECORD, partition=0, timeout_ms=10_000) for _ in range(5)]
    assert not hanging.done()
    assert all(delivery.receipt is not None for delivery in deliveries)
    assert await hanging == (None, f"topic {doomed} did not acknowledge within 2000 ms", True)
    again = await courier.send(doomed, RECORD, partition=None, timeout_ms=10_000)
    assert again == (None, f"topic {doomed} does not exist", True)
    assert (await courier.send(well, RECORD, partition=None, timeout_ms=10_000)).error is None


async def test_sends_that_wait_behind_a_hanging_one_go_on_with_another_producer(
    courier: KafkaCourier, well: str
) -> None:
    await courier.send(well, RECORD, partition=0, timeout_ms=10_000)
    producer = courier._common._producer
    assert producer is not None
    producer._sender._muted_partitions.add((well, 0))  # as while a request with this partition is under way
    waiting = asyncio.create_task(courier.send(well, RECORD, partition=0, timeout_ms=10_000))
    await asyncio.sleep(0)
    hung = await courier.send(f"{well}-other", RECORD, partition=0, timeout_ms=10_000)
    assert hung.receipt is None
    await courier._isolate(courier._common, "another topic")
    delivery = await waiting
    assert delivery.receipt is not None
    assert courier._common._producer is not producer


async def test_a_refused_record_does_not_spoil_those_beside_it(
    kafka: Kafka, courier: KafkaCourier, prefix: str
) -> None:
    name = f"{prefix}small"
    await create_topic(kafka.bootstrap, name, config={"max.message.bytes": "2000"})
    large = Record(b"key", b"x" * 5_000)
    deliveries = await asyncio.gather(
        *(courier.send(name, large if number == 3 else RECORD, partition=0, timeout_ms=10_000) for number in range(6))
    )
    assert [delivery.error is None for delivery in deliveries] == [number != 3 for number in range(6)]
    assert not deliveries[3].retriable


async def test_what_cannot_be_a_record_is_refused_here(courier: KafkaCourier, well: str) -> None:
    assert await courier.send(well, Record(None, None), partition=0, timeout_ms=100) == (
        None,
        "a record needs a key or a value",
        False,
    )
    missing = await courier.send(well, RECORD, partition=9, timeout_ms=10_000)
    assert missing == (None, f"topic {well} has no partition 9", True)


async def test_without_a_broker_it_says_so_in_time(unused_tcp_port: int) -> None:
    courier = KafkaCourier(KafkaConnection(f"127.0.0.1:{unused_tcp_port}"))
    before = asyncio.all_tasks()
    delivery = await courier.send("topic", RECORD, partition=0, timeout_ms=300)
    assert delivery.receipt is None
    assert delivery.retriable
    await courier.close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
