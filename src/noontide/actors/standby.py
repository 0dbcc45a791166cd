"""A copy of somebody else's slot: follows `jobs`, `state` and `leases` into an index that a take-over goes on with.

The copying takes a bounded share of a core. The copy counts as complete up to a time only after the ends of that time
were asked for and reached: a partition that is silent proves nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from noontide.actors.announcer import Announcer
from noontide.actors.effects import Names
from noontide.actors.local_index import close_index
from noontide.actors.restore import Restorer
from noontide.actors.settings import SchedulerSettings
from noontide.actors.waiting import wait_for_event
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.due_index import DueIndex, IndexFailed
from noontide.ports.record_log import Courier, Doubt, Follower, Replay, TopicPartition
from noontide.records.owners import STANDBY, OwnerStatus, Speaker

log = logging.getLogger("noontide.standby")


class StandbyPhase(StrEnum):
    """What a standby is doing."""

    COPYING = "copying"
    WARM = "warm"


@dataclass(slots=True)
class CopyBudget:
    """Bounds what the standbys of a process use of a core together. percent: 1 to 100.

    Whoever has worked books the time that this work may take at that share, behind what others booked, and rests until
    then.
    """

    percent: int
    _booked_ms: float = 0.0

    def rest_ms(self, now_ms: float, worked_ms: float) -> float:
        """How long to rest after some work that has just ended."""
        share = min(100, self.percent) / 100
        self._booked_ms = max(self._booked_ms, now_ms - worked_ms) + worked_ms / share
        return max(0.0, self._booked_ms - now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyPorts:
    """What the standbys of one process share, and how to open an index."""

    process: str
    clock: BrokerTimeSource
    replay: Replay
    courier: Courier
    open_index: Callable[[int], DueIndex]
    budget: CopyBudget


class Standby:
    """Copies one slot until it is stopped. index: an open copy to go on with; `release` gives it back after `run`."""

    def __init__(
        self, names: Names, ports: StandbyPorts, settings: SchedulerSettings, *, index: DueIndex | None = None
    ) -> None:
        self.names = names
        self.lag: int | None = None
        self._ports = ports
        self._settings = settings
        self._announcer = Announcer(
            names,
            ports.courier,
            ports.clock,
            speaker=Speaker(ports.process, STANDBY),
            timeout_ms=settings.send_timeout_ms,
        )
        self._index = index
        self._follower: Follower | None = None
        self._wanted: tuple[int, dict[TopicPartition, int]] | None = None
        self._stopping = asyncio.Event()

    @property
    def freshness(self) -> int | None:
        """The sum of the offsets that the copy reflects; None before anything is known."""
        return None if self._follower is None else sum(self._follower.positions.values())

    @property
    def is_warm(self) -> bool:
        """Whether the copy lacks so little that a take-over is a matter of a moment."""
        return self.lag is not None and self.lag <= self._settings.warm_lag_max

    async def run(self) -> None:
        """Copy until `stop`. A log or a disk that cannot be read is tried again."""
        try:
            while not self._stopping.is_set():
                try:
                    await self._copy()
                except (Doubt, IndexFailed) as error:
                    log.warning("standby of slot %d: %s; beginning again", self.names.slot, error)
                    if isinstance(error, IndexFailed) and (index := self.release()) is not None:
                        await close_index(index, self.names.slot)
                    await wait_for_event(self._stopping, at_most_ms=self._settings.standby_retry_ms)
        finally:
            await self._announcer.close()
            await self._announcer.withdraw()

    def stop(self) -> None:
        """End soon; what was copied stays."""
        self._stopping.set()

    def release(self) -> DueIndex | None:
        """The open index, for whoever goes on with it; None when it had to be closed."""
        index, self._index = self._index, None
        return index

    async def _copy(self) -> None:
        """From the local copy's offsets on, without an end."""
        self.lag = None
        await self._announcer.tell(OwnerStatus(StandbyPhase.COPYING))
        if self._index is None:
            self._index = await asyncio.to_thread(self._ports.open_index, self.names.slot)
        restorer = Restorer(self.names, index=self._index, replay=self._ports.replay, settings=self._settings)
        positions = await asyncio.to_thread(partial(restorer.prepare, now_ms=self._ports.clock.now_ms()))
        self._follower = follower = await asyncio.to_thread(self._ports.replay.follow, positions)
        self._wanted = None
        try:
            await self._follow(follower, restorer)
        finally:
            self._follower = None
            await asyncio.to_thread(follower.close)

    async def _follow(self, follower: Follower, restorer: Restorer) -> None:
        clock, settings = self._ports.clock, self._settings
        told_ms = verified_ms = checkpoint_ms = clock.boot_ms()
        while not self._stopping.is_set():
            began_ms = clock.boot_ms()
            count = await asyncio.to_thread(self._step, follower, restorer)
            now_ms = clock.boot_ms()
            if now_ms - told_ms > settings.status_ms or (self.lag is None and not count):
                told_ms = now_ms
                self._tell(follower)
            if now_ms - checkpoint_ms > settings.checkpoint_ms:
                checkpoint_ms = now_ms
                await asyncio.to_thread(restorer.checkpoint)
            if now_ms - verified_ms > settings.standby_verify_ms:
                verified_ms = now_ms
                await self._ask_ends(restorer)
                await asyncio.to_thread(restorer.sweep, clock.now_ms() - settings.standby_sweep_ms)
            self._verify(follower, restorer)
            rest_ms = self._ports.budget.rest_ms(now_ms, now_ms - began_ms)
            if count < settings.standby_records_max:  # it has caught up
                rest_ms = max(rest_ms, float(settings.standby_poll_ms))
            await wait_for_event(self._stopping, at_most_ms=rest_ms)

    def _step(self, follower: Follower, restorer: Restorer) -> int:
        """Copy what is there, up to a bound; for a thread."""
        records = follower.read(self._settings.standby_records_max)
        if records:
            restorer.apply(records)
        return len(records)

    def _tell(self, follower: Follower) -> None:
        self.lag = follower.lag()
        if self.lag is None:
            return
        phase = StandbyPhase.WARM if self.is_warm else StandbyPhase.COPYING
        read = sum(follower.positions.values())
        self._announcer.tell_meanwhile(OwnerStatus(phase, read=read, total=read + self.lag, lag=self.lag))

    async def _ask_ends(self, restorer: Restorer) -> None:
        """Begin to verify: where everything that is committed now ends."""
        now_ms = self._ports.clock.now_ms()
        ends = await asyncio.to_thread(self._ports.replay.stable_offsets, tuple(restorer.offsets()))
        self._wanted = now_ms, ends

    def _verify(self, follower: Follower, restorer: Restorer) -> None:
        if self._wanted is None:
            return
        asked_ms, ends = self._wanted
        if all(follower.positions[at] >= end for at, end in ends.items()):
            self._wanted = None
            restorer.note_complete(asked_ms)
