"""A commit whose outcome is unknown: everything is replayed, nothing is lost, nothing happens twice."""

from __future__ import annotations

import pytest
from tests.actors.lines import dues_s, history, reasons

from noontide.actors.caution import EASE_AFTER, Caution
from noontide.actors.closing import Delivered
from noontide.actors.partition import Work
from noontide.actors.request_input import Input
from noontide.actors.settings import SchedulerSettings
from noontide.core.cursor import JobState
from noontide.ports.due_index import IndexBatch
from noontide.ports.record_log import Doubt, Fenced
from noontide.records import rows
from noontide.records.rejected import Origin
from noontide.records.topics import Layout
from noontide.testing.builders import every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

ONE_PARTITION = Layout(partitions=1, slots=1)


@pytest.mark.parametrize("took_effect", [True, False])
async def test_nothing_is_lost_and_nothing_is_doubled(stage: MemoryStage, took_effect: bool) -> None:
    stage.fail_next_commit(took_effect=took_effect)
    for number in range(5):
        stage.put(job(f"j{number}", every("PT10S")))
    await stage.run_until_idle()
    stage.fail_next_commit(took_effect=took_effect)
    stage.fail_next_commit(took_effect=took_effect)
    stage.fail_next_commit(took_effect=took_effect)
    await stage.advance(20_000)
    assert sorted(stage.run_ids("orders")) == sorted(
        f"j{number}:20260301T0000{second}Z" for number in range(5) for second in (10, 20)
    )
    assert len(stage.executions()) == 10
    assert len(stage.records("noontide.jobs")) == 5
    assert stage.slots[0].doubts == 4


@pytest.mark.parametrize("took_effect", [True, False])
async def test_a_doubt_about_a_delivery_after_the_commit_sends_it_at_least_once(
    stage: MemoryStage, took_effect: bool
) -> None:
    stage.fail_next_commit(took_effect=took_effect)
    stage.put(job("a", once(START_MS), to="elsewhere"))
    await stage.run_until_idle()
    assert stage.run_ids("elsewhere") == ["a:20260301T000000Z"]
    assert history(stage, "a") == [(0, "succeeded")]


@pytest.mark.parametrize("late_ms, was_away", [(0, False), (1, True)])
async def test_one_that_was_frozen_in_a_commit_does_not_fence_the_next_owner(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch, late_ms: int, was_away: bool
) -> None:
    slot = stage.slots[0]

    async def frozen(_outputs: object, *, timeout_ms: int) -> None:
        patch.undo()
        stage.clock.advance(timeout_ms + stage.settings.away_ms + late_ms)
        raise Doubt("the commit was not answered in time")

    stage.put(job("a", once(START_MS)))
    with monkeypatch.context() as patch:
        patch.setattr(slot._log, "commit", frozen)
        if was_away:
            with pytest.raises(Fenced, match="away"):
                await stage.run_until_idle()
        else:
            await stage.run_until_idle()
            assert slot.doubts == 1


async def test_the_fenced_one_stops(stage: MemoryStage) -> None:
    stage.log.open_session(stage.slots[0].transactional_id)
    stage.put(job("a", once(START_MS)))
    with pytest.raises(Fenced):
        await stage.run_until_idle()
    assert stage.records("noontide.jobs") == []


async def test_a_silent_log_decides_nothing(stage: MemoryStage) -> None:
    stage.put(job("a", once(START_MS)))
    stage.log.faults.silent = True
    with pytest.raises(Doubt):
        await stage.run_until_idle()
    stage.log.faults.silent = False
    await stage.take_over()
    assert stage.run_ids("orders") == ["a:20260301T000000Z"]


# --- the culprit


async def _with_narrow_jobs_topic() -> MemoryStage:
    """`jobs` takes less than `requests`, as when an operator set it so: the broker refuses what was accepted."""
    stage = MemoryStage(layout=ONE_PARTITION)
    stage.log.delete_topic("noontide.jobs")
    stage.log.create_topic("noontide.jobs", partitions=1, max_message_bytes=1_000)
    return await stage.__aenter__()


async def test_the_request_that_the_broker_refuses_is_found_by_halving_and_set_aside() -> None:
    stage = await _with_narrow_jobs_topic()
    stage.register("orders")
    for number in range(40):
        payload = "x" * 2_000 if number == 23 else "x"
        stage.put(job(f"j{number}", once(START_MS + 1_000), payload=payload))
    await stage.advance(1_000)
    assert len(stage.run_ids("orders")) == 39
    (reason,) = reasons(stage)
    assert "a record exceeds 1000 bytes" in reason
    assert stage.rejected()[0]["origin"]["offset"] == 23  # type: ignore[index]
    assert stage.slots[0].doubts <= 7  # 40 -> 20 -> 10 -> 5 -> 2 -> 1, and the culprit alone


async def test_two_culprits_are_found() -> None:
    stage = await _with_narrow_jobs_topic()
    stage.register("orders")
    for number in range(30):
        stage.put(job(f"j{number}", once(START_MS), payload="x" * 2_000 if number in (3, 17) else "x"))
    await stage.run_until_idle()
    assert {line["origin"]["offset"] for line in stage.rejected()} == {3, 17}  # type: ignore[index]
    assert len(stage.run_ids("orders")) == 28


async def test_a_culprit_is_found_while_occurrences_fall_due_beside_it() -> None:
    stage = await _with_narrow_jobs_topic()
    stage.register("orders")
    for number in range(20):
        stage.put(job(f"j{number}", every("PT1S")))
    await stage.run_until_idle()
    stage.put(job("culprit", once(START_MS), payload="x" * 2_000))
    await stage.jump(60_000)
    assert len(stage.rejected()) == 1
    await stage.advance(1_000)
    assert len({run_id for run_id in stage.run_ids("orders") if run_id.endswith("000101Z")}) == 20


async def test_a_due_job_that_the_broker_refuses_is_quarantined() -> None:
    stage = MemoryStage(layout=ONE_PARTITION)
    async with stage:
        stage.register("orders")
        for number in range(10):
            stage.put(job(f"j{number}", once(START_MS + 1_000), to="orders" if number else "elsewhere", payload="x"))
        stage.create_topic("elsewhere")
        await stage.run_until_idle()
        stage.log._topics["noontide.leases"].max_message_bytes = 10
        await stage.advance(1_000)
        cursor = stage.cursor("j0")
        assert cursor is not None
        assert cursor.state is JobState.QUARANTINED
        assert "a record exceeds 10 bytes" in str(cursor.reason)
        assert len(stage.run_ids("orders")) == 9


def _input(offset: int) -> Input:
    origin = Origin("requests.api", 0, offset)
    return Input(origin, origin, 0, b"a", b"{}", ())


REFUSED = Doubt("too large", refused=True)
SILENT = Doubt("time over")


def test_caution_halves_down_to_one_and_eases_by_doubling() -> None:
    caution, limits = Caution(16), []
    for _ in range(6):
        caution.tighten(SILENT, {0: Work(inputs=[_input(n) for n in range(caution.limit)])})
        limits.append(caution.limit)
    assert limits == [8, 4, 2, 1, 1, 1]
    for _ in range(EASE_AFTER - 1):
        caution.ease()
    assert caution.limit == 1
    caution.ease()
    assert caution.limit == 2
    for _ in range(EASE_AFTER * 10):
        caution.ease()
    assert caution.limit == 16


def test_caution_starts_from_what_was_really_in_the_cycle() -> None:
    caution = Caution(1_000)
    caution.tighten(SILENT, {0: Work(inputs=[_input(n) for n in range(6)])})
    assert caution.limit == 3


def test_silence_convicts_nobody() -> None:
    caution = Caution(1)
    work = Work(inputs=[_input(1)])
    caution.tighten(SILENT, {0: work})
    assert caution.culprits_in(work) == {}


def test_a_refusal_convicts_what_was_alone() -> None:
    caution = Caution(16)
    work = Work(inputs=[_input(1)])
    caution.tighten(REFUSED, {0: work})
    again = Work(inputs=[_input(0), _input(1)], deliveries=[Delivered("a:m1", None, retriable=True)])
    assert caution.culprits_in(again) == {id(again.inputs[1]): "too large"}


def test_a_success_in_between_starts_the_count_of_calm_cycles_anew() -> None:
    caution = Caution(16)
    caution.tighten(SILENT, {0: Work(inputs=[_input(n) for n in range(16)])})
    for _ in range(EASE_AFTER - 1):
        caution.ease()
    caution.tighten(SILENT, {0: Work(inputs=[_input(n) for n in range(8)])})
    caution.ease()
    assert caution.limit == 4


# --- poison


def _spoil(stage: MemoryStage, key: bytes, value: bytes | None) -> None:
    stage.slots[0].index.write(IndexBatch(puts={key: value}))


@pytest.mark.parametrize("spoilt", [None, b"", b"\xff" * 7, b"\xff" * 200])
async def test_a_job_row_that_cannot_be_read_quarantines_its_job_alone(spoilt: bytes | None) -> None:
    async with MemoryStage(layout=ONE_PARTITION) as stage:
        stage.register("orders")
        for name in ("a", "b", "c"):
            stage.put(job(name, every("PT10S")))
        await stage.run_until_idle()
        _spoil(stage, rows.job_key(0, b"b"), spoilt)
        await stage.advance(30_000)
        assert [name for name in ("a", "b", "c") if history(stage, name)] == ["a", "c"]
        cursor = stage.cursor("b")
        assert cursor is not None
        assert cursor.state is JobState.QUARANTINED
        assert cursor.reason
        assert stage.slots[0].doubts == 0


async def test_a_new_definition_releases_a_quarantined_job() -> None:
    async with MemoryStage(layout=ONE_PARTITION) as stage:
        stage.register("orders")
        stage.put(job("b", every("PT10S")))
        await stage.run_until_idle()
        _spoil(stage, rows.job_key(0, b"b"), None)
        await stage.advance(10_000)
        stage.put(job("b", every("PT10S", anchor_ms=START_MS)))
        await stage.advance(10_000)
        assert dues_s(stage) == [20]


async def test_a_quarantined_one_off_runs_when_it_is_released(stage: MemoryStage) -> None:
    stage.configure("calendar/holidays", {"dates": ["2026-12-25"]})
    definition = job("a", once(START_MS + 1_000), calendar={"exclude": ["holidays"]})
    stage.put(definition)
    await stage.run_until_idle()
    stage.configure("calendar/holidays", None)
    await stage.advance(10_000)
    stage.configure("calendar/holidays", {"dates": ["2026-12-25"]})
    stage.put(definition)
    await stage.run_until_idle()
    assert dues_s(stage) == [1]


@pytest.mark.parametrize("spoilt", [None, b"", b"\xff" * 200])
async def test_a_live_run_without_its_definition_is_closed_as_dead(spoilt: bytes | None) -> None:
    async with MemoryStage(layout=ONE_PARTITION) as stage:
        stage.register("orders")
        stage.sicken("orders")
        for name in ("a", "b"):
            stage.put(job(name, once(START_MS)))
        await stage.run_until_idle()
        _spoil(stage, rows.job_key(0, b"a"), spoilt)
        stage.heal("orders")
        await stage.run_until_idle()
        assert history(stage, "a") == [(0, "dead")]
        assert stage.run_ids("orders") == ["b:20260301T000000Z"]
        assert stage.leases() == {}


async def test_a_delivery_that_cannot_be_noted_does_not_stop_the_others() -> None:
    async with MemoryStage(layout=ONE_PARTITION) as stage:
        stage.create_topic("elsewhere")
        stage.sicken("elsewhere", noticed=False)
        stage.holds_sends = True
        for name in ("a", "b"):
            stage.put(job(name, once(START_MS), to="elsewhere", retry={"max_attempts": 1}))
        await stage.run_until_idle()
        _spoil(stage, rows.job_key(0, b"a"), b"\xff")
        await stage.send()
        assert history(stage, "b") == [(0, "dead")]
        assert stage.slots[0].doubts == 0


# --- limits of a cycle


async def test_due_rows_are_bounded_in_bytes_and_the_rest_follows_at_once() -> None:
    settings = SchedulerSettings(due_max_bytes=3_000)
    async with MemoryStage(layout=ONE_PARTITION, settings=settings) as stage:
        stage.register("orders")
        for number in range(10):
            stage.put(job(f"j{number}", once(START_MS + 1_000), payload="x" * 1_000))
        await stage.run_until_idle()
        stage.clock.advance(1_000)
        delivered = []
        for _ in range(5):
            await stage.slots[0].step()
            delivered.append(len(stage.delivered("orders")))
        assert delivered == [2, 4, 6, 8, 10]


async def test_one_job_beyond_the_bound_is_served_alone() -> None:
    settings = SchedulerSettings(due_max_bytes=100)
    async with MemoryStage(layout=ONE_PARTITION, settings=settings) as stage:
        stage.register("orders")
        for number in range(3):
            stage.put(job(f"j{number}", once(START_MS + 1_000), payload="x" * 1_000))
        await stage.run_until_idle()
        stage.clock.advance(1_000)
        for expected in (1, 2, 3):
            await stage.slots[0].step()
            assert len(stage.delivered("orders")) == expected


async def test_a_backlog_of_one_partition_does_not_starve_another() -> None:
    settings = SchedulerSettings(due_max=10)
    async with MemoryStage(layout=Layout(partitions=2, slots=1), settings=settings) as stage:
        stage.register("orders")
        names = [f"j{number}" for number in range(400)]
        crowd = [name for name in names if stage.layout.partition_of(name) == 0][:150]
        single = next(name for name in names if stage.layout.partition_of(name) == 1)
        for name in (*crowd, single):
            stage.put(job(name, once(START_MS + 1_000)))
        await stage.run_until_idle()
        stage.clock.advance(1_000)
        await stage.slots[0].step()
        assert f"{single}:20260301T000001Z" in stage.run_ids("orders")
        assert len(stage.run_ids("orders")) <= 10


async def test_a_flood_of_requests_does_not_hold_up_what_is_due() -> None:
    settings = SchedulerSettings(inputs_max=5)
    async with MemoryStage(layout=ONE_PARTITION, settings=settings) as stage:
        stage.register("orders")
        stage.put(job("due", once(START_MS + 1_000)))
        await stage.run_until_idle()
        for number in range(100):
            stage.put(job(f"j{number}", every("PT1H")))
        stage.clock.advance(1_000)
        await stage.slots[0].step()
        assert stage.run_ids("orders") == ["due:20260301T000001Z"]


# --- time that is not trusted, and requests first


async def test_nothing_is_claimed_while_the_clock_is_not_trusted(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT10S")))
    await stage.run_until_idle()
    stage.clock.is_trusted = False
    await stage.advance(20_000)
    assert stage.executions() == []
    stage.put(job("b", every("PT1H")))
    await stage.run_until_idle()
    assert "b" in stage.jobs()
    stage.clock.is_trusted = True
    await stage.run_until_idle()
    assert dues_s(stage) == [10, 20]


async def test_requests_that_arrived_during_the_absence_come_before_what_is_due(stage: MemoryStage) -> None:
    stage.put(job("a", every("PT1H")))
    stage.put(job("b", every("PT1H"), payload="old"))
    await stage.run_until_idle()
    stage.clock.advance(1_800_000)
    stage.delete("a")
    stage.put(job("b", every("PT1H"), payload="new"))
    stage.clock.advance(1_900_000)
    await stage.crash()
    assert stage.run_ids("orders") == ["b:20260301T010000Z"]
    assert stage.delivered("orders")[0].value == b'"new"'
