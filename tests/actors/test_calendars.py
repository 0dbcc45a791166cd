"""Calendars have a say twice: when the next occurrence is computed, and when it is due."""

from __future__ import annotations

from tests.actors.lines import DAY_MS, HOUR_MS, history

from noontide.core.cursor import JobState
from noontide.testing.builders import cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

HOLIDAYS = "calendar/holidays"


async def test_excluded_dates_do_not_happen(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": [{"from": "2026-03-02", "to": "2026-03-03"}]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    await stage.advance(4 * DAY_MS)
    assert stage.run_ids("orders") == ["a:20260301T120000Z", "a:20260304T120000Z"]
    assert len(stage.executions("a")) == 2


async def test_only_included_dates_happen(stage: MemoryStage) -> None:
    stage.configure("calendar/paydays", {"dates": ["2026-03-02", "2026-03-04"]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"include": ["paydays"]}))
    await stage.advance(4 * DAY_MS)
    assert stage.run_ids("orders") == ["a:20260302T120000Z", "a:20260304T120000Z"]
    assert stage.cursor("a").state is JobState.ACTIVE  # type: ignore[union-attr]


async def test_a_date_is_one_of_the_jobs_own_zone(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": ["2026-03-02"]})
    stage.put(job("a", cron("30 0 * * *"), timezone="Europe/Berlin", calendar={"exclude": ["holidays"]}))
    await stage.advance(3 * DAY_MS)
    assert stage.run_ids("orders") == ["a:20260302T233000Z", "a:20260303T233000Z"]


async def test_a_date_excluded_when_it_is_due_already_is_skipped_and_recorded(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": ["2026-12-25"]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    await stage.run_until_idle()
    stage.configure(HOLIDAYS, {"dates": ["2026-03-01"]}, unnoticed=True)
    stage.clock.advance(12 * HOUR_MS)
    await stage.advance(36 * HOUR_MS)
    assert history(stage, "a") == [(12 * 3600, "skipped"), (36 * 3600, "succeeded")]
    assert stage.executions("a")[0]["reason"] == "calendar"
    assert stage.cursor("a").runs == 1  # type: ignore[union-attr]


async def test_an_excluded_one_off_is_skipped(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": ["2026-03-01"]})
    stage.put(job("a", once(START_MS + HOUR_MS), calendar={"exclude": ["holidays"]}))
    await stage.advance(DAY_MS // 2)
    assert history(stage, "a") == [(3600, "skipped")]
    assert stage.cursor("a").state is JobState.COMPLETED  # type: ignore[union-attr]


async def test_missed_dates_that_are_excluded_are_not_made_up_for(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": ["2026-03-02"]})
    stage.put(job("a", cron("0 12 * * *"), misfire="run_all", calendar={"exclude": ["holidays"]}))
    await stage.run_until_idle()
    await stage.jump(3 * DAY_MS)
    assert stage.run_ids("orders") == ["a:20260301T120000Z", "a:20260303T120000Z"]


async def test_a_job_whose_calendar_was_withdrawn_is_set_aside_and_the_others_go_on(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": ["2026-12-25"]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    stage.put(job("b", cron("0 12 * * *")))
    await stage.run_until_idle()
    stage.configure(HOLIDAYS, None)
    await stage.advance(DAY_MS)
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.state is JobState.QUARANTINED
    assert "holidays" in str(cursor.reason)
    assert stage.run_ids("orders") == ["b:20260301T120000Z"]
    stage.configure(HOLIDAYS, {"dates": ["2026-12-25"]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    await stage.advance(DAY_MS)
    assert sorted(stage.run_ids("orders")[1:]) == ["a:20260302T120000Z", "b:20260302T120000Z"]


async def test_a_run_under_way_ends_although_its_calendar_was_withdrawn(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.configure(HOLIDAYS, {"dates": ["2026-12-25"]})
    stage.put(job("a", cron("0 12 * * *"), to="elsewhere", calendar={"exclude": ["holidays"]}))
    await stage.advance(DAY_MS // 2)
    stage.configure(HOLIDAYS, None)
    await stage.send()
    assert history(stage, "a") == [(12 * 3600, "succeeded")]
    assert stage.leases() == {}


async def test_a_change_moves_the_jobs_that_use_the_calendar_and_no_others(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": []})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    stage.put(job("b", cron("0 12 * * *")))
    stage.put(job("c", every("PT1H", anchor_ms=START_MS), calendar={"exclude": ["holidays"]}))
    await stage.run_until_idle()
    before = {name: stage.cursor(name) for name in "abc"}
    stage.configure(HOLIDAYS, {"dates": ["2026-03-01"]})
    await stage.run_until_idle()
    dues = {name: cursor.due_ms for name in "abc" if (cursor := stage.cursor(name)) is not None}
    assert dues == {"a": START_MS + 36 * HOUR_MS, "b": START_MS + 12 * HOUR_MS, "c": START_MS + 24 * HOUR_MS}
    assert sum(each.slot.counts["moved_by_review"] for each in stage.slots) == 2
    stage.configure(HOLIDAYS, {"dates": []})
    await stage.run_until_idle()
    assert [stage.cursor(name).due_ms for name in "ab"] == [before[name].due_ms for name in "ab"]  # type: ignore[union-attr]


async def test_a_change_is_noticed_by_an_owner_that_was_away(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": []})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    await stage.run_until_idle()
    stage.configure(HOLIDAYS, {"dates": ["2026-03-01"]}, unnoticed=True)
    await stage.crash(from_log_alone=True)
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.due_ms == START_MS + 36 * HOUR_MS


async def test_days_that_are_let_in_again_are_not_made_up_for(stage: MemoryStage) -> None:
    stage.configure(HOLIDAYS, {"dates": ["2026-03-01"]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
    await stage.advance(13 * HOUR_MS)
    stage.configure(HOLIDAYS, {"dates": []})
    await stage.advance(HOUR_MS)
    assert stage.executions("a") == []
    await stage.advance(24 * HOUR_MS)
    assert history(stage, "a") == [(36 * 3600.0, "succeeded")]


async def test_a_job_whose_calendar_has_no_more_days_waits_for_some(stage: MemoryStage) -> None:
    stage.configure("calendar/paydays", {"dates": ["2026-03-01"]})
    stage.put(job("a", cron("0 12 * * *"), calendar={"include": ["paydays"]}))
    await stage.advance(3 * DAY_MS)
    cursor = stage.cursor("a")
    assert cursor is not None
    assert (cursor.state, cursor.due_ms, cursor.reason) == (JobState.ACTIVE, None, "its calendars have no more days")
    stage.put(job("b", cron("0 12 * * *"), calendar={"include": ["paydays"]}))
    await stage.run_until_idle()
    stage.configure("calendar/paydays", {"dates": ["2026-03-01", "2026-03-06"]})
    await stage.advance(3 * DAY_MS)
    for name in "ab":
        assert history(stage, name)[-1] == (5.5 * 86_400, "succeeded")
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.state is JobState.ACTIVE
