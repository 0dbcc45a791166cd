"""Standbys keep copies that a take-over goes on with; slots are handed over while they are worked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import orjson
import pytest
from tests.actors.test_runner import SETTINGS, Facts

from noontide.actors.breaker import Breakers
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.disk_watch import DiskWatch
from noontide.actors.effects import Names
from noontide.actors.runner import Phase, RunnerPorts, SlotRunner
from noontide.actors.settings import SchedulerSettings
from noontide.actors.standby import CopyBudget, Standby, StandbyPorts
from noontide.actors.supervisor import Supervisor
from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.readers import MemoryFeed, MemoryReplay
from noontide.adapters.memory.slot_log import MemorySlotLog
from noontide.adapters.memory.targets import MemoryCourier, MemoryInspector
from noontide.ports.due_index import DueIndex, IndexBatch
from noontide.ports.membership import Assignment
from noontide.ports.record_log import TopicPartition
from noontide.records import rows
from noontide.testing.builders import every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

QUICK = replace(
    SETTINGS,
    standby_poll_ms=5,
    status_ms=20,
    standby_verify_ms=20,
    standby_retry_ms=5,
    handover_poll_ms=5,
    handover_ms=5_000,
    disk_probe_ms=5,
)
OWNED, BY = Assignment(owned=frozenset({0})), Assignment(standby=frozenset({0}))


class NoCopies:
    """Nothing on disk; remembers what was noted."""

    def __init__(self) -> None:
        self.noted: dict[int, int] = {}

    def freshness(self) -> Mapping[int, int]:
        return self.noted

    def note(self, slot: int, freshness: int) -> None:
        self.noted[slot] = freshness


@dataclass
class Group:
    """A membership that is told what to assign, and remembers what it was asked."""

    asked: list[str] = field(default_factory=list)

    async def join(self, on_assignment: object) -> None:
        self.asked.append("join")

    def rejoin(self) -> None:
        self.asked.append("rejoin")

    def retire(self) -> None:
        self.asked.append("retire")

    async def leave(self) -> None:
        self.asked.append("leave")


@dataclass
class Process:
    """A scheduler process on the stage's log."""

    supervisor: Supervisor
    opened: list[MemoryIndex]
    group: Group
    stop: asyncio.Event
    ended: asyncio.Task[None]

    async def until_working(self) -> SlotRunner:
        async with asyncio.timeout(10):
            while 0 not in self.supervisor.runners or self.supervisor.runners[0].phase is not Phase.WORKING:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return self.supervisor.runners[0]

    async def until_warm(self) -> Standby:
        async with asyncio.timeout(10):
            while 0 not in self.supervisor.standbys or self.supervisor.standbys[0].lag != 0:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return self.supervisor.standbys[0]


@asynccontextmanager
async def process(stage: MemoryStage, name: str, *, settings: SchedulerSettings = QUICK) -> AsyncIterator[Process]:
    log, clock = stage.log, stage.clock
    feed, replay, courier = MemoryFeed(log, loop=asyncio.get_running_loop()), MemoryReplay(log), MemoryCourier(log)
    opened: list[MemoryIndex] = []

    def open_index(_slot: int) -> MemoryIndex:
        opened.append(MemoryIndex())
        return opened[-1]

    config = ConfigDirectory(
        TopicPartition("noontide.config", 0), feed=feed, replay=replay, on_change=lambda view: None
    )
    ports = RunnerPorts(
        owner=name,
        clock=clock,
        config=config,
        breakers=Breakers(MemoryInspector(log), settings),
        feed=feed,
        replay=replay,
        courier=courier,
        open_log=lambda slot: MemorySlotLog(log, transactional_id=f"noontide.slot-{slot}", time_source=clock),
        open_index=open_index,
    )
    standby_ports = StandbyPorts(
        process=name, clock=clock, replay=replay, courier=courier, open_index=open_index, budget=CopyBudget(40)
    )
    names = Names.of(stage.layout, 0)

    def make_runner(_slot: int, index: DueIndex | None) -> SlotRunner:
        return SlotRunner(names, ports, settings, index=index)

    def make_standby(_slot: int, index: DueIndex | None) -> Standby:
        return Standby(names, standby_ports, settings, index=index)

    disk = DiskWatch(lambda: None, clock.boot_ms, settings)
    supervisor = Supervisor(make_runner, make_standby, settings, copies=NoCopies(), disk=disk)
    await config.start()
    group, stop = Group(), asyncio.Event()
    ended = asyncio.create_task(supervisor.run(group, stop))
    try:
        yield Process(supervisor, opened, group, stop, ended)
    finally:
        stop.set()
        supervisor.assign(Assignment(owned=frozenset(supervisor.standing().load), retired=True))
        async with asyncio.timeout(10):
            await ended
        await feed.close()


def _phase(runner: SlotRunner) -> Phase:
    return runner.phase


@pytest.fixture
def stage() -> MemoryStage:
    """The topics and the clock; its own slots stay asleep."""
    stage = MemoryStage()
    stage.register("orders")
    return stage


async def test_a_process_that_ends_takes_nothing_more(stage: MemoryStage) -> None:
    """The group may divide once more before it hears that a member is gone."""
    async with process(stage, "a") as a:
        a.supervisor.assign(OWNED)
        await a.until_working()
        a.stop.set()
        a.supervisor.assign(OWNED._replace(retired=True))
        async with asyncio.timeout(10):
            while a.supervisor.runners:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        a.supervisor.assign(OWNED)
        async with asyncio.timeout(10):
            await a.ended
        assert a.supervisor.runners == {}
        a.supervisor.assign(OWNED)
        await asyncio.sleep(0.02)
        assert a.supervisor.runners == {}


async def test_a_slot_is_handed_over_to_a_warm_standby_while_it_is_worked_on(stage: MemoryStage) -> None:
    facts = Facts(stage.log)
    async with process(stage, "a") as a, process(stage, "b") as b:
        a.supervisor.assign(OWNED)
        b.supervisor.assign(BY)
        await a.until_working()
        stage.put(job("j", once(START_MS)))
        await facts.count("orders", 1)
        await facts.count("noontide.executions", 1)
        await b.until_warm()
        async with asyncio.timeout(5):
            while b.supervisor.standing().freshness[0] < a.supervisor.standing().freshness[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        a.supervisor.assign(BY)
        stage.put(job("k", once(START_MS)))
        await facts.count("orders", 2)  # a works on: nobody has taken the slot
        b.supervisor.assign(OWNED)
        taken = await b.until_working()
        await a.until_warm()
        assert taken.restored is not None
        assert taken.restored.records <= 12
        stage.put(job("l", once(START_MS)))
        await facts.count("orders", 3)
    assert [len(each.opened) for each in (a, b)] == [1, 1]  # each index stayed open
    assert sorted(stage.run_ids("orders")) == [f"{name}:20260301T000000Z" for name in "jkl"]


async def test_an_idle_owner_notices_that_its_slot_was_taken(stage: MemoryStage) -> None:
    async with process(stage, "a") as a, process(stage, "b") as b:
        a.supervisor.assign(OWNED)
        runner = await a.until_working()
        a.supervisor.assign(Assignment())
        b.supervisor.assign(OWNED)
        await b.until_working()
        async with asyncio.timeout(5):
            while a.supervisor.runners:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert runner.phase is Phase.FENCED


async def test_an_owner_that_is_given_its_slot_back_goes_on(stage: MemoryStage) -> None:
    async with process(stage, "a") as a:
        a.supervisor.assign(OWNED)
        runner = await a.until_working()
        a.supervisor.assign(Assignment())
        assert _phase(runner) is Phase.HANDING_OVER
        a.supervisor.assign(OWNED)
        assert _phase(runner) is Phase.WORKING
        stage.put(job("j", once(START_MS)))
        await Facts(stage.log).count("orders", 1)
        assert a.supervisor.runners[0] is runner


async def test_when_nobody_takes_a_slot_its_owner_ends_after_a_while(stage: MemoryStage) -> None:
    async with process(stage, "a", settings=replace(QUICK, handover_ms=50)) as a:
        a.supervisor.assign(OWNED)
        runner = await a.until_working()
        a.supervisor.assign(Assignment())
        stage.clock.advance(51)
        await asyncio.wait_for(a.supervisor._tasks[0], 5)
        assert runner.phase is Phase.STOPPED


async def test_at_the_end_slots_are_worked_on_until_others_have_them(stage: MemoryStage) -> None:
    async with process(stage, "a") as a, process(stage, "b") as b:
        a.supervisor.assign(OWNED)
        await a.until_working()
        a.stop.set()
        async with asyncio.timeout(5):
            while "retire" not in a.group.asked:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        stage.put(job("j", once(START_MS)))
        await Facts(stage.log).count("orders", 1)
        a.supervisor.assign(Assignment(retired=True))
        b.supervisor.assign(OWNED)
        await b.until_working()
        await asyncio.wait_for(asyncio.shield(a.ended), 5)
        assert a.group.asked == ["join", "retire", "leave"]


async def test_what_is_promised_is_asked_for_when_it_is_warm(stage: MemoryStage) -> None:
    async with process(stage, "a") as a, process(stage, "b") as b:
        a.supervisor.assign(OWNED)
        await a.until_working()
        stage.put(job("j", every("PT1H")))
        b.supervisor.assign(BY._replace(warming=frozenset({0})))
        async with asyncio.timeout(5):
            while "rejoin" not in b.group.asked:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_a_standby_says_how_it_is_and_that_it_is_none_any_more(stage: MemoryStage) -> None:
    async with process(stage, "a") as a:
        a.supervisor.assign(BY)
        await a.until_warm()
        await Facts(stage.log).count("noontide.owners", 2)
        a.supervisor.assign(Assignment())
        async with asyncio.timeout(5):
            while stage.records("noontide.owners")[-1].value is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    said = [each for each in stage.records("noontide.owners") if each.value is not None]
    assert {each.key for each in said} == {b"0/a"}
    assert orjson.loads(said[0].value or b"")["phase"] == "copying"
    assert orjson.loads(said[1].value or b"")["phase"] == "warm"
    assert orjson.loads(said[1].value or b"")["role"] == "standby"


async def test_a_standby_knows_until_when_it_lacks_nothing(stage: MemoryStage) -> None:
    async with process(stage, "a") as a:
        a.supervisor.assign(BY)
        standby = await a.until_warm()
        stage.clock.advance(1_000)
        key = rows.meta_key(0, rows.COMPLETE)
        async with asyncio.timeout(5):
            while rows.decode_complete(a.opened[0].get_many([key])[0]) < stage.clock.now_ms():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert standby.lag == 0


async def test_reminders_of_what_the_owner_has_forgotten_do_not_pile_up(stage: MemoryStage) -> None:
    async with process(stage, "a", settings=replace(QUICK, standby_sweep_ms=1_000)) as a:
        a.supervisor.assign(BY)
        await a.until_warm()
        index, now_ms = a.opened[0], stage.clock.now_ms()
        old, young = rows.forget_key(0, now_ms, b"verdict/x"), rows.forget_key(0, now_ms + 60_000, b"verdict/y")
        index.write(IndexBatch(puts={old: b"", young: b""}))
        stage.clock.advance(2_000)
        async with asyncio.timeout(5):
            while index.get_many([old])[0] is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert index.get_many([young]) == [b""]


async def test_a_process_whose_disk_stays_full_asks_for_another_division(stage: MemoryStage) -> None:
    async with process(stage, "a") as one:
        one.supervisor.assign(OWNED)
        await one.until_working()
        assert not one.supervisor.standing().unfit
        for _ in range(2):
            one.supervisor.disk.failed()
            stage.clock.advance(QUICK.disk_failed_ms + 1)
        async with asyncio.timeout(10):
            while "rejoin" not in one.group.asked:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert one.supervisor.standing().unfit


async def test_a_fault_of_ours_does_not_leave_a_slot_to_nobody(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with process(stage, "a", settings=replace(QUICK, fenced_retry_ms=5)) as a:
        with monkeypatch.context() as patch:
            patch.setattr(Standby, "run", None)
            a.supervisor.assign(BY)
            async with asyncio.timeout(5):
                while "unexpected; beginning again" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        await a.until_warm()


async def test_a_broker_that_does_not_answer_costs_a_standby_a_new_beginning(
    stage: MemoryStage, caplog: pytest.LogCaptureFixture
) -> None:
    async with process(stage, "a") as a:
        stage.log.faults.silent = True
        a.supervisor.assign(BY)
        async with asyncio.timeout(5):
            while "beginning again" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        stage.log.faults.silent = False
        await a.until_warm()


def test_copying_takes_a_bounded_share_of_a_core() -> None:
    budget = CopyBudget(25)
    assert budget.rest_ms(1_100.0, 100.0) == 300.0
    assert budget.rest_ms(1_100.0, 100.0) == 700.0, "another one worked at the same time"
    assert budget.rest_ms(9_000.0, 10.0) == 30.0, "what was not used is not saved up"
    assert CopyBudget(100).rest_ms(1_100.0, 100.0) == 0.0
