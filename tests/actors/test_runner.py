"""The loop around a slot: take over, work, take over again after a doubt, stop, or give way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import orjson
import pytest

from noontide.actors.breaker import Breakers
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.effects import Names
from noontide.actors.runner import Phase, RunnerPorts, SlotRunner
from noontide.actors.settings import SchedulerSettings
from noontide.adapters.memory.faults import CommitFault
from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.log import MemoryLog
from noontide.adapters.memory.readers import MemoryFeed, MemoryReplay
from noontide.adapters.memory.slot_log import MemorySlotLog
from noontide.adapters.memory.targets import MemoryCourier, MemoryInspector
from noontide.ports.record_log import Courier, Delivery, Record, TopicPartition
from noontide.records.config import ConfigView
from noontide.testing.builders import job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

SETTINGS = SchedulerSettings(heartbeat_ms=20, cycle_gap_ms=0, doubt_pause_ms=1)


class Facts:
    """Waits for what becomes visible in a log."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._changed = asyncio.Event()
        log.subscribe(lambda _partitions: self._changed.set())

    async def count(self, topic: str, count: int) -> None:
        """Until a topic has so many records."""
        async with asyncio.timeout(10):
            while self._seen(topic) < count:
                self._changed.clear()
                await self._changed.wait()

    def _seen(self, topic: str) -> int:
        numbers = range(self._log.partitions(topic) or 0)
        return sum(len(self._log.read(TopicPartition(topic, each), 0, max_records=1_000)[0]) for each in numbers)


class Running(NamedTuple):
    """A runner and its loop."""

    runner: SlotRunner
    ended: asyncio.Task[Phase]


@asynccontextmanager
async def _running(
    stage: MemoryStage, *, index: MemoryIndex | None = None, courier: Courier | None = None
) -> AsyncIterator[Running]:
    log, clock, loop = stage.log, stage.clock, asyncio.get_running_loop()
    feed, replay = MemoryFeed(log, loop=loop), MemoryReplay(log)

    def config_changed(view: ConfigView) -> None:
        runner.config_changed(view)

    config = ConfigDirectory(TopicPartition("noontide.config", 0), feed=feed, replay=replay, on_change=config_changed)
    ports = RunnerPorts(
        owner="test",
        clock=clock,
        config=config,
        breakers=Breakers(MemoryInspector(log), SETTINGS),
        feed=feed,
        replay=replay,
        courier=courier or MemoryCourier(log),
        open_log=lambda slot: MemorySlotLog(log, transactional_id=f"noontide.slot-{slot}", time_source=clock),
        open_index=lambda _slot: index or MemoryIndex(),
    )
    runner = SlotRunner(Names.of(stage.layout, 0), ports, SETTINGS)
    await config.start()
    task = asyncio.create_task(runner.run())
    try:
        yield Running(runner, task)
    finally:
        runner.stop()
        async with asyncio.timeout(10):
            await task
        await feed.close()


@pytest.fixture
def stage() -> MemoryStage:
    """The topics and the clock; its own slots stay asleep."""
    stage = MemoryStage()
    stage.register("orders")
    stage.create_topic("elsewhere")
    return stage


async def test_it_takes_over_and_works(stage: MemoryStage) -> None:
    async with _running(stage) as (runner, ended):
        stage.put(job("a", once(START_MS)))
        stage.put(job("b", once(START_MS), to="elsewhere"))
        facts = Facts(stage.log)
        await facts.count("orders", 1)
        await facts.count("elsewhere", 1)
        await facts.count("noontide.executions", 2)
        assert runner.phase is Phase.WORKING
    assert ended.result() is Phase.STOPPED
    assert stage.run_ids("orders") == ["a:20260301T000000Z"]


async def test_it_says_who_owns_the_slot(stage: MemoryStage) -> None:
    async with _running(stage):
        await Facts(stage.log).count("noontide.owners", 2)
    first, second = stage.records("noontide.owners")[:2]
    assert (first.key, orjson.loads(first.value or b"")["restore_ms"]) == (b"0", None)
    said = orjson.loads(second.value or b"")
    assert (said["owner"], said["slot"], said["partitions"], said["restore_ms"]) == ("test", 0, [0, 3], 0)


@pytest.mark.parametrize("fault", list(CommitFault))
async def test_it_takes_over_again_after_a_doubt(stage: MemoryStage, fault: CommitFault) -> None:
    async with _running(stage):
        facts = Facts(stage.log)
        await facts.count("noontide.owners", 2)
        for _ in range(3):
            stage.log.faults.doubt_next_commit("noontide.slot-0", fault)
        for number in range(5):
            stage.put(job(f"j{number}", once(START_MS)))
        await facts.count("orders", 5)
        await facts.count("noontide.executions", 5)
    assert sorted(stage.run_ids("orders")) == [f"j{number}:20260301T000000Z" for number in range(5)]


class _Deaf(MemoryCourier):
    """What is sent to `elsewhere` is never acknowledged."""

    async def send(self, topic: str, record: Record, *, partition: int | None, timeout_ms: int) -> Delivery:
        if topic == "elsewhere":
            await asyncio.Event().wait()
        return await super().send(topic, record, partition=partition, timeout_ms=timeout_ms)


async def test_what_is_acknowledged_during_a_take_over_is_heard(stage: MemoryStage) -> None:
    """Records that may not have been sent go out before the slot is at work."""
    async with _running(stage, courier=_Deaf(stage.log)):
        stage.put(job("b", once(START_MS), to="elsewhere"))
        await Facts(stage.log).count("noontide.leases", 1)
    async with _running(stage):
        await Facts(stage.log).count("noontide.executions", 1)
    assert [line["state"] for line in stage.executions()] == ["succeeded"]


async def test_it_gives_way_when_it_is_fenced(stage: MemoryStage) -> None:
    async with _running(stage) as (_, ended):
        await Facts(stage.log).count("noontide.owners", 2)
        stage.log.open_session("noontide.slot-0")
        stage.put(job("a", once(START_MS)))
        async with asyncio.timeout(10):
            assert await asyncio.shield(ended) is Phase.FENCED
    assert stage.records("noontide.jobs") == []


async def test_requests_that_were_there_first_are_decided_first(stage: MemoryStage) -> None:
    async with _running(stage):
        stage.put(job("a", once(START_MS + 1_000)))
        stage.put(job("b", once(START_MS + 1_000)))
        facts = Facts(stage.log)
        await facts.count("noontide.jobs", 2)
    stage.delete("a")
    stage.clock.advance(2_000)
    async with _running(stage):
        await facts.count("orders", 1)
        await facts.count("noontide.executions", 1)
    assert stage.run_ids("orders") == ["b:20260301T000001Z"]


async def test_a_domain_that_is_configured_later_is_read(stage: MemoryStage) -> None:
    async with _running(stage):
        await Facts(stage.log).count("noontide.owners", 2)
        stage.log.create_topic("noontide.requests.shop", partitions=4)
        stage.put(job("a", once(START_MS)), domain="shop")
        stage.log.append(TopicPartition("noontide.config", 0), [Record(b"domain/shop", b"{}")])
        await Facts(stage.log).count("orders", 1)
    assert stage.run_ids("orders") == ["a:20260301T000000Z"]


async def test_an_owner_that_follows_goes_on_from_what_the_one_before_left(stage: MemoryStage) -> None:
    index = MemoryIndex()
    async with _running(stage, index=index) as (_, ended):
        stage.put(job("a", once(START_MS)))
        await Facts(stage.log).count("orders", 1)
    left = index.surviving_rows()
    assert ended.result() is Phase.STOPPED
    async with _running(stage, index=MemoryIndex(left)) as (runner, _):
        await Facts(stage.log).count("noontide.owners", 4)
        assert runner.restored is not None
        assert (runner.restored.records, runner.restored.wiped_because) == (0, None)
    assert stage.run_ids("orders") == ["a:20260301T000000Z"]
