"""The index is a cache of the log: whatever is left of it, the rows come out the same."""

from __future__ import annotations

import pytest
from tests.actors.lines import HOUR_MS, dues_s, history

from noontide.actors.restore import Restored, Restorer
from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.readers import MemoryReplay
from noontide.core.cursor import JobState
from noontide.ports.due_index import IndexBatch
from noontide.ports.record_log import Doubt, Record, TopicPartition
from noontide.records import rows
from noontide.records.topics import Layout
from noontide.testing.builders import after_completion, cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

KINDS = (b"j", b"c", b"d", b"l", b"x")


def contents(index: MemoryIndex, layout: Layout, slot: int = 0) -> dict[bytes, bytes]:
    """Rows of jobs, cursors, due times, live runs and what they were claimed with."""
    found: dict[bytes, bytes] = {}
    for number in layout.partitions_of(slot):
        for kind in KINDS:
            found |= dict(index.scan(*rows.kind_range(number, kind), 1 << 30))
    return found


async def _busy(stage: MemoryStage) -> None:
    """A bit of everything, with live runs in all their states."""
    stage.sicken("orders")
    stage.put(job("waits", every("PT10S"), overlap="queue", payload={"a": [1, 2]}))
    stage.put(job("retries", every("PT10S"), to="absent", payload="\u20ac"))
    stage.put(job("relaxed", cron("* * * * *"), timing="relaxed"))
    stage.put(job("once", once(START_MS + 5_000), to="elsewhere"))
    stage.put(job("follows", after_completion("PT7S"), to="elsewhere"))
    stage.put(job("paused", every("PT10S"), paused=True))
    stage.put(job("gone", every("PT10S"), to="elsewhere"))
    stage.put(job("chain", None, after=["once"]))
    await stage.advance(25_000)
    stage.delete("gone")
    stage.put(job("relaxed", cron("*/2 * * * *"), timing="relaxed"))
    stage.trigger("waits", payload="by hand")
    stage.trigger("paused", payload="by hand")
    await stage.advance(61_000)


async def test_from_nothing(stage: MemoryStage) -> None:
    await _busy(stage)
    live = contents(stage.slots[0].index, stage.layout)
    assert len(live) > 20
    assert contents(stage.rebuilt_index(), stage.layout) == live


@pytest.mark.parametrize("when", ["before", "between"])
async def test_from_an_old_checkpoint(stage: MemoryStage, when: str) -> None:
    if when == "between":
        await _busy(stage)
    stage.checkpoint()
    left = stage.slots[0].index.surviving_rows()
    await _busy(stage) if when == "before" else await stage.advance(90_000)
    live = contents(stage.slots[0].index, stage.layout)
    restored = _restore(stage, index := MemoryIndex(left))
    assert restored.wiped_because is None
    assert contents(index, stage.layout) == live


async def test_from_rows_that_are_newer_than_their_offsets(stage: MemoryStage) -> None:
    before = stage.slots[0].index.surviving_rows()
    await _busy(stage)
    live = contents(stage.slots[0].index, stage.layout)
    newer = dict(stage.slots[0].index.scan(b"", b"\xff" * 4, 1 << 30))
    for number in stage.layout.partitions_of(0):
        for source in (rows.JOBS, rows.STATE, rows.LEASES):
            key = rows.offset_key(number, source)
            newer.pop(key, None)
            if key in before:
                newer[key] = before[key]
    _restore(stage, index := MemoryIndex(newer))
    assert contents(index, stage.layout) == live


@pytest.mark.parametrize("drop_tombstones", [False, True])
async def test_after_compaction(stage: MemoryStage, drop_tombstones: bool) -> None:
    """Case kaf-06: the ends are markers and holes."""
    await _busy(stage)
    live = contents(stage.slots[0].index, stage.layout)
    for topic in ("jobs", "state", "leases"):
        stage.log.compact(stage.layout.name(topic), drop_tombstones=drop_tombstones)
    assert contents(stage.rebuilt_index(), stage.layout) == live
    await stage.crash(from_log_alone=True)
    assert contents(stage.slots[0].index, stage.layout) == live


async def test_an_old_checkpoint_after_compaction_that_kept_tombstones(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    stage.put(job("b", every("PT1H")))
    await stage.run_until_idle()
    stage.checkpoint()
    left = stage.slots[0].index.surviving_rows()
    stage.delete("a")
    await stage.run_until_idle()
    for topic in ("jobs", "state", "leases"):
        stage.log.compact(stage.layout.name(topic))
    _restore(stage, index := MemoryIndex(left))
    assert contents(index, stage.layout) == contents(stage.slots[0].index, stage.layout)


async def test_a_copy_from_a_longer_log_is_thrown_away(stage: MemoryStage) -> None:
    await _busy(stage)
    index = MemoryIndex(dict(stage.slots[0].index.scan(b"", b"\xff" * 4, 1 << 30)))
    key = rows.offset_key(0, rows.STATE)
    end = stage.log.end_offset(TopicPartition("noontide.state", 0))
    index.write(IndexBatch(puts={key: rows.encode_offset(end + 1, stage.clock.now_ms()), rows.job_key(0, b"x"): b"?"}))
    restored = _restore(stage, index)
    assert restored.wiped_because == f"noontide.state/0 ends at {end}, before the copy's {end + 1}"
    assert contents(index, stage.layout) == contents(stage.slots[0].index, stage.layout)


@pytest.mark.parametrize("late_ms, is_wiped", [(0, False), (1, True)])
async def test_a_copy_older_than_tombstones_live_is_thrown_away(
    stage: MemoryStage, late_ms: int, is_wiped: bool
) -> None:
    stage.put(job("a", every("P1D")))
    await stage.run_until_idle()
    stage.checkpoint()
    left = stage.slots[0].index.surviving_rows()
    stage.clock.advance(stage.settings.checkpoint_max_age_ms + late_ms)
    stage.put(job("b", every("P1D")))
    await stage.run_until_idle()
    restored = _restore(stage, MemoryIndex(left))
    assert (restored.wiped_because is not None) is is_wiped
    if is_wiped:
        assert "360 minutes old" in str(restored.wiped_because)


async def test_a_partition_that_was_silent_for_long_does_not_make_a_copy_old(stage: MemoryStage) -> None:
    """Definitions change seldom, cursors often: each commit of the owner proves that nothing else was missed."""
    stage.put(job("a", every("PT1H")))
    await stage.run_until_idle()
    for _ in range(10):
        await stage.advance(HOUR_MS)
    stage.checkpoint()
    left = stage.slots[0].index.surviving_rows()
    stage.put(job("a", every("PT2H")))
    await stage.run_until_idle()
    restored = _restore(stage, index := MemoryIndex(left))
    assert restored.wiped_because is None
    assert contents(index, stage.layout) == contents(stage.slots[0].index, stage.layout)


async def test_a_copy_of_other_slots_is_thrown_away(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    await stage.run_until_idle()
    left = dict(stage.slots[0].index.scan(b"", b"\xff" * 4, 1 << 30))
    key = rows.meta_key(0, rows.TOPIC_IDS)
    left[key] = left[key].replace(b"slots=1", b"slots=2")
    assert "created anew" in str(_restore(stage, MemoryIndex(left)).wiped_because)


async def test_catching_up_does_not_wait_for_a_transaction_that_is_open(stage: MemoryStage) -> None:
    await _busy(stage)
    restorer = Restorer(
        stage.slots[0].names, index=(index := MemoryIndex()), replay=MemoryReplay(stage.log), settings=stage.settings
    )
    assert restorer.catch_up(now_ms=stage.clock.now_ms()).records > 0
    assert contents(index, stage.layout) == contents(stage.slots[0].index, stage.layout)
    assert restorer.progress.read == restorer.progress.total > 0


async def test_a_replay_that_is_given_up_ends(stage: MemoryStage) -> None:
    await _busy(stage)
    restorer = Restorer(
        stage.slots[0].names, index=MemoryIndex(), replay=MemoryReplay(stage.log), settings=stage.settings
    )
    restorer.abandoned = True
    with pytest.raises(Doubt, match="given up"):
        restorer.restore(now_ms=stage.clock.now_ms())


async def test_an_old_copy_that_lacks_nothing_is_kept(stage: MemoryStage) -> None:
    stage.put(job("a", every("P300D")))
    await stage.run_until_idle()
    stage.checkpoint()
    stage.clock.advance(100 * stage.settings.checkpoint_max_age_ms)
    restored = _restore(stage, MemoryIndex(stage.slots[0].index.surviving_rows()))
    assert (restored.wiped_because, restored.records) == (None, 0)


async def test_a_copy_of_topics_that_were_created_anew_is_thrown_away(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    await stage.run_until_idle()
    left = dict(stage.slots[0].index.scan(b"", b"\xff" * 4, 1 << 30))
    stage.log.delete_topic("noontide.leases")
    stage.log.create_topic("noontide.leases", partitions=1)
    restored = _restore(stage, MemoryIndex(left))
    assert "created anew" in str(restored.wiped_because)


async def test_what_cannot_be_read_is_named_and_the_rest_is_restored(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S")))
    await stage.run_until_idle()
    at = TopicPartition("noontide.jobs", stage.layout.partition_of("b"))
    headers = [("etag", b"e"), ("created", b"2026-03-01T00:00:00Z"), ("updated", b"2026-03-01T00:00:00Z")]
    broken = b'{"id":"b","schedule":{"cron":"0 0 * * *"},"timezone":"Moon/Base","target":{"topic":{"name":"orders"}}}'
    offset = stage.log.append(at, [Record(b"b", broken, headers)]).first_offset
    stage.log.append(TopicPartition("noontide.state", 0), [Record(b"strange", b"1")])
    restored = _restore(stage, MemoryIndex())
    assert [text.partition(": ")[0] for text in restored.unreadable] == [
        f"noontide.jobs/{at.partition}/{offset}",
        f"noontide.state/0/{stage.log.end_offset(TopicPartition('noontide.state', 0)) - 1}",
    ]
    await stage.crash(from_log_alone=True)
    await stage.advance(10_000)
    assert dues_s(stage) == [10]


async def test_a_job_that_can_no_longer_be_read_is_quarantined_when_due_and_the_others_go_on(
    stage: MemoryStage,
) -> None:
    stage.put(job("a", every("PT10S")))
    stage.put(job("b", every("PT10S")))
    await stage.run_until_idle()
    at = TopicPartition("noontide.jobs", stage.layout.partition_of("b"))
    headers = stage.records("noontide.jobs")[0].headers
    broken = b'{"id":"b","schedule":{"cron":"0 0 * * *"},"timezone":"Moon/Base","target":{"topic":{"name":"orders"}}}'
    stage.log.append(at, [Record(b"b", broken, headers)])
    await stage.crash(from_log_alone=True)
    await stage.advance(20_000)
    assert dues_s(stage) == [10, 20]
    assert stage.cursor("b").state is JobState.QUARANTINED  # type: ignore[union-attr]


async def test_positions_survive(stage: MemoryStage) -> None:
    for number in range(10):
        stage.put(job(f"j{number}", every("PT1H")))
    await stage.run_until_idle()
    positions = dict(stage.slots[0].slot.positions)
    cycle = stage.slots[0].slot.cycle_number
    assert sum(sum(inputs.values()) for inputs in positions.values()) == 10
    await stage.crash(from_log_alone=True)
    assert {name: at for name, at in stage.slots[0].slot.positions.items() if at} == positions
    assert stage.slots[0].slot.cycle_number >= cycle
    assert len(stage.records("noontide.jobs")) == 10


async def test_crashes_at_every_step_change_nothing(stage: MemoryStage) -> None:
    await _busy(stage)
    expected = contents(stage.slots[0].index, stage.layout)
    for from_log_alone in (True, False, True):
        await stage.crash(from_log_alone=from_log_alone)
        assert contents(stage.slots[0].index, stage.layout) == expected
    stage.heal("orders")
    await stage.advance(HOUR_MS)
    run_ids = [line["run_id"] for line in stage.executions()]
    assert len(run_ids) == len(set(run_ids))
    assert history(stage, "once") == [(5, "succeeded")]


def _restore(stage: MemoryStage, index: MemoryIndex) -> Restored:
    restorer = Restorer(stage.slots[0].names, index=index, replay=MemoryReplay(stage.log), settings=stage.settings)
    return restorer.restore(now_ms=stage.clock.now_ms())
