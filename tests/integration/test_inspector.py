"""The inspector tells what is wrong with somebody else's topic before a record is written to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import pytest
from tests.kafka_scene import create_topic, until

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.courier import KafkaCourier
from noontide.adapters.kafka.inspector import KafkaInspector
from noontide.ports.record_log import Record, TopicFacts


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture
async def inspector(kafka: Kafka) -> AsyncIterator[KafkaInspector]:
    made = KafkaInspector(KafkaConnection(kafka.bootstrap), inspect_interval_ms=50)
    yield made
    await made.close()


async def test_a_topic_that_can_be_written_to(kafka: Kafka, inspector: KafkaInspector, prefix: str) -> None:
    await create_topic(kafka.bootstrap, f"{prefix}topic", partitions=5, config={"max.message.bytes": "4711"})
    assert inspector.facts(f"{prefix}topic") is None
    await until(lambda: inspector.facts(f"{prefix}topic") is not None)
    assert inspector.facts(f"{prefix}topic") == TopicFacts(5, 4_711, None)


async def test_a_missing_topic_until_it_appears(kafka: Kafka, inspector: KafkaInspector, prefix: str) -> None:
    name = f"{prefix}topic"
    await until(lambda: inspector.facts(name) == TopicFacts(0, 0, f"topic {name} does not exist"))
    await create_topic(kafka.bootstrap, name)
    await until(lambda: (facts := inspector.facts(name)) is not None and facts.problem is None)


async def test_a_minimum_above_the_number_of_replicas_is_no_problem_as_it_is_none_for_brokers(
    kafka: Kafka, inspector: KafkaInspector, prefix: str
) -> None:
    name = f"{prefix}topic"
    await create_topic(kafka.bootstrap, name, config={"min.insync.replicas": "2"})
    await until(lambda: inspector.facts(name) is not None)
    facts = inspector.facts(name)
    assert facts is not None
    assert facts.problem is None
    courier = KafkaCourier(KafkaConnection(kafka.bootstrap))
    assert (await courier.send(name, Record(b"k", b"v"), partition=0, timeout_ms=10_000)).error is None
    await courier.close()


async def test_distrust_lasts_until_a_later_inspection_disagrees(kafka: Kafka, prefix: str) -> None:
    inspector = KafkaInspector(KafkaConnection(kafka.bootstrap), inspect_interval_ms=60_000)
    name = f"{prefix}topic"
    await create_topic(kafka.bootstrap, name)
    inspector.distrust(name, "a write hung")
    facts = inspector.facts(name)
    assert facts is not None
    assert facts.problem == "a write hung"
    await until(lambda: (facts := inspector.facts(name)) is not None and facts.problem is None)
    inspector.distrust(name, "again")
    await until(lambda: (facts := inspector.facts(name)) is not None and facts.problem is None)
    await inspector.close()


async def test_brokers_that_do_not_answer_are_a_problem(unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noontide.adapters.kafka.inspector.REQUEST_TIMEOUT_S", 0.2)
    inspector = KafkaInspector(KafkaConnection(f"127.0.0.1:{unused_tcp_port}"), inspect_interval_ms=20)
    await until(lambda: inspector.facts("topic") is not None)
    assert inspector.facts("topic") == TopicFacts(0, 0, "the brokers do not answer")
    await inspector.close()
