"""Definitions as they are created, updated, paused, deleted and created again."""

from __future__ import annotations

import pytest
from tests.actors.lines import DAY_MS, HOUR_MS, MINUTE_MS, dues_s, history, reasons

from noontide.core.cursor import Cursor, JobState
from noontide.testing.builders import after_completion, cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS


def _cursor(stage: MemoryStage, job_id: str = "a") -> Cursor:
    found = stage.cursor(job_id)
    assert found is not None
    return found


async def test_an_interval_counts_from_the_creation(stage: MemoryStage) -> None:
    await stage.advance(1_234)
    stage.put(job("a", every("PT10S")))
    await stage.advance(19_999)
    assert dues_s(stage) == [11.234]
    await stage.advance(1)
    assert dues_s(stage) == [11.234, 21.234]


async def test_it_fires_at_the_instant_and_not_one_ms_before(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS + 10_000)))
    await stage.advance(9_999)
    assert dues_s(stage) == []
    await stage.advance(1)
    assert dues_s(stage) == [10]


async def test_each_update_has_an_etag_of_its_own(stage: MemoryStage) -> None:
    first, second = stage.put(job("a", every("PT10S"))), stage.put(job("a", every("PT20S")))
    await stage.run_until_idle()
    partition = stage.layout.partition_of("a")
    etags = [dict(record.headers)["etag"].decode() for record in stage.records("noontide.jobs")]
    assert etags == [f"api-{partition}-{first}", f"api-{partition}-{second}"]


async def test_an_update_that_leaves_the_schedule_alone_keeps_next_due(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), payload=1))
    await stage.advance(15_000)
    stage.put(job("a", every("PT10S"), payload=2, note="new"))
    await stage.advance(5_000)
    assert dues_s(stage) == [10, 20]
    assert [record.value for record in stage.delivered("orders")] == [b"1", b"2"]


async def test_an_update_that_changes_the_schedule_starts_from_now(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S")))
    await stage.advance(15_000)
    stage.put(job("a", every("PT1M")))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10, 75]


async def test_an_update_just_before_the_due_time_fires_it_once(stage: MemoryStage) -> None:
    """The request and the occurrence meet in one cycle: appended before it was due, decided after."""
    stage.put(job("a", every("PT10S"), payload=1))
    await stage.advance(9_999)
    stage.put(job("a", every("PT10S"), payload=2))
    await stage.jump(1)
    assert stage.run_ids("orders") == ["a:20260301T000010Z"]
    assert [record.value for record in stage.delivered("orders")] == [b"2"]
    await stage.advance(10_000)
    assert dues_s(stage) == [10, 20]


async def test_an_update_at_the_due_time_leaves_that_occurrence_to_the_old_definition(stage: MemoryStage) -> None:
    """Case rac-09, at the instant."""
    stage.put(job("a", every("PT10S"), payload=1))
    await stage.run_until_idle()
    stage.clock.advance(10_000)
    stage.put(job("a", every("PT1M"), payload=2))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10, 70]
    assert [record.value for record in stage.delivered("orders")] == [b"1", b"2"]


async def test_a_claimed_run_keeps_its_definition(stage: MemoryStage) -> None:
    """Case rac-09: claimed and waiting, then everything changes."""
    stage.sicken("orders")
    stage.put(job("a", every("PT10S"), payload="old"))
    await stage.advance(10_000)
    stage.put(job("a", every("PT1M"), payload="new", to="elsewhere"))
    await stage.run_until_idle()
    await stage.crash(from_log_alone=True)
    stage.heal("orders")
    await stage.advance(MINUTE_MS)
    assert [record.value for record in stage.delivered("orders")] == [b'"old"']
    assert [record.value for record in stage.delivered("elsewhere")] == [b'"new"']


def _spread(stage: MemoryStage, job_id: str = "a") -> int:
    cursor = _cursor(stage, job_id)
    assert cursor.start_ms is not None
    assert cursor.due_ms is not None
    return cursor.start_ms - cursor.due_ms


async def test_an_update_in_the_spread_window_loses_nothing(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H"), timing="relaxed", payload="old"))
    await stage.run_until_idle()
    spread_ms = _spread(stage)
    assert spread_ms > 2
    await stage.advance(HOUR_MS + 1)
    stage.put(job("a", every("PT2H"), timing="relaxed", payload="new"))
    await stage.advance(spread_ms - 2)
    assert dues_s(stage) == []
    (waiting,) = stage.leases().values()
    assert (waiting.run_id, waiting.reason) == ("a:20260301T010000Z", "waits for its spread start")
    await stage.advance(1)
    assert dues_s(stage) == [3600]
    assert [record.value for record in stage.delivered("orders")] == [b'"old"']
    assert stage.executions("a")[0]["late_ms"] == 0
    assert _cursor(stage).due_ms == START_MS + HOUR_MS + 1 + 2 * HOUR_MS


async def test_a_spread_start_that_finds_the_topic_sick_waits_quietly(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H"), timing="relaxed"))
    await stage.run_until_idle()
    spread_ms = _spread(stage)
    await stage.advance(HOUR_MS + 1)
    stage.put(job("a", every("PT2H"), timing="relaxed"))
    stage.sicken("orders")
    await stage.advance(spread_ms)
    (waiting,) = stage.leases().values()
    assert waiting.reason == "topic orders: the topic is sick"
    stage.heal("orders")
    await stage.run_until_idle()
    assert dues_s(stage) == [3600]


async def test_a_delete_in_the_spread_window_cancels_that_occurrence(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H"), timing="relaxed"))
    await stage.advance(HOUR_MS + 1)
    stage.delete("a")
    await stage.advance(2 * HOUR_MS)
    assert stage.delivered("orders") == []
    (line,) = stage.executions("a")
    assert (line["state"], line["reason"]) == ("cancelled", "the job was deleted")


async def test_relaxed_jobs_are_spread_and_keep_their_nominal_time(stage: MemoryStage) -> None:
    """Case cap-03."""
    for number in range(200):
        stage.put(job(f"j{number}", cron("0 * * * *"), timing={"window_sec": 150}))
    await stage.advance(HOUR_MS + 149_999)
    lines = stage.executions()
    assert len(lines) == 200
    assert {line["due"] for line in lines} == {"2026-03-01T01:00:00.000Z"}
    starts = {_spread(stage, f"j{number}") for number in range(200)}
    assert min(starts) >= 0
    assert max(starts) < 150_000
    assert len(starts) > 150
    assert {_cursor(stage, f"j{number}").due_ms for number in range(200)} == {START_MS + 2 * HOUR_MS}
    assert all(line["late_ms"] == 0 for line in lines)
    before = {f"j{number}": _spread(stage, f"j{number}") for number in range(200)}
    await stage.crash(from_log_alone=True)
    await stage.advance(HOUR_MS)
    assert {f"j{number}": _spread(stage, f"j{number}") for number in range(200)} == before
    assert len(stage.executions()) == 400


@pytest.mark.parametrize("rule", ["skip", "run_once", "run_all"])
async def test_times_during_a_pause_are_not_missed(stage: MemoryStage, rule: str) -> None:
    """Case mis-04."""
    definition = job("a", cron("0 * * * *"), misfire=rule)
    stage.put(definition)
    await stage.advance(55 * MINUTE_MS)
    stage.put({**definition, "paused": True, "note": "maintenance"})
    await stage.run_until_idle()
    assert (_cursor(stage).state, _cursor(stage).reason) == (JobState.PAUSED, "maintenance")
    await stage.crash(from_log_alone=True)
    await stage.advance(HOUR_MS)
    stage.put({**definition, "paused": False})
    await stage.advance(5 * MINUTE_MS - 1)
    await stage.crash(from_log_alone=True)
    assert stage.executions("a") == []
    await stage.advance(1)
    assert history(stage, "a") == [(7200, "succeeded")]


@pytest.mark.parametrize("request_kind", ["pause", "delete"])
async def test_a_late_request_settles_what_came_before_it_and_no_more(stage: MemoryStage, request_kind: str) -> None:
    """The scheduler was away from 00:30 to 05:30; somebody paused or deleted the job at 02:30."""
    definition = job("a", cron("0 * * * *"), misfire="run_once")
    stage.put(definition)
    await stage.advance(30 * MINUTE_MS)
    stage.clock.advance(2 * HOUR_MS)
    stage.put({**definition, "paused": True}) if request_kind == "pause" else stage.delete("a")
    stage.clock.advance(3 * HOUR_MS)
    await stage.crash()
    assert history(stage, "a") == [(3600, "coalesced"), (7200, "succeeded")]


@pytest.mark.parametrize("request_kind", ["pause", "change", "delete"])
async def test_occurrences_left_behind_by_a_request_are_recorded(stage: MemoryStage, request_kind: str) -> None:
    stage.holds_sends = True
    definition = job("a", every("PT10S"), to="elsewhere", misfire="run_all", grace="PT1S")
    stage.put(definition)
    await stage.advance(10_000)
    await stage.jump(35_000)
    match request_kind:
        case "pause":
            stage.put({**definition, "paused": True})
        case "change":
            stage.put({**definition, "schedule": {"every": "PT1H"}})
        case _:
            stage.delete("a")
    await stage.run_until_idle()
    (line,) = stage.executions("a")
    assert (line["state"], line["count"], line["due"]) == ("skipped", 3, "2026-03-01T00:00:20.000Z")
    assert line["until"] == "2026-03-01T00:00:40.000Z"
    assert "before it could run" in str(line["reason"])
    await stage.send()
    assert history(stage, "a")[1:] == [(10, "succeeded")]


async def test_a_pause_outlives_the_end_of_a_one_off(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS + 10_000), paused=True))
    await stage.advance(20_000)
    stage.put(job("a", once(START_MS + 10_000)))
    await stage.advance(HOUR_MS)
    assert stage.executions("a") == []
    assert _cursor(stage).state is JobState.COMPLETED


async def test_resumed_before_its_time_a_one_off_runs(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS + 10_000), paused=True))
    await stage.advance(5_000)
    stage.put(job("a", once(START_MS + 10_000)))
    await stage.advance(10_000)
    assert dues_s(stage) == [10]


async def test_delete_stops_it_and_leaves_a_marker(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S")))
    await stage.advance(10_000)
    stage.delete("a")
    await stage.advance(HOUR_MS)
    assert dues_s(stage) == [10]
    assert stage.jobs() == {}
    assert _cursor(stage).state is JobState.DELETED
    until_ms = START_MS + 10_000 + stage.settings.marker_retention_ms
    await stage.advance(until_ms - 1 - stage.clock.now_ms())
    assert stage.cursor("a") is not None
    await stage.advance(1)
    assert stage.cursor("a") is None


async def test_delete_of_nobody_is_refused(stage: MemoryStage) -> None:
    stage.delete("nobody")
    await stage.run_until_idle()
    assert reasons(stage) == ["(document): there is no job 'nobody'"]


async def test_a_second_delete_is_refused(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S")))
    stage.delete("a")
    stage.delete("a")
    await stage.run_until_idle()
    assert len(reasons(stage)) == 1


async def test_delete_cancels_what_waits_and_lets_finish_what_is_under_way(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.holds_sends = True
    stage.put(job("waits", once(START_MS + 10_000)))
    stage.put(job("moves", once(START_MS + 10_000), to="elsewhere"))
    await stage.advance(10_000)
    stage.delete("waits")
    stage.delete("moves")
    await stage.run_until_idle()
    await stage.send()
    assert history(stage, "waits") == [(10, "cancelled")]
    assert history(stage, "moves") == [(10, "succeeded")]
    assert stage.leases() == {}


@pytest.mark.parametrize("rule", ["skip", "run_once", "run_all"])
async def test_created_again_it_starts_anew(stage: MemoryStage, rule: str) -> None:
    """Case mis-06."""
    stage.put(job("a", every("PT60S"), misfire=rule))
    await stage.advance(90_000)
    stage.delete("a")
    await stage.advance(2 * HOUR_MS)
    stage.put(job("a", every("PT60S"), misfire=rule))
    await stage.advance(MINUTE_MS)
    assert stage.run_ids("orders") == ["a:20260301T000100Z", "a:20260301T020230Z~2"]
    assert (_cursor(stage).generation, _cursor(stage).runs) == (2, 1)


async def test_the_same_one_off_created_again_runs_again_under_another_id(stage: MemoryStage) -> None:
    for _ in range(3):
        stage.put(job("a", once(START_MS)))
        await stage.run_until_idle()
        stage.delete("a")
    await stage.run_until_idle()
    assert stage.run_ids("orders") == ["a:20260301T000000Z", "a:20260301T000000Z~2", "a:20260301T000000Z~3"]


async def test_deleted_and_created_again_in_one_cycle(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), payload=1))
    await stage.run_until_idle()
    stage.delete("a")
    stage.put(job("a", every("PT10S"), payload=2))
    await stage.jump(10_000)
    assert stage.run_ids("orders") == ["a:20260301T000010Z~2"]


async def test_max_runs_ends_it(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), max_runs=3))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10, 20, 30]
    assert (_cursor(stage).state, _cursor(stage).runs) == (JobState.COMPLETED, 3)


async def test_skipped_ones_do_not_count_towards_max_runs(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", every("PT10S"), to="elsewhere", max_runs=2))
    await stage.advance(25_000)
    await stage.send()
    await stage.advance(30_000)
    await stage.send()
    assert dues_s(stage, "elsewhere") == [10, 30]


async def test_a_pause_gives_no_runs_beyond_max_runs(stage: MemoryStage) -> None:
    definition = job("a", every("PT10S"), max_runs=1)
    stage.put(definition)
    await stage.advance(10_000)
    stage.put({**definition, "paused": True})
    stage.put(definition)
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10]
    assert _cursor(stage).state is JobState.COMPLETED


async def test_another_schedule_gives_no_runs_beyond_max_runs(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), max_runs=1))
    await stage.advance(10_000)
    stage.put(job("a", every("PT20S"), max_runs=1))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10]


async def test_a_greater_max_runs_goes_on(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), max_runs=1))
    await stage.advance(15_000)
    stage.put(job("a", every("PT10S"), max_runs=3))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10, 20, 30]


@pytest.mark.parametrize("change", [{"ends_at": "2027-01-01T00:00:00Z"}, {"max_runs": 5}])
async def test_a_one_off_that_ran_does_not_run_again_after_an_update(
    stage: MemoryStage, change: dict[str, object]
) -> None:
    stage.put(job("a", once(START_MS + 10_000)))
    await stage.advance(15_000)
    stage.put({**job("a", once(START_MS + 10_000)), **change})
    await stage.advance(MINUTE_MS)
    assert stage.run_ids("orders") == ["a:20260301T000010Z"]


async def test_a_one_off_is_not_brought_back_behind_what_has_run(stage: MemoryStage) -> None:
    for at_ms in (5_000, 10_000, 5_000, 10_000):
        stage.put(job("a", once(START_MS + at_ms)))
        await stage.jump(10_000)
    assert stage.run_ids("orders") == ["a:20260301T000005Z", "a:20260301T000010Z"]
    assert _cursor(stage).state is JobState.COMPLETED


async def test_a_one_off_that_is_moved_runs_at_its_new_time(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS + 10_000)))
    await stage.advance(15_000)
    stage.put(job("a", once(START_MS + 30_000)))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10, 30]


async def test_starts_and_ends_are_both_included(stage: MemoryStage) -> None:
    bounds = {"starts_at": "2026-03-01T00:00:20Z", "ends_at": "2026-03-01T00:00:40Z"}
    stage.put(job("a", every("PT10S", anchor_ms=START_MS), **bounds))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [20, 30, 40]
    assert _cursor(stage).state is JobState.COMPLETED


async def test_an_end_one_ms_earlier_excludes_it(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S", anchor_ms=START_MS), ends_at="2026-03-01T00:00:39.999Z"))
    await stage.advance(MINUTE_MS)
    assert dues_s(stage) == [10, 20, 30]


async def test_a_schedule_without_a_future_is_completed(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S"), ends_at="2026-02-01T00:00:00Z"))
    await stage.run_until_idle()
    assert _cursor(stage).state is JobState.COMPLETED
    assert stage.rejected() == []


async def test_completed_jobs_stay_for_their_retention(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS)))
    await stage.advance(DAY_MS - 1)
    assert list(stage.jobs()) == ["a"]
    await stage.advance(1)
    assert stage.jobs() == {}
    assert stage.cursor("a") is None
    tombstone = stage.records("noontide.jobs")[-1]
    assert (tombstone.value, dict(tombstone.headers)) == (None, {"reason": b"completed"})
    assert len(stage.executions("a")) == 1


async def test_an_update_keeps_a_completed_job_from_being_removed_only_if_it_has_a_future(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS)))
    await stage.advance(DAY_MS - 1_000)
    stage.put(job("a", once(START_MS + DAY_MS)))
    await stage.advance(2_000)
    assert dues_s(stage) == [0, 86400]
    assert list(stage.jobs()) == ["a"]


async def test_after_completion_counts_from_the_end_of_the_run(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", after_completion("PT10S"), to="elsewhere"))
    await stage.advance(13_000)
    assert _cursor(stage).due_ms is None
    await stage.send()
    await stage.advance(10_000)
    await stage.send()
    assert dues_s(stage, "elsewhere") == [10, 23]
    assert _cursor(stage).due_ms == START_MS + 33_000


async def test_after_completion_on_a_healthy_topic(stage: MemoryStage) -> None:
    stage.put(job("a", after_completion("PT10S")))
    await stage.advance(35_000)
    assert dues_s(stage) == [10, 20, 30]


async def test_after_completion_goes_on_when_its_topic_recovers(stage: MemoryStage) -> None:
    stage.put(job("a", after_completion("PT10S")))
    stage.sicken("orders")
    await stage.advance(15_000)
    stage.heal("orders")
    await stage.advance(20_000)
    assert dues_s(stage) == [10, 25, 35]


@pytest.mark.parametrize("rule, expected", [("skip", [3670]), ("run_once", [10, 3670])])
async def test_after_completion_goes_on_after_an_outage(stage: MemoryStage, rule: str, expected: list[int]) -> None:
    stage.put(job("a", after_completion("PT10S"), misfire=rule, grace="PT10S"))
    await stage.run_until_idle()
    await stage.jump(HOUR_MS + MINUTE_MS)
    await stage.advance(10_000)
    assert dues_s(stage) == expected


async def test_after_completion_waits_for_runs_by_hand_too(stage: MemoryStage) -> None:
    stage.holds_sends = True
    stage.put(job("a", after_completion("PT10S"), to="elsewhere"))
    stage.trigger("a")
    await stage.advance(11_000)
    assert history(stage, "a") == [(10, "skipped")]
    await stage.send()
    await stage.advance(10_000)
    await stage.send()
    assert dues_s(stage, "elsewhere") == [0, 21]


async def test_nothing_happens_at_once_to_a_job_of_next_year(stage: MemoryStage) -> None:
    """Case int-08."""
    stage.put(job("a", cron("0 0 1 1 *")))
    await stage.advance(HOUR_MS)
    assert stage.executions() == []
    assert _cursor(stage).due_ms == 1_798_761_600_000  # 2027-01-01T00:00:00Z
    assert await stage.run_until_idle() == 0


async def test_a_job_of_midnight_is_not_looked_at_again_and_again_in_the_afternoon(stage: MemoryStage) -> None:
    """Case cap-04: five minutes from 16:20 on."""
    stage.put(job("a", cron("0 0 * * *"), timezone="UTC"))
    await stage.advance(16 * HOUR_MS + 20 * MINUTE_MS)
    cycles = stage.slots[0].slot.cycle_number
    await stage.advance(5 * MINUTE_MS)
    assert stage.executions() == []
    assert stage.slots[0].slot.cycle_number == cycles
    await stage.advance(DAY_MS - 16 * HOUR_MS - 25 * MINUTE_MS)
    assert stage.run_ids("orders") == ["a:20260302T000000Z"]


async def test_it_never_starts_before_its_time() -> None:
    """Case clk-08: 70 ms short of a leap second's midnight."""
    async with MemoryStage(start_ms=1_483_228_799_070 - 930) as stage:
        stage.register("orders")
        stage.put(job("a", cron("0 0 1 * *")))
        await stage.advance(1_859)
        assert stage.executions() == []
        await stage.advance(1)
        assert stage.run_ids("orders") == ["a:20170101T000000Z"]
        assert stage.executions()[0]["claimed_at"] == "2017-01-01T00:00:00.000Z"
