"""What compaction, retention and expiry leave to readers: one suite over the log in memory and a real Kafka."""

from __future__ import annotations

import asyncio

import pytest
from tests.contracts.brokers import FILLER, Broker, read, read_stable
from tests.kafka_scene import Collector, keys, records

from noontide.ports.record_log import Incoming, Record, TopicPartition

on_both = pytest.mark.parametrize("broker", ["memory", pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
on_both_slowly = pytest.mark.parametrize(
    "broker", ["memory", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])], indirect=True
)
COMMIT_MS = 10_000


def content(found: list[Incoming]) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of each record of the suite."""
    return [(each.offset, each.key, each.value) for each in found if each.key != FILLER]


@on_both
async def test_a_compacted_log_tells_the_latest_of_each_key_at_its_offset(broker: Broker, prefix: str) -> None:
    at = TopicPartition(f"{prefix}table", 0)
    await broker.create_topic(at.topic, partitions=1, compacted=True)
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    await log.commit({at: [Record(b"a", b"1"), Record(b"b", b"1"), Record(b"gone", b"1")]}, timeout_ms=COMMIT_MS)
    await log.commit({at: [Record(b"a", b"2"), Record(b"c", b"1")]}, timeout_ms=COMMIT_MS)
    await log.commit({at: [Record(b"gone", None)]}, timeout_ms=COMMIT_MS)
    await broker.write_unsettled(f"{prefix}slot", at, [Record(b"b", b"never"), Record(b"d", b"never")])
    await log.open()  # ends it: a later record that was never committed does not displace an earlier one
    whole = content(await read(broker, at))
    assert whole == [
        (0, b"a", b"1"), (1, b"b", b"1"), (2, b"gone", b"1"), (4, b"a", b"2"), (5, b"c", b"1"), (7, b"gone", None),
    ]  # fmt: skip
    await broker.compact(at)
    left = [(1, b"b", b"1"), (4, b"a", b"2"), (5, b"c", b"1")]
    assert content(await read(broker, at)) == left
    assert content(await read(broker, at, start=2)) == left[1:], "from within a hole"
    got = Collector()
    broker.feed().attach(got, {at: 0})
    assert content(await got.until(lambda found: len(content(found)) == len(left))) == left


@on_both
async def test_what_an_open_transaction_hides_does_not_displace_what_can_be_seen(broker: Broker, prefix: str) -> None:
    at = TopicPartition(f"{prefix}table", 0)
    await broker.create_topic(at.topic, partitions=1, compacted=True)
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    await log.commit({at: [Record(b"a", b"1")]}, timeout_ms=COMMIT_MS)
    second = (await log.commit({at: [Record(b"a", b"2")]}, timeout_ms=COMMIT_MS))[at].first_offset
    await broker.compact(at)
    await broker.write_unsettled(f"{prefix}other", at, [Record(b"b", b"open")])
    await log.commit({at: [Record(b"a", b"3")]}, timeout_ms=COMMIT_MS)
    await broker.compact(at)
    assert content(await read_stable(broker, at)) == [(second, b"a", b"2")]
    await broker.slot_log(f"{prefix}other").open()
    assert content(await read(broker, at))[-1][1:] == (b"a", b"3")


@on_both
async def test_readers_from_before_the_retention_begin_at_the_earliest(broker: Broker, topic: str, prefix: str) -> None:
    at = TopicPartition(topic, 0)
    log, got = broker.slot_log(f"{prefix}slot"), Collector()
    await log.open()
    await log.commit({at: records("a", 6)}, timeout_ms=COMMIT_MS)
    await broker.drop_before(at, 4)
    assert keys(await read(broker, at)) == ["a4", "a5"]
    broker.feed().attach(got, {at: 1})
    assert keys(await got.until(lambda found: len(found) == 2)) == ["a4", "a5"]
    await broker.drop_before(at, 7)  # all of it, the marker too
    assert await read(broker, at) == []
    assert await asyncio.to_thread(broker.replay().end_offsets, [at]) == {at: 7}


@on_both_slowly
async def test_a_transaction_that_is_open_for_too_long_is_ended(broker: Broker, topic: str, prefix: str) -> None:
    at = TopicPartition(topic, 0)
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    await log.commit({at: records("a", 1)}, timeout_ms=COMMIT_MS)
    await broker.write_unsettled(f"{prefix}dead", at, records("dead", 2), timeout_ms=1_000)
    await log.commit({at: records("behind", 1)}, timeout_ms=COMMIT_MS)
    assert keys(await read_stable(broker, at)) == ["a0"]
    await broker.expire(f"{prefix}dead", at)
    assert keys(await read(broker, at)) == ["a0", "behind0"]
