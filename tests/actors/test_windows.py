"""How much is offered to a lane, and in which order: windows, turns of tenants, priority, and the queue deadline."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.actors.lines import reasons
from tests.actors.workers import W1, beats, claims, denials, end, grants, handler, now, say

from noontide.actors.lane import Lane
from noontide.actors.settings import SchedulerSettings
from noontide.core.run import RunState
from noontide.records.topics import Layout
from noontide.records.worker_events import Outcome
from noontide.testing.builders import every, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

SMALL = SchedulerSettings(window_min=3, window_max=20)
ONE_PARTITION = Layout(partitions=1, slots=1)


def _stage(settings: SchedulerSettings = SMALL, layout: Layout = ONE_PARTITION) -> MemoryStage:
    return MemoryStage(layout=layout, settings=settings)


def _name(number: int) -> str:
    return f"j{number:03}:20260301T000000Z"


def _offered(stage: MemoryStage) -> list[str]:
    return [offer.job_id for offer in stage.invitations()]


async def _put(stage: MemoryStage, count: int, **fields: object) -> None:
    for number in range(count):
        stage.put(now(f"j{number:03}", **fields))
    await stage.run_until_idle()


async def test_a_silent_lane_is_offered_the_smallest_window() -> None:
    async with _stage() as stage:
        await _put(stage, 10)
        assert len(stage.invitations()) == 3
        states = Counter(run.state for run in stage.leases().values())
        assert states == {RunState.QUEUED: 3, RunState.PENDING: 7}
        assert {run.reason for run in stage.leases().values()} == {None, "ready in lane default"}


async def test_lanes_do_not_share_their_windows() -> None:
    async with _stage() as stage:
        await _put(stage, 5)
        for number in range(5):
            stage.put(now(f"b{number}", lane="bulk"))
        await stage.run_until_idle()
        assert (len(stage.invitations()), len(stage.invitations("bulk"))) == (3, 3)


async def test_nothing_is_offered_twice_to_a_lane_that_nobody_consumes() -> None:
    async with _stage() as stage:
        await _put(stage, 10, queue_deadline="PT1M")
        for _ in range(30):
            await stage.advance(60_000)
        assert len(stage.invitations()) == 3
        assert {run.state for run in stage.leases().values()} == {RunState.PENDING}


async def test_the_first_claim_opens_the_window_again() -> None:
    async with _stage() as stage:
        await _put(stage, 10, queue_deadline="PT1M")
        await stage.advance(180_000)
        assert len(stage.invitations()) == 3
        await say(stage, claims((_name(0), 1)))
        assert denials(stage) == [(_name(0), 1, "closed")]  # it went back to the queue; here it comes again
        assert len(stage.invitations()) >= 6
        await say(stage, claims((_name(0), 1)))
        assert grants(stage) == [(_name(0), 1, 1, 30_000)]


async def test_a_window_widens_with_claims_up_to_its_greatest() -> None:
    async with _stage() as stage:
        await _put(stage, 100)
        queued = []
        for _ in range(30):
            waiting = [run.run_id for run in stage.leases().values() if run.state is RunState.QUEUED]
            queued.append(len(waiting))
            await say(stage, claims(*((run_id, 1) for run_id in waiting)))
        assert queued[0] == 3
        assert sorted(queued[:4]) == queued[:4]
        assert max(queued) == 20


async def test_everything_is_done_however_small_the_window() -> None:
    async with _stage() as stage:
        crew = Crew(stage)
        crew.hire(W1, does=lambda _run: Work(100), capacity=2)
        await _put(stage, 30)
        await stage.advance(10_000)
        assert len(stage.results()) == 30
        assert stage.leases() == {}


async def test_a_lane_whose_workers_went_away_is_not_listening_any_more() -> None:
    async with _stage() as stage:
        crew = Crew(stage)
        worker = crew.hire(W1, does=lambda _run: Work(None))
        await _put(stage, 30, queue_deadline="PT1M", retry={"max_attempts": 100})
        await stage.run_until_idle()
        assert len(worker.held) == 30
        worker.kill()
        await stage.advance(600_000)
        offered = len(stage.invitations())
        await stage.advance(3_600_000)
        assert len(stage.invitations()) == offered
        assert offered <= 30 + stage.settings.window_max + stage.settings.window_min


async def test_a_lane_that_nobody_listened_to_for_long_is_served_when_its_offers_are_gone() -> None:
    """Invitations are kept for a day: after that there must be another one, or nobody could ever begin."""
    async with _stage() as stage:
        await _put(stage, 10, queue_deadline="PT1M")
        await stage.advance(180_000)
        crew = Crew(stage)
        assert len(crew.take(1_000)) == 3  # whatever was offered is not there any more
        stage.put(now("soon"))
        await stage.advance(24 * 3_600_000 - 600_000)
        assert crew.take(1_000) == []
        crew.hire(W1)
        await stage.advance(600_000)
        stage.put(now("late"))
        await stage.advance(60_000)
        assert len(stage.results()) == 12


# --- order


async def test_tenants_take_turns() -> None:
    async with _stage(SchedulerSettings(window_min=1)) as stage:
        stage.put(now("first"))
        await stage.run_until_idle()
        for number in range(6):
            stage.put(now(f"flood{number}", tenant="loud"))
        for number in range(2):
            stage.put(now(f"small{number}", tenant="quiet"))
        await stage.run_until_idle()
        crew = Crew(stage)
        crew.hire(W1, does=lambda _run: Work(1_000), capacity=1)
        await stage.advance(20_000)
        assert _offered(stage) == [
            "first", "flood0", "small0", "flood1", "small1", "flood2", "flood3", "flood4", "flood5"
        ]  # fmt: skip


async def test_within_a_tenant_the_higher_priority_goes_first_then_the_earlier() -> None:
    async with _stage(SchedulerSettings(window_min=1)) as stage:
        stage.put(now("first"))
        await stage.run_until_idle()
        for name, priority, at_ms in (("c", 1, 0), ("d", 5, 200), ("b", 5, 100), ("a", 9, 300), ("e", 0, 0)):
            stage.put(handler(name, once(START_MS + at_ms), priority=priority))
        await stage.advance(1_000)
        crew = Crew(stage)
        crew.hire(W1, does=lambda _run: Work(1_000), capacity=1)
        await stage.advance(20_000)
        assert _offered(stage) == ["first", "a", "b", "d", "c", "e"]


async def test_what_falls_due_does_not_overtake_the_queue() -> None:
    layout = Layout(partitions=2, slots=1)
    names = [f"n{number}" for number in range(20)]
    early = next(name for name in names if layout.partition_of(name.encode()) == 0)
    late = [name for name in names if layout.partition_of(name.encode()) == 1]
    async with _stage(SchedulerSettings(window_min=1), layout) as stage:
        stage.put(now(late[0]))
        await stage.run_until_idle()
        stage.put(now(late[1], priority=9))
        stage.put(handler(early, once(START_MS + 1_000), priority=0))
        await stage.run_until_idle()
        stage.clock.advance(1_000)
        stage.say(claims((f"{late[0]}:20260301T000000Z", 1)))
        await stage.slots[0].step()
        await stage.run_until_idle()
        assert _offered(stage)[:2] == [late[0], late[1]]


async def test_one_item_at_a_time_serves_the_queue_too() -> None:
    """After doubts a slot takes one item at a time; a run that is ready is one."""
    async with _stage(SchedulerSettings(window_min=1)) as stage:
        stage.put(now("a", retry={"max_attempts": 5}))
        await stage.run_until_idle()
        await say(stage, claims(("a:20260301T000000Z", 1)))
        stage.slots[0]._caution.limit = 1
        await stage.advance(32_000)
        assert [offer.attempt for offer in stage.invitations()] == [1, 2]


# --- the queue deadline


async def test_a_run_that_nobody_claims_comes_back_after_the_queue_deadline() -> None:
    async with _stage() as stage:
        await _put(stage, 1, queue_deadline="PT1M")
        await stage.advance(59_999)
        assert [run.state for run in stage.leases().values()] == [RunState.QUEUED]
        assert len(stage.invitations()) == 1
        await stage.advance(1_001)
        assert len(stage.invitations()) == 2
        assert {offer.attempt for offer in stage.invitations()} == {1}
        assert stage.slots[0].slot.counts["queue_expired"] == 1


async def test_only_one_of_two_who_took_the_same_run_gets_it() -> None:
    async with _stage() as stage:
        await _put(stage, 1, queue_deadline="PT1M")
        await stage.advance(62_000)
        await say(stage, claims((_name(0), 1), worker="w-old"), claims((_name(0), 1), worker="w-new"))
        assert (len(grants(stage, "w-old")), len(grants(stage, "w-new"))) == (1, 0)


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_a_claim_that_was_denied_is_not_granted_by_the_next_owner(from_log_alone: bool) -> None:
    """Its worker has dropped the run; at most once, it would be dead without ever having begun."""
    async with _stage(SchedulerSettings(window_min=1)) as stage:
        await _put(stage, 1, queue_deadline="PT1M", guarantee="at_most_once")
        await stage.advance(62_000)
        await say(stage, claims((_name(0), 1)))
        assert denials(stage) == [(_name(0), 1, "closed")]
        assert len(stage.invitations()) == 2
        await stage.crash(from_log_alone=from_log_alone)
        assert [run.state for run in stage.leases().values()] == [RunState.QUEUED]
        assert grants(stage) == []


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_what_is_offered_is_not_offered_again_by_a_new_owner(from_log_alone: bool) -> None:
    async with _stage() as stage:
        await _put(stage, 10)
        await stage.crash(from_log_alone=from_log_alone)
        await stage.advance(30_000)
        assert len(stage.invitations()) == 3
        await say(stage, claims((_name(0), 1), (_name(1), 1)))
        assert len(grants(stage)) == 2
        assert len(stage.invitations()) > 3


async def test_a_lane_that_nobody_configured_is_refused() -> None:
    async with _stage() as stage:
        stage.put(now("a", lane="nowhere"))
        await stage.run_until_idle()
        assert reasons(stage) == ["/lane: no lane is called 'nowhere'"]
        stage.configure("lane/nowhere", {})
        stage.put(now("a", lane="nowhere"))
        await stage.run_until_idle()
        assert "a" in stage.jobs()


async def test_a_lane_without_a_topic_stops_nobody_and_goes_on_when_there_is_one() -> None:
    async with _stage() as stage:
        stage.configure("lane/nowhere", {})
        stage.put(now("a", lane="nowhere"))
        await stage.run_until_idle()
        await _put(stage, 1)
        assert [offer.job_id for offer in stage.invitations()] == ["j000"]
        assert stage.leases()["a:20260301T000000Z"].reason == "ready in lane nowhere"
        stage.create_topic("noontide.runs.nowhere")
        stage.inspector.inspect()
        stage.put(now("b"))
        await stage.run_until_idle()
        assert len(stage.invitations("nowhere")) == 1


async def test_a_sick_lane_holds_up_neither_the_slot_nor_other_lanes() -> None:
    async with _stage() as stage:
        stage.sicken("noontide.runs.bulk", noticed=False)
        stage.put(now("a", lane="bulk"))
        await _put(stage, 2)
        assert len(stage.invitations()) == 2
        stage.heal("noontide.runs.bulk")
        await stage.advance(60_000)
        stage.put(now("b"))
        await stage.run_until_idle()
        assert len(stage.invitations("bulk")) == 1


async def test_a_handed_back_run_comes_again_and_costs_nothing() -> None:
    async with _stage() as stage:
        await _put(stage, 1, retry={"max_attempts": 1})
        for token in range(1, 6):
            await say(stage, claims((_name(0), 1)), end(_name(0), token, Outcome.HANDED_BACK))
        assert {offer.attempt for offer in stage.invitations()} == {1}
        assert [grant[2] for grant in grants(stage)] == [1, 2, 3, 4, 5]
        await say(stage, claims((_name(0), 1)), end(_name(0), 6))
        (line,) = stage.executions()
        assert (line["state"], line["attempt"], line["token"]) == ("succeeded", 1, 6)


async def test_a_run_that_is_offered_and_changed_in_one_cycle_takes_one_place() -> None:
    """A trigger and an update in the same cycle: the offered run gets its definition kept."""
    async with _stage() as stage:
        stage.put(handler("a", every("P1D")))
        await stage.run_until_idle()
        for _ in range(6):
            stage.trigger("a")
            stage.put(handler("a", every("P1D"), payload={"n": stage.clock.now_ms()}))
            await stage.run_until_idle()
            (run_id,) = stage.leases()
            assert stage.leases()[run_id].state is RunState.QUEUED
            await say(stage, claims((run_id, 1)), end(run_id, 1))
        assert stage.slots[0].slot.keeper._lanes["default"].queued == 0


async def test_what_is_taken_from_the_queue_and_what_falls_due_share_one_window() -> None:
    async with _stage(SchedulerSettings(window_min=2, window_max=2)) as stage:
        await _put(stage, 3)
        for name in ("x", "y"):
            stage.put(handler(name, once(START_MS + 1_000)))
        await stage.run_until_idle()
        stage.say(claims((_name(0), 1), (_name(1), 1)))
        await stage.slots[0].step()
        stage.clock.advance(1_000)
        await stage.run_until_idle()
        assert _offered(stage) == ["j000", "j001", "j002", "x"]


async def test_a_run_that_changes_hands_often_leaves_no_deadlines_behind() -> None:
    async with _stage() as stage:
        await _put(stage, 1, timeout="PT1H")
        for token in range(1, 31):
            await say(stage, claims((_name(0), 1)), end(_name(0), token, Outcome.HANDED_BACK))
        await say(stage, claims((_name(0), 1)))
        for _ in range(65):
            await stage.advance(10_000)
            await say(stage, beats((_name(0), 31)))
        assert len(stage.slots[0].slot.keeper._lanes["default"].alarms) == 1


def _lane(settings: SchedulerSettings) -> Lane:
    lane = Lane(settings.window_min)
    lane.clock.heard(1_000)
    return lane


def _take(lane: Lane, settings: SchedulerSettings, *, count: int, from_ms: int, to_ms: int) -> int:
    """A lane with nothing on offer is offered runs, and takes them by then; returns its window."""
    lane.queued = 0
    lane.room(settings, from_ms)
    lane.queued = count
    lane.claimed(count, to_ms, settings)
    return lane.window


def test_a_window_is_what_a_lane_takes_in_its_time() -> None:
    settings = SchedulerSettings(window_min=10, window_max=1_000, window_ms=5_000)
    lane = _lane(settings)
    assert _take(lane, settings, count=10, from_ms=1_000, to_ms=1_500) == 100
    assert _take(lane, settings, count=100, from_ms=2_000, to_ms=2_001) == 1_000  # no faster than in 100 ms
    assert _take(lane, settings, count=9, from_ms=3_000, to_ms=60_000) == 1_000  # so few say nothing
    assert _take(lane, settings, count=10, from_ms=100_000, to_ms=101_000) == 50
    assert _take(lane, settings, count=10, from_ms=200_000, to_ms=260_000) == 10


def test_the_pace_of_a_lane_with_a_backlog_is_that_of_its_last_spell() -> None:
    settings = SchedulerSettings(window_min=10, window_max=1_000, window_ms=5_000)
    lane = _lane(settings)
    _take(lane, settings, count=100, from_ms=1_000, to_ms=2_000)
    assert lane.window == 500
    lane.queued = 50
    lane.room(settings, 6_500)
    lane.claimed(10, 7_000, settings)  # 110 in 6 s, and anew from here on
    assert lane.window == 91
    lane.claimed(40, 8_000, settings)
    assert lane.window == 200
