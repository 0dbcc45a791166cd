"""What every log promises the actors: one suite over the log in memory and a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.contracts.brokers import MESSAGE_MAX_BYTES, Broker, read
from tests.kafka_scene import Collector, keys, records

from noontide.adapters.system_clock import wall_now_ms
from noontide.ports.record_log import Doubt, Fenced, Receipt, Record, TopicPartition

pytestmark = [
    pytest.mark.parametrize("broker", ["memory", pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
]

COMMIT_MS = 10_000


def record(text: str) -> Record:
    return Record(text.encode(), f"value of {text}".encode())


# Writing


async def test_a_commit_is_read_back_whole_in_order_and_says_where_it_is(
    broker: Broker, topic: str, prefix: str
) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 2)
    before = wall_now_ms()
    receipts = await log.commit({first: records("a", 5), second: records("b", 2)}, timeout_ms=COMMIT_MS)
    later = await log.commit({first: records("c", 3)}, timeout_ms=COMMIT_MS)
    assert [receipts[first][:2], receipts[second][:2]] == [(0, 5), (0, 2)]
    assert later[first][:2] == (6, 9)  # the marker of the first transaction took an offset
    assert before <= receipts[first].appended_ms <= later[first].appended_ms <= wall_now_ms()
    found = await read(broker, first)
    assert keys(found) == ["a0", "a1", "a2", "a3", "a4", "c0", "c1", "c2"]
    assert [each.offset for each in found] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert keys(await read(broker, second)) == ["b0", "b1"]


async def test_keys_values_and_headers_come_back_as_they_were(broker: Broker, topic: str, prefix: str) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    at = TopicPartition(topic, 1)
    odd = [
        Record(b"", b""),
        Record(b"gone", None),
        Record(None, b"no key"),
        Record(b"k", b"v", (("kind", b"define"), ("empty", b""), ("kind", b"again"))),
        Record(b"k", b"v", [("list", b"\x00\xff")]),
    ]
    receipts = await log.commit({at: odd}, timeout_ms=COMMIT_MS)
    found = await read(broker, at)
    assert [(each.key, each.value) for each in found] == [(each.key, each.value) for each in odd]
    assert [list(each.headers) for each in found] == [list(each.headers) for each in odd]
    assert found[-1].appended_ms == receipts[at].appended_ms


async def test_a_commit_larger_than_a_batch_keeps_its_order(broker: Broker, topic: str, prefix: str) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    bulky = [Record(f"{number}".encode(), b"x" * 1_000) for number in range(200)]
    receipts = await log.commit({at: bulky, other: records("b", 1)}, timeout_ms=COMMIT_MS)
    assert receipts[at][:2] == (0, 200)
    assert keys(await read(broker, at)) == [f"{number}" for number in range(200)]


async def test_an_empty_commit_is_a_mistake(broker: Broker, topic: str, prefix: str) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    nothings: list[dict[TopicPartition, list[Record]]] = [{}, {TopicPartition(topic, 0): []}]
    for nothing in nothings:
        with pytest.raises(AssertionError, match="do not commit nothing"):
            await log.commit(nothing, timeout_ms=COMMIT_MS)
    partial = await log.commit(
        {TopicPartition(topic, 0): [], TopicPartition(topic, 1): records("a", 1)}, timeout_ms=COMMIT_MS
    )
    assert list(partial) == [TopicPartition(topic, 1)]


async def test_the_old_owner_is_fenced_and_what_it_wrote_is_never_seen(broker: Broker, topic: str, prefix: str) -> None:
    at = TopicPartition(topic, 0)
    old, new = broker.slot_log(f"{prefix}slot"), broker.slot_log(f"{prefix}slot")
    await old.open()
    await old.commit({at: records("old", 1)}, timeout_ms=COMMIT_MS)
    await new.open()
    with pytest.raises(Fenced):
        await old.commit({at: records("zombie", 3)}, timeout_ms=COMMIT_MS)
    with pytest.raises(Doubt, match="not open"):
        await old.commit({at: records("zombie", 3)}, timeout_ms=COMMIT_MS)
    await new.commit({at: records("new", 1)}, timeout_ms=COMMIT_MS)
    assert keys(await read(broker, at)) == ["old0", "new0"]


async def test_owners_of_other_slots_do_not_fence(broker: Broker, topic: str, prefix: str) -> None:
    one, other = broker.slot_log(f"{prefix}one"), broker.slot_log(f"{prefix}other")
    await one.open()
    await other.open()
    await one.commit({TopicPartition(topic, 0): records("one", 1)}, timeout_ms=COMMIT_MS)
    await other.commit({TopicPartition(topic, 1): records("other", 1)}, timeout_ms=COMMIT_MS)
    assert keys(await read(broker, TopicPartition(topic, 0), TopicPartition(topic, 1))) in (
        ["one0", "other0"],
        ["other0", "one0"],
    )


async def test_a_refused_record_aborts_everything_and_names_the_partition(
    broker: Broker, topic: str, prefix: str
) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    well, sick = TopicPartition(topic, 0), TopicPartition(topic, 1)
    too_large = Record(b"k", b"x" * (MESSAGE_MAX_BYTES + 1))
    with pytest.raises(Doubt) as refusal:
        await log.commit({well: records("a", 3), sick: [record("b"), too_large]}, timeout_ms=COMMIT_MS)
    assert (refusal.value.suspects, refusal.value.refused) == (frozenset({sick}), True)
    with pytest.raises(Doubt, match="not open"):
        await log.commit({well: records("a", 3)}, timeout_ms=COMMIT_MS)
    await log.open()
    await log.commit({well: records("after", 1), sick: records("after", 1)}, timeout_ms=COMMIT_MS)
    assert keys(await read(broker, well)) == ["after0"]
    assert keys(await read(broker, sick)) == ["after0"]


async def test_a_missing_topic_is_a_doubt_that_names_it(broker: Broker, topic: str, prefix: str) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    missing = TopicPartition(f"{prefix}missing", 0)
    with pytest.raises(Doubt) as refusal:
        await log.commit({TopicPartition(topic, 0): records("a", 1), missing: records("b", 1)}, timeout_ms=COMMIT_MS)
    assert (refusal.value.suspects, refusal.value.refused) == (frozenset({missing}), False)
    await log.open()
    await log.commit({TopicPartition(topic, 0): records("c", 1)}, timeout_ms=COMMIT_MS)
    assert keys(await read(broker, TopicPartition(topic, 0))) == ["c0"]


async def test_opening_settles_the_open_transaction_of_a_dead_owner(broker: Broker, topic: str, prefix: str) -> None:
    at = TopicPartition(topic, 0)
    await broker.write_unsettled(f"{prefix}slot", at, records("dead", 4))
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    assert await read(broker, at) == []  # and it ends: nothing is open any more
    receipts = await log.commit({at: records("heir", 1)}, timeout_ms=COMMIT_MS)
    assert receipts[at].first_offset == 5  # four records and the marker
    assert keys(await read(broker, at)) == ["heir0"]


async def test_closing_twice_and_closing_unopened_is_fine(broker: Broker, prefix: str) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.close()
    await log.open()
    await log.close()
    await log.close()


# Replay


async def test_replay_reads_from_its_positions_to_the_ends_and_no_further(
    broker: Broker, topic: str, prefix: str
) -> None:
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.commit({first: records("a", 10), second: records("b", 3)}, timeout_ms=COMMIT_MS)
    replay = broker.replay()
    ends = await asyncio.to_thread(replay.end_offsets, [first, second, TopicPartition(topic, 2)])
    assert ends == {first: 11, second: 4, TopicPartition(topic, 2): 0}
    await log.commit({first: records("late", 5)}, timeout_ms=COMMIT_MS)

    def chunks(positions: Mapping[TopicPartition, int]) -> list[str]:
        return keys([each for chunk in replay.read(positions, ends) for each in chunk])

    assert await asyncio.to_thread(chunks, {first: 7}) == ["a7", "a8", "a9"]
    assert await asyncio.to_thread(chunks, {first: 10}) == []  # only the marker is left
    assert await asyncio.to_thread(chunks, {first: 11, TopicPartition(topic, 2): 0}) == []
    assert sorted(await asyncio.to_thread(chunks, {first: 9, second: 0})) == ["a9", "b0", "b1", "b2"]


async def test_replay_ends_at_an_aborted_tail(broker: Broker, topic: str, prefix: str) -> None:
    at = TopicPartition(topic, 0)
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    await log.commit({at: records("a", 2)}, timeout_ms=COMMIT_MS)
    for _ in range(3):
        await broker.write_unsettled(f"{prefix}slot", at, records("dead", 2))
        await log.open()
    assert (await asyncio.to_thread(broker.replay().end_offsets, [at]))[at] == 12
    assert keys(await read(broker, at)) == ["a0", "a1"]
    assert await read(broker, at, start=3) == []


async def test_stable_offsets_stop_at_an_open_transaction(broker: Broker, topic: str, prefix: str) -> None:
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    log = broker.slot_log(f"{prefix}slot")
    await log.open()
    await log.commit({at: records("a", 2)}, timeout_ms=COMMIT_MS)
    await broker.write_unsettled(f"{prefix}dead", at, records("open", 4))
    replay = broker.replay()
    assert await asyncio.to_thread(replay.stable_offsets, [at, other]) == {at: 3, other: 0}
    assert await asyncio.to_thread(replay.end_offsets, [at, other]) == {at: 7, other: 0}


async def test_replay_of_a_missing_topic_is_a_doubt(broker: Broker, prefix: str) -> None:
    with pytest.raises(Doubt):
        await asyncio.to_thread(broker.replay().end_offsets, [TopicPartition(f"{prefix}missing", 0)])


# Feed


async def test_the_feed_delivers_from_the_given_offset_in_order(broker: Broker, topic: str, prefix: str) -> None:
    log, feed, sink = broker.slot_log(f"{prefix}slot"), broker.feed(), Collector()
    await log.open()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.commit({first: records("a", 10), second: records("b", 10)}, timeout_ms=COMMIT_MS)
    feed.attach(sink, {first: 7, second: 0})
    await sink.until(lambda got: len(got) == 13)
    await log.commit({first: records("later", 2)}, timeout_ms=COMMIT_MS)
    got = await sink.until(lambda got: len(got) == 15)
    assert keys([each for each in got if each.partition == 0]) == ["a7", "a8", "a9", "later0", "later1"]
    assert keys([each for each in got if each.partition == 1]) == [f"b{number}" for number in range(10)]


async def test_the_feed_does_not_show_what_is_open_or_aborted(broker: Broker, topic: str, prefix: str) -> None:
    log, feed, sink = broker.slot_log(f"{prefix}slot"), broker.feed(), Collector()
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.open()
    await log.commit({at: records("a", 1)}, timeout_ms=COMMIT_MS)
    feed.attach(sink, {at: 0, other: 0})
    await broker.write_unsettled(f"{prefix}dead", at, records("open", 2))
    await log.commit({at: records("behind", 1), other: records("beside", 1)}, timeout_ms=COMMIT_MS)
    got = await sink.until(lambda got: "beside0" in keys(got))
    assert "behind0" not in keys(got)  # committed, yet behind the open transaction
    await broker.slot_log(f"{prefix}dead").open()
    got = await sink.until(lambda got: "behind0" in keys(got))
    assert sorted(keys(got)) == ["a0", "behind0", "beside0"]


async def test_nothing_reaches_a_sink_after_detach(broker: Broker, topic: str, prefix: str) -> None:
    log, feed, sink = broker.slot_log(f"{prefix}slot"), broker.feed(), Collector()
    at, fence = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.open()
    await log.commit({at: records("a", 4_000)}, timeout_ms=COMMIT_MS)
    feed.attach(sink, {at: 0})
    await sink.until(lambda got: len(got) > 0)
    feed.detach([at])
    seen = len(sink.got)
    other = Collector()
    feed.attach(other, {fence: 0})
    await log.commit({at: records("b", 1), fence: records("c", 1)}, timeout_ms=COMMIT_MS)
    await other.until(lambda got: keys(got) == ["c0"])
    assert len(sink.got) == seen


async def test_a_partition_can_be_attached_again_at_another_offset(broker: Broker, topic: str, prefix: str) -> None:
    log, feed, old, new = broker.slot_log(f"{prefix}slot"), broker.feed(), Collector(), Collector()
    at = TopicPartition(topic, 0)
    await log.open()
    await log.commit({at: records("a", 4_000)}, timeout_ms=COMMIT_MS)
    feed.attach(old, {at: 1_000})
    await old.until(lambda got: len(got) > 0)
    feed.detach([at])
    feed.attach(new, {at: 10})
    got = await new.until(lambda got: len(got) >= 3_990)
    assert [each.offset for each in got] == list(range(10, 4_000))


async def test_a_paused_partition_rests_and_loses_nothing(broker: Broker, topic: str, prefix: str) -> None:
    log, feed, sink = broker.slot_log(f"{prefix}slot"), broker.feed(), Collector()
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.open()
    feed.attach(sink, {at: 0, other: 0})
    await log.commit({at: records("before", 1)}, timeout_ms=COMMIT_MS)
    await sink.until(lambda got: len(got) == 1)
    feed.pause([at])
    feed.attach(sink, {TopicPartition(topic, 2): 0})
    await log.commit({TopicPartition(topic, 2): records("settled", 1)}, timeout_ms=COMMIT_MS)
    await sink.until(lambda got: "settled0" in keys(got))  # so the pause was carried out too
    await log.commit({at: records("held", 3), other: records("beside", 1)}, timeout_ms=COMMIT_MS)
    await sink.until(lambda got: "beside0" in keys(got))
    assert "held0" not in keys(sink.got)
    feed.resume([at])
    await sink.until(lambda got: "held2" in keys(got))
    assert keys([each for each in sink.got if each.partition == 0]) == ["before0", "held0", "held1", "held2"]


async def test_a_pause_ends_with_the_attachment(broker: Broker, topic: str, prefix: str) -> None:
    log, feed, old, new = broker.slot_log(f"{prefix}slot"), broker.feed(), Collector(), Collector()
    at = TopicPartition(topic, 0)
    await log.open()
    feed.attach(old, {at: 0})
    await log.commit({at: records("a", 1)}, timeout_ms=COMMIT_MS)
    await old.until(lambda got: len(got) == 1)
    feed.pause([at])
    feed.detach([at])
    feed.attach(new, {at: 1})
    await log.commit({at: records("b", 1)}, timeout_ms=COMMIT_MS)
    assert keys(await new.until(lambda got: len(got) == 1)) == ["b0"]


async def test_an_attached_partition_cannot_be_attached_twice(broker: Broker, topic: str) -> None:
    feed = broker.feed()
    feed.attach(Collector(), {TopicPartition(topic, 0): 0})
    with pytest.raises(AssertionError, match="already attached"):
        feed.attach(Collector(), {TopicPartition(topic, 0): 0})


# Courier


async def test_the_courier_answers_with_the_place(broker: Broker, topic: str) -> None:
    courier = broker.courier()
    first = await courier.send(topic, record("a"), partition=1, timeout_ms=COMMIT_MS)
    second = await courier.send(topic, record("b"), partition=1, timeout_ms=COMMIT_MS)
    assert first.error is None
    assert first.receipt is not None
    assert second.receipt is not None
    assert (first.receipt[:2], second.receipt[:2]) == ((0, 1), (1, 2))
    assert keys(await read(broker, TopicPartition(topic, 1))) == ["a", "b"]


async def test_the_courier_spreads_keys_like_the_java_client(broker: Broker, topic: str) -> None:
    courier = broker.courier()
    for key in (b"21", b"foobar", b"a-little-bit-long-string"):
        delivery = await courier.send(topic, Record(key, b"v"), partition=None, timeout_ms=COMMIT_MS)
        assert delivery.error is None
    found = {
        each.key: each.partition
        for partition in range(3)
        for each in await read(broker, TopicPartition(topic, partition))
    }
    # The hashes are those of org.apache.kafka.common.utils.UtilsTest.testMurmur2.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert found == {key: (hashed & 0x7FFFFFFF) % 3 for key, hashed in hashes.items()}


async def test_the_courier_says_what_is_wrong_and_whether_waiting_helps(
    broker: Broker, topic: str, prefix: str
) -> None:
    courier = broker.courier()
    missing = await courier.send(f"{prefix}missing", record("a"), partition=None, timeout_ms=COMMIT_MS)
    assert missing == (None, f"topic {prefix}missing does not exist", True)
    too_large = Record(b"k", b"x" * (MESSAGE_MAX_BYTES + 1))
    refused = await courier.send(topic, too_large, partition=0, timeout_ms=COMMIT_MS)
    assert (refused.receipt, refused.retriable) == (None, False)
    assert refused.error
    fine = await courier.send(topic, record("b"), partition=0, timeout_ms=COMMIT_MS)
    assert fine.receipt is not None
    assert isinstance(fine.receipt, Receipt)
