"""Late occurrences: within the grace an ordinary run, beyond it the job's rule."""

from __future__ import annotations

import pytest
from tests.actors.lines import HOUR_MS, MINUTE_MS, after_start_s, dues_s, history

from noontide.actors.settings import SchedulerSettings
from noontide.core.cursor import JobState
from noontide.testing.builders import cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

RULES = ("skip", "run_once", "run_all")


async def _away(stage: MemoryStage, duration_ms: int) -> None:
    """The scheduler is down for a while."""
    stage.clock.advance(duration_ms)
    await stage.crash()


@pytest.mark.parametrize("rule", RULES)
async def test_one_ms_before_the_grace_ends_it_is_an_ordinary_run(stage: MemoryStage, rule: str) -> None:
    stage.put(job("a", every("PT1H"), misfire=rule, grace="PT60S"))
    await stage.run_until_idle()
    await _away(stage, HOUR_MS + 59_999)
    assert history(stage, "a") == [(3600, "succeeded")]


@pytest.mark.parametrize("rule", RULES)
async def test_at_the_grace_it_is_an_ordinary_run(stage: MemoryStage, rule: str) -> None:
    stage.put(job("a", every("PT1H"), misfire=rule, grace="PT60S"))
    await stage.run_until_idle()
    await _away(stage, HOUR_MS + 60_000)
    assert history(stage, "a") == [(3600, "succeeded")]


@pytest.mark.parametrize("rule, expected", [("skip", "missed"), ("run_once", "succeeded"), ("run_all", "succeeded")])
async def test_one_ms_after_the_grace_the_rule_decides(stage: MemoryStage, rule: str, expected: str) -> None:
    stage.put(job("a", every("PT1H"), misfire=rule, grace="PT60S"))
    await stage.run_until_idle()
    await _away(stage, HOUR_MS + 60_001)
    assert history(stage, "a") == [(3600, expected)]
    assert stage.cursor("a").due_ms == START_MS + 2 * HOUR_MS  # type: ignore[union-attr]


async def test_lateness_counts_from_the_spread_start(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H"), timing="relaxed", misfire="skip", grace="PT1S"))
    await stage.run_until_idle()
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.start_ms is not None
    assert cursor.due_ms == START_MS + HOUR_MS
    assert cursor.start_ms > START_MS + HOUR_MS + 1_000
    await _away(stage, cursor.start_ms + 1_000 - START_MS)
    assert history(stage, "a") == [(3600, "succeeded")]


@pytest.mark.parametrize(
    "rule, grace, after_it",
    [
        ("skip", "PT10S", []),
        ("skip", "PT60S", [7200]),  # thirty seconds late is within the grace
        ("run_once", "PT10S", [7200]),
        ("run_once", "PT60S", [7200]),
        ("run_all", "PT10S", [60 * minute for minute in range(1, 121)]),
        ("run_all", "PT60S", [60 * minute for minute in range(1, 121)]),
    ],
)
async def test_two_hours_down(stage: MemoryStage, rule: str, grace: str, after_it: list[int]) -> None:
    """Case mis-01."""
    await stage.advance(30_000)
    stage.put(job("a", cron("* * * * *"), misfire=rule, grace=grace))
    await stage.run_until_idle()
    await _away(stage, 120 * MINUTE_MS)
    assert dues_s(stage) == after_it
    await stage.advance(30_000)
    assert dues_s(stage) == [*after_it, 7260]


async def test_coalesced_occurrences_are_one_line_with_a_range(stage: MemoryStage) -> None:
    stage.put(job("a", cron("* * * * *"), misfire="run_once", grace="PT10S"))
    await stage.run_until_idle()
    await _away(stage, 5 * MINUTE_MS + 30_000)
    coalesced, ran = stage.executions("a")
    assert (coalesced["state"], coalesced["count"]) == ("coalesced", 4)
    assert (after_start_s(coalesced["due"]), after_start_s(coalesced["until"])) == (60, 240)
    assert coalesced["run_id"] == "a:20260301T000100Z"
    assert "run_once" in str(coalesced["reason"])
    assert (ran["state"], ran["run_id"]) == ("succeeded", "a:20260301T000500Z")
    assert stage.cursor("a").runs == 1  # type: ignore[union-attr]


async def test_a_single_missed_one_has_no_range(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H"), misfire="skip", grace="PT1S"))
    await stage.run_until_idle()
    await _away(stage, HOUR_MS + MINUTE_MS)
    (missed,) = stage.executions("a")
    assert missed["state"] == "missed"
    assert "until" not in missed
    assert "count" not in missed


@pytest.mark.parametrize("rule, expected", [("skip", []), ("run_once", [90]), ("run_all", [30, 45, 60, 75, 90])])
async def test_a_storm_of_five(rule: str, expected: list[int]) -> None:
    """Case mis-05: anchor 12:40:21, down from :50 to 12:41:55, so 12:40:51 .. 12:41:51 are missed."""
    anchor_ms = START_MS
    async with MemoryStage(start_ms=anchor_ms + 29_000) as stage:
        stage.register("orders")
        stage.put(job("a", every("PT15S", anchor_ms=anchor_ms), misfire=rule, grace="PT3S"))
        await stage.run_until_idle()
        await _away(stage, 65_000)
        assert dues_s(stage) == expected
        await stage.advance(11_000)
        assert dues_s(stage) == [*expected, 105]


async def test_run_all_drops_the_oldest_beyond_its_maximum(stage: MemoryStage) -> None:
    stage.put(job("a", cron("* * * * *"), misfire="run_all", run_all_max=3, grace="PT10S"))
    await stage.run_until_idle()
    await _away(stage, 8 * MINUTE_MS + 30_000)
    dropped, *ran = stage.executions("a")
    assert (dropped["state"], dropped["count"], after_start_s(dropped["due"])) == ("dropped", 5, 60)
    assert after_start_s(dropped["until"]) == 300
    assert dues_s(stage) == [360, 420, 480]
    assert [line["state"] for line in ran] == ["succeeded"] * 3


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_run_all_goes_one_after_the_other(stage: MemoryStage, overlap: str) -> None:
    """Case mis-08: runs that take their time are neither concurrent nor lost."""
    stage.holds_sends = True
    stage.put(job("a", cron("* * * * *"), to="elsewhere", misfire="run_all", overlap=overlap, grace="PT10S"))
    await stage.run_until_idle()
    await _away(stage, 5 * MINUTE_MS + 30_000)
    for _ in range(60):
        assert len(stage.slots[0].under_way) <= 1
        if not stage.slots[0].under_way:
            break
        await stage.advance(1_500)
        await stage.send()
        await stage.advance(1_000)
    assert dues_s(stage, "elsewhere")[:5] == [60, 120, 180, 240, 300]
    assert [state for _, state in history(stage, "a")][:5] == ["succeeded"] * 5


async def test_a_catch_up_that_waits_remembers_what_it_has_done(stage: MemoryStage) -> None:
    """Else a review of the schedules would begin again where the definition was accepted."""
    stage.holds_sends = True
    stage.put(job("a", cron("* * * * *"), to="elsewhere", misfire="run_all", grace="PT10S"))
    await stage.run_until_idle()
    await _away(stage, 5 * MINUTE_MS + 30_000)
    cursor = stage.cursor("a")
    assert cursor is not None
    assert (cursor.due_ms, cursor.runs) == (START_MS + 2 * MINUTE_MS, 1)
    assert cursor.start_ms is not None
    assert cursor.start_ms > stage.clock.now_ms()  # it waits for the first run
    assert cursor.last_due_ms == START_MS + 2 * MINUTE_MS - 1  # everything before what it waits with


async def test_run_all_goes_all_at_once_when_overlap_is_allowed(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", cron("* * * * *"), to="elsewhere", misfire="run_all", overlap="allow", grace="PT10S"))
    await stage.run_until_idle()
    await _away(stage, 5 * MINUTE_MS + 30_000)
    assert len(stage.slots[0].under_way) == 5
    await stage.send()
    assert dues_s(stage, "elsewhere") == [60, 120, 180, 240, 300]


@pytest.mark.parametrize(
    "rule, expected",
    [
        ("skip", [(60, "missed", 4), (300, "missed", 4), (540, "missed", 2)]),
        ("run_once", [(60, "coalesced", 4), (300, "coalesced", 4), (540, "coalesced", 1), (600, "succeeded", 1)]),
    ],
)
async def test_a_long_backlog_is_walked_in_steps(rule: str, expected: list[tuple[int, str, int]]) -> None:
    async with MemoryStage(settings=SchedulerSettings(missed_walk_max=4)) as stage:
        stage.register("orders")
        stage.put(job("a", cron("* * * * *"), misfire=rule, grace="PT10S"))
        await stage.run_until_idle()
        await _away(stage, 10 * MINUTE_MS + 30_000)
        found = [(after_start_s(e["due"]), e["state"], e.get("count", 1)) for e in stage.executions("a")]
        assert found == expected


@pytest.mark.parametrize("run_all_max", [2, 4, 5])
async def test_run_all_keeps_its_maximum_however_far_one_step_looks(run_all_max: int) -> None:
    async with MemoryStage(settings=SchedulerSettings(missed_walk_max=4)) as stage:
        stage.register("orders")
        stage.put(job("a", cron("* * * * *"), misfire="run_all", run_all_max=run_all_max, grace="PT10S"))
        await stage.run_until_idle()
        await _away(stage, 9 * MINUTE_MS + 30_000)
        assert dues_s(stage) == [60 * minute for minute in range(10 - run_all_max, 10)]
        dropped = [line for line in stage.executions("a") if line["state"] == "dropped"]
        assert sum(int(str(line.get("count", 1))) for line in dropped) == 9 - run_all_max


async def test_restart_while_due(stage: MemoryStage) -> None:
    """Case mis-13: down from 11:30 to 13:30."""
    stage.put(job("a", cron("30 12 * * *"), misfire="run_once"))
    await stage.advance(11 * HOUR_MS + 30 * MINUTE_MS)
    await _away(stage, 2 * HOUR_MS)
    assert stage.run_ids("orders") == ["a:20260301T123000Z"]
    await stage.advance(4 * HOUR_MS)
    assert len(stage.delivered("orders")) == 1


@pytest.mark.parametrize("rule, expected", [("run_once", "succeeded"), ("run_all", "succeeded"), ("skip", "missed")])
async def test_a_one_off_in_the_past(stage: MemoryStage, rule: str, expected: str) -> None:
    """Case mis-09: at once or missed, and never again."""
    stage.put(job("a", once(START_MS - 1_000), misfire=rule, grace_sec=0.5))
    await stage.run_until_idle()
    assert history(stage, "a") == [(-1, expected)]
    assert stage.cursor("a").state is JobState.COMPLETED  # type: ignore[union-attr]
    await stage.crash()
    await stage.crash(from_log_alone=True)
    await stage.advance(HOUR_MS)
    assert len(stage.executions("a")) == 1


async def test_a_one_off_before_1970_runs_at_once(stage: MemoryStage) -> None:
    stage.put(job("a", {"at": "1960-01-01T00:00:00Z"}))
    await stage.run_until_idle()
    assert stage.run_ids("orders") == ["a:19600101T000000Z"]
    assert stage.cursor("a").state is JobState.COMPLETED  # type: ignore[union-attr]


async def test_nothing_fires_again_after_a_restart(stage: MemoryStage) -> None:
    """Case mis-10."""
    stage.put(job("a", once(START_MS + 5_000)))
    await stage.advance(6_000)
    for from_log_alone in (True, False, True):
        await stage.crash(from_log_alone=from_log_alone)
        await stage.advance(10_000)
    assert stage.run_ids("orders") == ["a:20260301T000005Z"]
