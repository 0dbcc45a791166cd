"""Registered topics: one transaction with the claim, a breaker per topic, and runs that wait while it is open."""

from __future__ import annotations

import pytest
from tests.actors.lines import HOUR_MS, dues_s, history

from noontide.actors.breaker import UNBOUNDED, Breakers
from noontide.actors.settings import SchedulerSettings
from noontide.actors.world import Route
from noontide.testing.builders import every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS


def _route(stage: MemoryStage, topic: str = "orders") -> Route:
    return stage.breakers.routes(stage.config, stage.clock.now_ms())[topic]


async def test_record_and_history_appear_together(stage: MemoryStage) -> None:
    stage.fail_next_commit(took_effect=False)
    stage.put(job("a", once(START_MS), payload={"n": 1}))
    await stage.run_until_idle()
    (record,) = stage.delivered("orders")
    assert record.value == b'{"n":1}'
    assert record.key == b"a"
    assert history(stage, "a") == [(0, "succeeded")]
    assert stage.records("noontide.leases") == []


async def test_the_record_key_decides_the_partition() -> None:
    async with MemoryStage() as stage:
        stage.create_topic("wide", partitions=16)
        stage.register("wide")
        for number in range(20):
            definition = job(f"j{number}", once(START_MS))
            stage.put({**definition, "target": {"topic": {"name": "wide", "key": "same"}}})
        await stage.run_until_idle()
        assert {(record.partition, record.key) for record in stage.delivered("wide")} == {(13, b"same")}


async def test_a_topic_known_to_be_sick_is_not_tried(stage: MemoryStage) -> None:
    stage.sicken("orders")
    stage.put(job("a", every("PT10S"), overlap="allow"))
    await stage.advance(20_000)
    assert stage.slots[0].doubts == 0
    assert {run.reason for run in stage.leases().values()} == {"topic orders: the topic is sick"}
    stage.heal("orders")
    await stage.run_until_idle()
    assert dues_s(stage) == [10, 20]
    lines = stage.executions("a")
    assert [line["late_ms"] for line in lines] == [10_000, 0]
    assert stage.leases() == {}


async def test_the_first_refusal_trips_the_breaker_and_costs_one_replay(stage: MemoryStage) -> None:
    stage.sicken("orders", noticed=False)
    stage.put(job("a", every("PT10S"), overlap="allow"))
    stage.put(job("b", every("PT10S"), to="elsewhere"))
    await stage.advance(30_000)
    assert stage.slots[0].doubts == 1
    assert dues_s(stage, "elsewhere") == [10, 20, 30]
    assert len(stage.leases()) == 3
    assert list(stage.breakers.open_topics()) == ["orders"]


async def test_closed_open_half_open_closed(stage: MemoryStage) -> None:
    assert _route(stage).allowance == UNBOUNDED
    stage.sicken("orders", noticed=False)
    for number in range(3):
        stage.put(job(f"j{number}", once(START_MS)))
    await stage.run_until_idle()
    stage.log.faults.accept("orders")
    assert _route(stage).problem is not None
    stage.inspector.inspect()
    assert (_route(stage).problem is not None, _route(stage).allowance) == (True, 0)
    await stage.jump(stage.settings.breaker_open_ms - 1)
    assert dues_s(stage) == []
    stage.clock.advance(1)
    assert _route(stage) == Route(1, 1_048_588, None, 1)
    await stage.slots[0].step()
    assert len(stage.delivered("orders")) == 1
    assert _route(stage).allowance == UNBOUNDED
    await stage.run_until_idle()
    assert len(stage.delivered("orders")) == 3


async def test_half_open_and_still_sick_waits_twice_as_long(stage: MemoryStage) -> None:
    stage.sicken("orders", noticed=False)
    stage.put(job("a", once(START_MS)))
    await stage.run_until_idle()
    pauses = []
    for _ in range(9):
        stage.heal("orders")
        stage.sicken("orders", noticed=False)
        before = stage.slots[0].doubts
        began_ms = stage.clock.now_ms()
        while stage.slots[0].doubts == before:
            await stage.jump(500)
        pauses.append(stage.clock.now_ms() - began_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


async def test_a_half_open_topic_lets_one_record_of_one_slot_through() -> None:
    settings = SchedulerSettings()
    async with MemoryStage(settings=settings) as stage:
        stage.register("orders")
        breakers = Breakers(stage.inspector, settings)
        breakers.trip("orders", "hung", 0)
        stage.inspector.inspect()
        assert breakers.routes(stage.config, settings.breaker_open_ms - 1)["orders"].allowance == 0
        assert breakers.routes(stage.config, settings.breaker_open_ms)["orders"].allowance == 1
        breakers.probe_begins("orders")
        assert breakers.routes(stage.config, settings.breaker_open_ms)["orders"].allowance == 0
        breakers.probe_ends("orders")
        assert breakers.routes(stage.config, settings.breaker_open_ms)["orders"].allowance == 1
        breakers.succeeded("orders")
        assert breakers.open_topics() == {}


async def test_trips_at_the_same_time_count_once() -> None:
    settings = SchedulerSettings()
    async with MemoryStage(settings=settings) as stage:
        stage.register("orders")
        breakers = Breakers(stage.inspector, settings)
        for _ in range(5):
            breakers.trip("orders", "hung", 0)
        stage.inspector.inspect()
        assert breakers.routes(stage.config, settings.breaker_open_ms)["orders"].allowance == 1


async def test_a_run_too_large_for_its_topic_waits_alone(stage: MemoryStage) -> None:
    stage.register("narrow", max_message_bytes=1_700)
    stage.put(job("big", every("PT10S"), to="narrow", payload="x" * 1_000))
    stage.put(job("small", every("PT10S"), to="narrow", payload="x"))
    await stage.advance(30_000)
    assert stage.slots[0].doubts == 0
    assert dues_s(stage, "narrow") == [10, 20, 30]
    (run,) = stage.leases().values()
    assert run.job_id == "big"
    assert "larger than max.message.bytes = 1700" in str(run.reason)


async def test_runs_that_wait_behind_one_too_large_go_when_the_topic_recovers(stage: MemoryStage) -> None:
    stage.register("narrow", max_message_bytes=1_700)
    at = stage.layout.partition_of("big")
    neighbour = next(f"j{n}" for n in range(99) if stage.layout.partition_of(f"j{n}") == at)
    stage.put(job("big", once(START_MS), to="narrow", payload="x" * 1_000))
    await stage.run_until_idle()
    stage.sicken("narrow")
    stage.put(job(neighbour, once(START_MS), to="narrow"))
    await stage.run_until_idle()
    stage.heal("narrow")
    await stage.run_until_idle()
    assert stage.run_ids("narrow") == [f"{neighbour}:20260301T000000Z"]


async def test_many_too_large_runs_come_to_rest() -> None:
    async with MemoryStage(settings=SchedulerSettings(due_max=3)) as stage:
        stage.register("narrow", max_message_bytes=1_700)
        for number in range(20):
            stage.put(job(f"j{number}", once(START_MS), to="narrow", payload="x" * 1_000))
        await stage.run_until_idle()
        assert len(stage.leases()) == 20
        assert await stage.run_until_idle() == 0


async def test_runs_too_large_go_when_the_topic_takes_more(stage: MemoryStage) -> None:
    stage.register("narrow", max_message_bytes=1_700)
    stage.put(job("big", once(START_MS), to="narrow", payload="x" * 1_000))
    await stage.run_until_idle()
    stage.log._topics["narrow"].max_message_bytes = 10_000
    stage.inspector.inspect()
    await stage.run_until_idle()
    assert len(stage.delivered("narrow")) == 1


async def test_a_topic_that_vanishes_holds_up_its_own_runs_only(stage: MemoryStage) -> None:
    stage.register("doomed")
    stage.put(job("a", every("PT10S"), to="doomed"))
    stage.put(job("b", every("PT10S")))
    await stage.advance(10_000)
    stage.log.delete_topic("doomed")
    await stage.advance(30_000)
    assert dues_s(stage) == [10, 20, 30, 40]
    assert stage.leases()["a:20260301T000020Z"].reason is not None


@pytest.mark.parametrize("count", [1, 7])
async def test_waiting_runs_survive_a_crash_and_are_delivered_once(stage: MemoryStage, count: int) -> None:
    stage.sicken("orders")
    for number in range(count):
        stage.put(job(f"j{number}", once(START_MS)))
    await stage.run_until_idle()
    await stage.crash(from_log_alone=True)
    stage.heal("orders")
    await stage.run_until_idle()
    await stage.crash()
    await stage.advance(HOUR_MS)
    assert sorted(stage.run_ids("orders")) == [f"j{number}:20260301T000000Z" for number in range(count)]
