"""Processes of the product as a simulation runs them: the real ones, on the ports of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from noontide.actors.breaker import Breakers
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.disk_watch import DiskWatch
from noontide.actors.effects import Names
from noontide.actors.runner import RunnerPorts, SlotRunner
from noontide.actors.settings import SchedulerSettings
from noontide.actors.standby import CopyBudget, Standby, StandbyPorts
from noontide.actors.supervisor import Supervisor
from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.log import MemoryLog
from noontide.adapters.memory.slot_log import Stage
from noontide.adapters.memory.targets import MemoryInspector
from noontide.core.partitioner import partition_for
from noontide.ports.record_log import Doubt, Record, TopicPartition
from noontide.ports.run_source import AnswerSink
from noontide.records.config import ConfigView
from noontide.records.runs import Invitation
from noontide.records.topics import Layout
from noontide.records.worker_events import End, Outcome
from noontide.records.worker_inbox import INBOX_PARTITIONS, decode_answer
from noontide.testing.simulation.groups import SESSION_MS, RunGroup, SimMembership, SimSource, SlotGroup
from noontide.testing.simulation.loop import Process
from noontide.testing.simulation.network import CUT_LOOK_MS, Site, Wire
from noontide.testing.simulation.ports import Disk, SimClock, SimCourier, SimFeed, SimIndex, SimReplay, SimSlotLog
from noontide.worker.app import App
from noontide.worker.attempt import stopped
from noontide.worker.holding import DeskSettings, Holding, Stop, Way
from noontide.worker.runtime import Runtime, WorkerPorts, WorkerSettings
from noontide.worker.stage import Audience

RESTART_MS: Final = 500
POST_TIMEOUT_MS: Final = 2_000
INSPECT_MS: Final = 1_000
WORKER: Final = WorkerSettings(desk=DeskSettings(concurrency=8, prefetch=4), drain_ms=4_000)


class Witnesses:
    """Who wants to know what processes do; see `witness`."""

    def opened(self, slot: int, process: Process) -> None:
        """The broker gave a slot to a process."""

    def committed(self, slot: int, process: Process) -> None:
        """The broker committed a transaction of a slot."""

    def applied(self, slot: int, process: Process, index: MemoryIndex) -> None:
        """A slot at work wrote to its index."""

    def started(self, worker: str, invitation: Invitation, token: int) -> None:
        """A worker began an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What all hosts share."""

    site: Site
    log: MemoryLog
    layout: Layout
    settings: SchedulerSettings
    slot_group: SlotGroup
    run_groups: Mapping[str, RunGroup]
    witnesses: Witnesses
    attempt: Callable[[str, Holding], Attempt]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What comes of an attempt. duration_ms: None = it never ends by itself. obeys: it stops when it is told to."""

    duration_ms: float | None
    outcome: Outcome = Outcome.SUCCEEDED
    permanent: bool = False
    obeys: bool = True


class SchedulerHost:
    """A host with a disk on which a scheduler process runs; after a crash another process."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.name = name
        self.disk = Disk()
        self.incarnation = 0
        self._scene = scene
        self._clock_terms = (scene.site.dice.uniform(0, 1e9), scene.site.dice.uniform(-200, 200))
        self.start()

    def start(self) -> None:
        """Start a process."""
        self.incarnation += 1
        self.process = Process(self._scene.site.loop, f"{self.name}.{self.incarnation}")
        self.wire = Wire(self._scene.site, self.process)
        self.wire.on_death = self.kill
        self.stop = asyncio.Event()
        self.supervisor: Supervisor | None = None
        self.process.spawn(self._main())

    def kill(self) -> None:
        """Kill -9; the disk keeps something, and a new process starts after a while."""
        site, process = self._scene.site, self.process
        if not process.alive:
            return
        self.disk.crash(site.dice.choice(("flushed", "flushed", "lucky", "older", "lost")))
        process.kill()
        self._scene.slot_group.session_ends(process)
        site.later(site.dice.choice((200, 1_000, 4_000, 9_000, 16_000)), self.start)

    async def _main(self) -> None:
        while True:
            try:
                await self._run()
            except Doubt:
                await asyncio.sleep(RESTART_MS / 1000)
                continue
            if not self.stop.is_set():
                continue
            self.stop.clear()  # a clean stop; the service manager starts it anew
            await asyncio.sleep(RESTART_MS / 1000)

    async def _run(self) -> None:
        scene, wire = self._scene, self.wire
        since_boot_ms, drift_ppm = self._clock_terms
        clock = SimClock(scene.site, since_boot_ms=since_boot_ms, drift_ppm=drift_ppm)
        disk = DiskWatch(self.disk.require_room, clock.boot_ms, scene.settings)
        self.disk.refused = disk.failed
        feed, replay, inspector = SimFeed(scene.log, wire), SimReplay(scene.log, wire), MemoryInspector(scene.log)

        def config_changed(view: ConfigView) -> None:
            if self.supervisor is not None:
                self.supervisor.config_changed(view)

        at = TopicPartition(scene.layout.name("config"), 0)
        config = ConfigDirectory(at, feed=feed, replay=replay, on_change=config_changed)
        ports = RunnerPorts(
            owner=self.process.name,
            clock=clock,
            config=config,
            breakers=Breakers(inspector, scene.settings),
            feed=feed,
            replay=replay,
            courier=SimCourier(scene.log, wire),
            open_log=partial(self._open_log, clock),
            open_index=self._open_index,
        )
        standby_ports = StandbyPorts(
            process=ports.owner,
            clock=clock,
            replay=replay,
            courier=ports.courier,
            open_index=ports.open_index,
            budget=CopyBudget(scene.settings.standby_cpu_percent),
        )
        self.supervisor = supervisor = Supervisor(
            lambda slot, index: SlotRunner(Names.of(scene.layout, slot), ports, scene.settings, index=index),
            lambda slot, index: Standby(Names.of(scene.layout, slot), standby_ports, scene.settings, index=index),
            scene.settings,
            copies=self.disk,
            disk=disk,
        )
        await config.start()
        inspecting = asyncio.create_task(_inspect(inspector))
        try:
            await supervisor.run(SimMembership(scene.slot_group, self.process, supervisor.standing), self.stop)
        finally:
            inspecting.cancel()
            config.close()

    def _open_log(self, clock: SimClock, slot: int) -> SimSlotLog:
        process, witnesses = self.process, self._scene.witnesses

        def told(stage: Stage) -> None:
            if stage is Stage.OPENING:
                witnesses.opened(slot, process)
            else:
                witnesses.committed(slot, process)

        name = transactional_id(self._scene.layout, slot)
        return SimSlotLog(self._scene.log, self.wire, transactional_id=name, clock=clock, told=told)

    def _open_index(self, slot: int) -> SimIndex:
        return SimIndex(slot, self.wire, self.disk, written=partial(self._written, self.process))

    def _written(self, process: Process, slot: int, index: MemoryIndex) -> None:
        runner = None if self.supervisor is None else self.supervisor.runners.get(slot)
        if runner is not None and runner.readable is not None:
            self._scene.witnesses.applied(slot, process, index)


def transactional_id(layout: Layout, slot: int) -> str:
    """Under which a slot commits, whoever owns it."""
    return f"{layout.prefix}slot-{slot}"


async def _inspect(inspector: MemoryInspector) -> None:
    while True:
        await asyncio.sleep(INSPECT_MS / 1000)
        inspector.inspect()


class WorkerHost:
    """A host on which worker processes run, one after the other."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self._scene = scene
        self.start()

    def start(self) -> None:
        """Start a process."""
        scene = self._scene
        self.incarnation += 1
        self.process = Process(scene.site.loop, f"{self.name}.{self.incarnation}")
        self.wire = Wire(scene.site, self.process)
        self.wire.on_death = self.kill
        self.stop = asyncio.Event()
        self._sources = {lane: SimSource(group, self.wire) for lane, group in scene.run_groups.items()}
        self.process.spawn(self._main())

    def kill(self) -> None:
        """Kill -9; the groups notice when its session is over, and a new process starts after a while."""
        site = self._scene.site
        if not self.process.alive:
            return
        self.process.kill()
        for lane, source in self._sources.items():
            site.later(SESSION_MS, self._scene.run_groups[lane].leave, source)
        site.later(site.dice.choice((200, 1_000, 6_000)), self.start)

    async def _main(self) -> None:
        scene, name = self._scene, self.process.name
        inbox = partition_for(name.encode(), INBOX_PARTITIONS)
        boot_ms = scene.site.dice.uniform(0, 1e9)
        ports = WorkerPorts(
            sources=self._sources,
            line=SimLine(scene, self.wire, name, inbox),
            boot_ms=lambda: boot_ms + scene.site.loop.now_ms,
            stage=partial(SimStage, scene, name),
        )
        await Runtime(App(), ports, WORKER, worker_id=name, inbox=inbox).run(self.stop)
        scene.site.later(RESTART_MS, self.start)


class SimLine:
    """`EventLine` over the wire: a frame may be appended twice, answers arrive late."""

    def __init__(self, scene: Scene, wire: Wire, worker: str, inbox: int) -> None:
        self._scene = scene
        self._wire = wire
        self._worker = worker
        self._feed = SimFeed(scene.log, wire)
        self._inbox = TopicPartition(scene.layout.name("worker-inbox"), inbox)

    async def open(self, sink: AnswerSink) -> None:
        """See `EventLine.open`."""

        def received(records: list) -> None:  # type: ignore[type-arg]
            answers = [decode_answer(record.value or b"") for record in records]
            sink([answer for answer in answers if answer.worker == self._worker])

        self._feed.attach(received, {self._inbox: self._scene.log.end_offset(self._inbox)})

    async def post(self, lane: str, slot: int, value: bytes) -> None:
        """See `EventLine.post`."""
        at = TopicPartition(self._scene.layout.name("worker-events", lane=lane), slot)
        while True:
            try:
                await self._wire.cross("post", timeout_ms=POST_TIMEOUT_MS)
                self._scene.log.append(at, [Record(self._worker.encode(), value)])
                await self._wire.cross("posted", timeout_ms=POST_TIMEOUT_MS)
            except Doubt:
                await asyncio.sleep(CUT_LOOK_MS / 1000)
                continue
            return

    async def close(self) -> None:
        """See `EventLine.close`."""
        self._feed.detach([self._inbox])


@dataclass(slots=True)
class SimStage:
    """Carries out attempts by doing nothing for a while."""

    scene: Scene
    worker: str
    audience: Audience
    _under_way: dict[Holding, tuple[Attempt, asyncio.TimerHandle | None]] = field(default_factory=dict)

    def way_of(self, invitation: Invitation) -> Way:
        """See `worker.stage.Stage`."""
        return Way.TASK

    def start(self, holdings: list[Holding]) -> None:
        """See `worker.stage.Stage`."""
        for holding in holdings:
            self.scene.witnesses.started(self.worker, holding.invitation, holding.token)
            attempt = self.scene.attempt(self.worker, holding)
            timer = None
            if attempt.duration_ms is not None:
                end = End(
                    run_id=holding.invitation.run_id,
                    token=holding.token,
                    outcome=attempt.outcome,
                    permanent=attempt.permanent,
                    error=None if attempt.outcome is Outcome.SUCCEEDED else "it failed",
                )
                timer = asyncio.get_running_loop().call_later(attempt.duration_ms / 1000, self._end, holding, end)
            self._under_way[holding] = attempt, timer

    def stop(self, holding: Holding) -> None:
        """See `worker.stage.Stage`."""
        attempt, timer = self._under_way.get(holding, (None, None))
        if attempt is not None and attempt.obeys:
            if timer is not None:
                timer.cancel()
            end = stopped(holding, holding.stop or Stop.SHUTDOWN)
            asyncio.get_running_loop().call_later(0.01, self._end, holding, end)

    def close(self) -> None:
        """See `worker.stage.Stage`."""

    def _end(self, holding: Holding, end: End) -> None:
        if self._under_way.pop(holding, None) is not None:
            self.audience.ended([(holding, end)])
