"""A new release of the time zone database: cursors that it moves are moved, everything else stays."""

from __future__ import annotations

from tests.actors.lines import DAY_MS, HOUR_MS, dues_s

from noontide.core.zones import tzdata_version
from noontide.ports.due_index import IndexBatch
from noontide.records import rows, state
from noontide.testing.builders import cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS


async def _other_release(stage: MemoryStage) -> None:
    """The rows were made with another release."""
    index = stage.slots[0].index
    index.write(IndexBatch(puts={rows.meta_key(0, rows.TZDATA): b"1999a"}))
    await stage.take_over()


def _set_due(stage: MemoryStage, job_id: str, due_ms: int) -> None:
    """The cursor as another release computed it."""
    cursor = stage.cursor(job_id)
    assert cursor is not None
    number, key = stage.layout.partition_of(job_id), job_id.encode()
    old = rows.due_row_of(number, key, cursor)
    moved = cursor._replace(due_ms=due_ms, start_ms=due_ms)
    new = rows.due_row_of(number, key, moved)
    assert old is not None
    assert new is not None
    puts = {old[0]: None, new[0]: new[1], rows.cursor_key(number, key): state.encode_cursor(moved)}
    stage.slots[0].index.write(IndexBatch(puts=puts))


async def test_a_cursor_that_another_release_computed_is_moved(stage: MemoryStage) -> None:
    stage.put(job("a", cron("0 12 * * *")))
    await stage.run_until_idle()
    _set_due(stage, "a", START_MS + 13 * HOUR_MS)
    await _other_release(stage)
    assert stage.cursor("a").due_ms == START_MS + 12 * HOUR_MS  # type: ignore[union-attr]
    await stage.advance(DAY_MS)
    assert dues_s(stage) == [12 * 3600]
    assert stage.slots[0].slot.counts["moved_by_review"] == 1
    values = [record.value for record in stage.records("noontide.state") if record.key == state.TZDATA]
    assert values[-1] == tzdata_version().encode()


async def test_the_same_release_reviews_nothing(stage: MemoryStage) -> None:
    stage.put(job("a", cron("0 12 * * *")))
    await stage.run_until_idle()
    _set_due(stage, "a", START_MS + 13 * HOUR_MS)
    await stage.take_over()
    assert "moved_by_review" not in stage.slots[0].slot.counts


async def test_what_does_not_depend_on_zones_stays(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    stage.put(job("b", once(START_MS + HOUR_MS)))
    stage.put(job("c", cron("0 12 * * *"), paused=True))
    await stage.run_until_idle()
    before = [stage.cursor(name) for name in "abc"]
    await _other_release(stage)
    assert [stage.cursor(name) for name in "abc"] == before


async def test_a_review_respects_starts_at(stage: MemoryStage) -> None:
    stage.put(job("a", cron("0 12 * * *"), starts_at="2026-03-10T00:00:00Z"))
    await stage.run_until_idle()
    before = stage.cursor("a")
    await _other_release(stage)
    assert stage.cursor("a") == before


async def test_a_review_makes_up_for_no_pause(stage: MemoryStage) -> None:
    definition = job("a", cron("0 12 * * *"))
    stage.put(definition)
    await stage.advance(DAY_MS)
    stage.put({**definition, "paused": True})
    await stage.advance(3 * DAY_MS)
    stage.put(definition)
    await stage.run_until_idle()
    before = stage.cursor("a")
    await _other_release(stage)
    assert stage.cursor("a") == before
    assert dues_s(stage) == [12 * 3600]


async def test_a_review_passes_over_what_it_cannot_read(stage: MemoryStage) -> None:
    stage.configure("calendar/holidays", {"dates": ["2026-12-25"]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    stage.put(job("b", cron("0 12 * * *")))
    await stage.run_until_idle()
    _set_due(stage, "b", START_MS + 13 * HOUR_MS)
    stage.configure("calendar/holidays", None)
    await _other_release(stage)
    assert stage.cursor("b").due_ms == START_MS + 12 * HOUR_MS  # type: ignore[union-attr]


async def test_a_review_of_many_jobs_goes_in_pieces(stage: MemoryStage) -> None:
    for number in range(500):
        stage.put(job(f"j{number}", cron("0 12 * * *")))
    await stage.run_until_idle()
    for number in range(500):
        _set_due(stage, f"j{number}", START_MS + 13 * HOUR_MS)
    await _other_release(stage)
    assert {stage.cursor(f"j{n}").due_ms for n in range(0, 500, 7)} == {START_MS + 12 * HOUR_MS}  # type: ignore[union-attr]
    assert stage.slots[0].slot.counts["moved_by_review"] == 500
