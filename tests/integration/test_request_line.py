"""Requests of API nodes on their way to the brokers: in few batches, each in the log once."""

from __future__ import annotations

import asyncio
from typing import Protocol

import pytest
from tests.kafka_scene import create_topic

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.request_line import RequestLine
from noontide.adapters.kafka.requests import NotSent
from noontide.ports.record_log import Record, TopicPartition

PARTITIONS = 4


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


async def test_each_record_gets_its_own_place_and_is_there_once(kafka: Kafka, prefix: str) -> None:
    topic, connection = f"{prefix}requests", KafkaConnection(kafka.bootstrap)
    await create_topic(kafka.bootstrap, topic, partitions=PARTITIONS)
    line = RequestLine(connection, gather_ms=1, timeout_s=20.0)
    places: dict[tuple[int, int], bytes] = {}

    async def send(number: int) -> None:
        at = TopicPartition(topic, number % PARTITIONS)
        receipt = await line.send(at, Record(b"%d" % number, b"x" * 500, [("actor", b"me")]))
        assert receipt.appended_ms > 0
        places[at.partition, receipt.first_offset] = b"%d" % number

    for start in range(0, 3_000, 1_000):  # while one batch is under way the next ones gather
        await asyncio.gather(*(send(number) for number in range(start, start + 1_000)))
    await line.close()
    replay = KafkaReplay(connection)
    ends = await asyncio.to_thread(replay.end_offsets, [TopicPartition(topic, each) for each in range(PARTITIONS)])
    found = [record for chunk in replay.read(dict.fromkeys(ends, 0), ends) for record in chunk]
    assert len(found) == 3_000
    assert {(record.partition, record.offset): record.key for record in found} == places


async def test_without_a_topic_or_a_broker_it_is_said_in_time_that_nothing_was_sent(kafka: Kafka, prefix: str) -> None:
    line = RequestLine(KafkaConnection(kafka.bootstrap), gather_ms=1, timeout_s=0.5)
    with pytest.raises(NotSent):
        await line.send(TopicPartition(f"{prefix}nowhere", 0), Record(b"key", b"value"))
    await create_topic(kafka.bootstrap, f"{prefix}nowhere", partitions=1)
    async with asyncio.timeout(20):
        while True:  # the line goes on by itself once the topic is there
            try:
                await line.send(TopicPartition(f"{prefix}nowhere", 0), Record(b"key", b"value"))
            except NotSent:
                continue
            break
    await line.close()
    nobody = RequestLine(KafkaConnection("127.0.0.1:1"), gather_ms=1, timeout_s=0.5)
    with pytest.raises(NotSent, match="not acknowledged within"):
        await nobody.send(TopicPartition("topic", 0), Record(b"key", b"value"))
    await nobody.close()
