"""The log in memory: compaction, retention, and the faults that can be ordered."""

from __future__ import annotations

import pytest

from noontide.adapters.memory.faults import CommitFault
from noontide.adapters.memory.log import MemoryLog
from noontide.adapters.memory.readers import MemoryFeed, MemoryReplay
from noontide.adapters.memory.slot_log import MemorySlotLog
from noontide.adapters.memory.targets import MemoryCourier, MemoryInspector
from noontide.ports.record_log import Doubt, Incoming, Record, TopicFacts, TopicPartition

AT = TopicPartition("topic", 0)


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog(now_ms=lambda: 1_000)
    made.create_topic("topic", partitions=1)
    return made


async def opened(log: MemoryLog) -> MemorySlotLog:
    slot = MemorySlotLog(log, transactional_id="slot")
    await slot.open()
    return slot


def replayed(log: MemoryLog, position: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    replay = MemoryReplay(log)
    chunks = replay.read({AT: position}, replay.end_offsets([AT]))
    return [(record.key, record.value) for chunk in chunks for record in chunk]


async def test_a_commit_whose_answer_was_lost_is_there_after_all(log: MemoryLog) -> None:
    slot = await opened(log)
    log.faults.doubt_next_commit("slot", CommitFault.TOOK_EFFECT)
    with pytest.raises(Doubt, match="answer was lost"):
        await slot.commit({AT: [Record(b"a", b"1")]}, timeout_ms=1)
    await slot.open()
    await slot.commit({AT: [Record(b"b", b"1")]}, timeout_ms=1)
    assert replayed(log) == [(b"a", b"1"), (b"b", b"1")]


async def test_a_commit_without_effect_blocks_readers_until_the_slot_is_opened(log: MemoryLog) -> None:
    slot = await opened(log)
    log.faults.doubt_next_commit("slot", CommitFault.NO_EFFECT)
    with pytest.raises(Doubt, match="stays open"):
        await slot.commit({AT: [Record(b"a", b"1")]}, timeout_ms=1)
    assert (log.last_stable_offset(AT), log.end_offset(AT)) == (0, 1)
    with pytest.raises(Doubt, match="no progress"):
        replayed(log)
    await slot.open()
    assert (log.last_stable_offset(AT), log.end_offset(AT)) == (2, 2)
    assert replayed(log) == []


async def test_silence_makes_everything_a_doubt(log: MemoryLog) -> None:
    slot = await opened(log)
    log.faults.silent = True
    with pytest.raises(Doubt):
        await slot.commit({AT: [Record(b"a", b"1")]}, timeout_ms=1)
    with pytest.raises(Doubt):
        await slot.open()
    with pytest.raises(Doubt):
        MemoryReplay(log).end_offsets([AT])
    sent = await MemoryCourier(log).send("topic", Record(b"a", b"1"), partition=0, timeout_ms=1)
    assert sent == (None, "the log does not answer", True)


async def test_a_refused_topic_until_it_is_accepted_again(log: MemoryLog) -> None:
    slot, inspector = await opened(log), MemoryInspector(log)
    log.faults.refuse("topic", "no replicas")
    with pytest.raises(Doubt, match="no replicas") as doubt:
        await slot.commit({AT: [Record(b"a", b"1")]}, timeout_ms=1)
    assert (doubt.value.suspects, doubt.value.refused) == (frozenset({AT}), False)
    assert inspector.facts("topic") == TopicFacts(1, 1_048_588, "no replicas")
    log.faults.accept("topic")
    inspector.inspect()
    assert inspector.facts("topic") == TopicFacts(1, 1_048_588, None)
    inspector.distrust("topic", "a write hung")
    assert inspector.facts("topic") == TopicFacts(1, 1_048_588, "a write hung")
    inspector.inspect()
    assert inspector.facts("topic") == TopicFacts(1, 1_048_588, None)
    log.delete_topic("topic")
    inspector.inspect()
    assert inspector.facts("topic") == TopicFacts(0, 0, "topic topic does not exist")


async def test_compaction_keeps_the_latest_of_each_key_and_leaves_holes_that_replay_crosses(log: MemoryLog) -> None:
    slot = await opened(log)
    for value in (b"1", b"2", b"3"):
        await slot.commit({AT: [Record(b"a", value), Record(b"b", value)]}, timeout_ms=1)
    await slot.commit({AT: [Record(b"a", None)]}, timeout_ms=1)
    log.compact("topic")
    assert replayed(log) == [(b"b", b"3"), (b"a", None)]
    assert replayed(log, position=7) == [(b"b", b"3"), (b"a", None)]
    log.compact("topic", drop_tombstones=True)
    assert replayed(log) == [(b"b", b"3")]
    assert replayed(log, position=8) == []  # nothing is left up to the end
    assert log.end_offset(AT) == 11


async def test_compaction_spares_an_open_transaction_and_drops_aborted_records(log: MemoryLog) -> None:
    slot = await opened(log)
    await slot.commit({AT: [Record(b"a", b"1")]}, timeout_ms=1)
    dead = log.open_session("dead")
    log.append(AT, [Record(b"a", b"dead")], session=dead)
    log.abort(dead)
    alive = log.open_session("alive")
    log.append(AT, [Record(b"a", b"2")], session=alive)
    log.compact("topic")
    log.commit(alive)
    assert replayed(log) == [(b"a", b"1"), (b"a", b"2")]


async def test_a_feed_behind_the_retention_starts_at_the_earliest(log: MemoryLog) -> None:
    slot = await opened(log)
    await slot.commit({AT: [Record(b"%d" % number, b"v") for number in range(6)]}, timeout_ms=1)
    log.drop_before(AT, 4)
    got: list[Incoming] = []
    feed = MemoryFeed(log)
    feed.attach(got.extend, {AT: 1})
    assert feed.pump() == 2
    assert [record.offset for record in got] == [4, 5]


async def test_a_feed_without_a_loop_delivers_when_it_is_told(log: MemoryLog) -> None:
    slot, got = await opened(log), list[Incoming]()
    feed = MemoryFeed(log)
    feed.attach(got.extend, {AT: 0})
    await slot.commit({AT: [Record(b"%d" % number, b"v") for number in range(5)]}, timeout_ms=1)
    assert got == []
    assert [feed.pump(max_records=2) for _ in range(4)] == [2, 2, 1, 0]
    assert [record.offset for record in got] == [0, 1, 2, 3, 4]
    await feed.close()
