"""One simulation: a seed chooses the cluster, the weather, the people and the trouble; then all heals and rests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random  # noqa: TID251 - seeded: the seed is the replay
from typing import Final

from noontide.actors.settings import SchedulerSettings
from noontide.adapters.memory.log import MemoryLog
from noontide.records.topics import DEFAULT_DOMAINS, Layout, load_catalogue
from noontide.records.worker_events import Outcome
from noontide.testing.permits_judge import standing
from noontide.testing.simulation.groups import RunGroup, SlotGroup
from noontide.testing.simulation.hosts import Attempt, Scene, SchedulerHost, WorkerHost
from noontide.testing.simulation.loop import Process, Restless, VirtualLoop
from noontide.testing.simulation.network import Site, Weather
from noontide.testing.simulation.people import REGISTERED, SICKLY, UNREGISTERED, People
from noontide.testing.simulation.rest import judge_permits, judge_rest, unfinished
from noontide.testing.simulation.trouble import Trouble
from noontide.testing.simulation.witness import Violation, Witness
from noontide.worker.holding import Holding

SETTINGS: Final = SchedulerSettings(
    cycle_gap_ms=4,  # shorter than in life: more happens between two steps
    heartbeat_ms=1_000,
    checkpoint_ms=4_000,
    checkpoint_max_age_ms=8_000,
    status_ms=5_000,
    commit_timeout_ms=3_000,
    send_timeout_ms=2_000,
    fenced_retry_ms=2_000,
    cancel_grace_ms=4_000,
    timeout_grace_ms=2_000,
    window_min=20,
    range_delete_min=2,
    handover_ms=4_000,
    standby_verify_ms=5_000,
    disk_failed_ms=2_000,
    disk_calm_ms=3_000,
    disk_probe_ms=500,
    hold_poll_ms=50,
)
"""Shorter waits than in production, so that more happens in a minute."""
TROUBLE_MS: Final = 25_000
CALM_MS: Final = 12_000
REST_MAX_MS: Final = 360_000
LOOK_MS: Final = 2_000
ALL_LANES: Final = ("default", "bulk", "express")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one seed gave. violation: what is broken, by which checker; None = all promises were kept."""

    seed: int
    steps: int
    virtual_ms: int
    counts: Mapping[str, int]
    story: tuple[str, ...]
    checker: str | None = None
    violation: str | None = None


def simulate(seed: int) -> Result:
    """Run one simulation. The same seed and code give the same steps."""
    logging.disable(logging.CRITICAL)
    try:
        return Cluster(seed).run()
    finally:
        logging.disable(logging.NOTSET)


FOLLOWED: Final = 4
"""In one of so many seeds there are jobs that wait for others."""


class Cluster:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        dice = self._dice = Random(seed)
        self.loop = VirtualLoop(dice)  # type: ignore[abstract]  # it has what is used
        self.site = Site(self.loop, dice, weather=_weather(dice))
        slots = dice.choice((1, 2, 2, 3))
        self.layout = Layout(partitions=slots * dice.choice((1, 2)), slots=slots)
        self.log = MemoryLog(now_ms=self._broker_now_ms)
        self._create_topics()
        self.witness = Witness(self.site, self.log, self.layout, SETTINGS)
        self.witness.exact_topics |= {REGISTERED, SICKLY}
        group = SlotGroup(self.site, slots)
        self.trouble = Trouble(self.site, self.log, self.layout, group)
        self.people = People(self.site, self.log, self.layout, self.witness, self._broker_now_ms)
        self._scene = Scene(
            site=self.site,
            log=self.log,
            layout=self.layout,
            settings=SETTINGS,
            slot_group=group,
            run_groups={lane: RunGroup(self.site, self.log, self.layout.name("runs", lane=lane)) for lane in ALL_LANES},
            witnesses=self.witness,
            attempt=self._attempt,
        )

    def run(self) -> Result:
        """From the start to the rest."""
        self.loop.after_step = self.witness.look
        checker = violation = None
        try:
            self.loop.run_until_complete(self._live())
        except Violation as broken:
            checker, violation = broken.checker, broken.what
        except Restless as restless:
            checker, violation = restless.checker, str(restless)
        finally:
            virtual_ms = int(self.loop.now_ms)
            self.loop.close()
        return Result(
            seed=self._seed,
            steps=self.loop.steps,
            virtual_ms=virtual_ms,
            counts=dict(self.site.counts),
            story=tuple(self.site.story),
            checker=checker,
            violation=violation,
        )

    async def _live(self) -> None:
        dice, trouble, people = self._dice, self.trouble, self.people
        people.set_up()
        trouble.schedulers = [SchedulerHost(self._scene, f"s{number}") for number in range(dice.choice((1, 2, 2, 3)))]
        trouble.workers = [WorkerHost(self._scene, f"w{number}") for number in range(dice.choice((1, 2, 3)))]
        broker = Process(self.loop, "broker")
        broker.spawn(trouble.abort_old_transactions())
        people_at_work = asyncio.ensure_future(self._people())
        rate_ms = dice.choice((600, 1_200, 2_500))
        while self.loop.now_ms < TROUBLE_MS:
            await asyncio.sleep(dice.expovariate(1 / rate_ms) / 1000)
            trouble.strike()
        await people_at_work
        trouble.heal()
        await self._rest()

    async def _people(self) -> None:
        dice = self._dice
        await self.people.define_all(dice.choice((3, 5, 7)))
        if self._seed % FOLLOWED == 0:
            await self.people.define_followers()
        while self.loop.now_ms < TROUBLE_MS - 3_000:
            await asyncio.sleep(dice.expovariate(1 / 900) / 1000)
            if self.site.chance(100):
                self.people.reconfigure()
            await self.people.act()

    async def _rest(self) -> None:
        """Until everything asked for is done; then the judgement. Raises Violation."""
        began_ms = self.loop.now_ms
        await asyncio.sleep(CALM_MS / 1000)
        await self.people.pause_all()
        await asyncio.sleep(LOOK_MS / 1000)
        while (left := unfinished(self.witness, self.people)) or standing(self.witness):
            await asyncio.sleep(LOOK_MS / 1000)
            self.witness.look()
            if self.loop.now_ms - began_ms > REST_MAX_MS:
                if not left:
                    judge_permits(self.witness)
                raise Violation("liveness", f"after {REST_MAX_MS} ms of calm: {left}")
        judge_rest(self.witness, self.people, self.layout, self._broker_now_ms())
        for host in self.trouble.schedulers:
            for slot, runner in ({} if host.supervisor is None else host.supervisor.runners).items():
                if runner.slot is not None and slot in host.disk.unflushed:
                    self.witness.applied(slot, host.process, host.disk.unflushed[slot])
        surprises = [each for each in self.loop.surprises if "Doubt" not in each]
        if surprises:
            raise Violation("no surprises", surprises[0])

    def _broker_now_ms(self) -> int:
        return self.trouble.broker_now_ms()

    def _attempt(self, _worker: str, holding: Holding) -> Attempt:
        """What a handler does: mostly something quick, now and then nothing good."""
        dice = self._dice
        if holding.invitation.guarantee == "at_most_once":
            self.witness.once.add(holding.invitation.run_id)
        match dice.randrange(20):
            case 0:
                return Attempt(None)
            case 1 | 2:
                return Attempt(dice.uniform(1_000, 9_000), obeys=bool(dice.randrange(2)))
            case 3 | 4:
                return Attempt(dice.uniform(0, 500), Outcome.FAILED)
            case 5:
                return Attempt(dice.uniform(0, 500), Outcome.FAILED, permanent=True)
        return Attempt(dice.uniform(0, 800))

    def _create_topics(self) -> None:
        values = {"domain": sorted({*DEFAULT_DOMAINS, "shop"}), "lane": list(ALL_LANES)}
        for file in load_catalogue():
            partitions = self.layout.topic_partitions(file.topic)
            parameter = next(iter(file.parameters), None)
            for value in [None] if parameter is None else values[parameter]:
                named = {} if parameter is None or value is None else {parameter: value}
                self.log.create_topic(self.layout.name(file.topic, **named), partitions=partitions)
        for topic in (REGISTERED, UNREGISTERED, SICKLY):
            self.log.create_topic(topic, partitions=2)


def _weather(dice: Random) -> Weather:
    return Weather(
        usual_ms=dice.choice((1.0, 3.0, 20.0)),
        slow=dice.choice((0, 10, 50)),
        slow_ms=dice.choice((200.0, 1_500.0, 6_000.0)),
        lost=dice.choice((0, 2, 10)),
        lag=dice.choice((0, 20, 100)),
    )
