"""The adapters through a broker that stops answering and comes back: nothing hangs, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka_scene import Collector, create_topic, keys, records, until

from noontide.adapters.kafka.assignor import Rules
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.courier import KafkaCourier
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.membership import KafkaMembership, MembershipOptions
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.slot_log import KafkaSlotLog
from noontide.adapters.system_clock import boot_ms
from noontide.ports.membership import Assignment
from noontide.ports.record_log import Doubt, Record, TopicPartition

pytestmark = pytest.mark.slow

AT = TopicPartition("topic", 0)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path) as broker:
        yield broker


async def test_a_broker_that_is_frozen_and_thawed(own: EmbeddedKafka) -> None:
    connection = KafkaConnection(own.bootstrap)
    await create_topic(own.bootstrap, AT.topic, partitions=4)
    log, sink = KafkaSlotLog(connection, transactional_id="slot"), Collector()
    feed = KafkaFeed(connection, loop=asyncio.get_running_loop())
    courier = KafkaCourier(connection)
    await log.open()
    feed.attach(sink, {AT: 0})
    await log.commit({AT: records("before", 1)}, timeout_ms=10_000)
    await sink.until(lambda got: len(got) == 1)
    own.pause()
    began_ms = boot_ms()
    with pytest.raises(Doubt):
        await log.commit({AT: records("during", 1)}, timeout_ms=500)
    assert boot_ms() - began_ms < 10_000
    with pytest.raises(Doubt):
        await log.open()
    assert not (await courier.send("topic", Record(b"k", b"v"), partition=1, timeout_ms=300)).receipt
    own.resume()
    await log.open()
    await log.commit({AT: records("after", 1)}, timeout_ms=10_000)
    got = await sink.until(lambda got: "after0" in keys(got))
    assert keys(got) == ["before0", "after0"]
    replay = KafkaReplay(connection)
    chunks = await asyncio.to_thread(lambda: list(replay.read({AT: 0}, replay.end_offsets([AT]))))
    assert keys([record for chunk in chunks for record in chunk]) == ["before0", "after0"]
    assert (await courier.send("topic", Record(b"k", b"v"), partition=1, timeout_ms=10_000)).error is None
    await asyncio.gather(log.close(), feed.close(), courier.close())


async def test_a_broker_that_is_killed_and_started_again(own: EmbeddedKafka) -> None:
    connection = KafkaConnection(own.bootstrap)
    await create_topic(own.bootstrap, AT.topic, partitions=4)
    log, sink = KafkaSlotLog(connection, transactional_id="slot"), Collector()
    feed = KafkaFeed(connection, loop=asyncio.get_running_loop())
    told: list[Assignment] = []
    options = MembershipOptions(group="group", topic=AT.topic)
    membership = KafkaMembership(connection, rules=Rules(slots=4), options=options)
    await membership.join(told.append)
    await log.open()
    feed.attach(sink, {AT: 0})
    await log.commit({AT: records("before", 1)}, timeout_ms=10_000)
    await until(lambda: bool(told) and len(sink.got) == 1)
    own.kill()
    with pytest.raises(Doubt):
        await log.commit({AT: records("during", 1)}, timeout_ms=500)
    await until(lambda: feed.error_count > 0)
    await asyncio.to_thread(own.start_broker)
    await log.open()
    await log.commit({AT: records("after", 1)}, timeout_ms=10_000)
    got = await sink.until(lambda got: "after0" in keys(got))
    assert keys(got) == ["before0", "after0"]
    other: list[Assignment] = []
    second = KafkaMembership(connection, rules=Rules(slots=4), options=options)
    await second.join(other.append)
    await until(lambda: bool(other) and len(other[-1].owned) == len(told[-1].owned) == 2)  # the first is still a member
    assert other[-1].owned | told[-1].owned == {0, 1, 2, 3}
    await asyncio.gather(log.close(), feed.close(), membership.leave(), second.leave())
