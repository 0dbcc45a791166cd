"""Owns the slots of one process, and stands by for others: starts and stops what the group assigns.

Membership is a hint. A slot that the group gives to another process is worked on until that one has taken it (a fence
says so), so a planned hand-over leaves no gap. When a runner is fenced although the group still assigns the slot here,
it is tried again only after a pause, and if nothing changed meanwhile: two owners must not fence each other in turn.

The index of a slot stays open from standby to owner and back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from noontide.actors.disk_watch import DiskWatch
from noontide.actors.local_index import close_index
from noontide.actors.runner import Phase, SlotRunner
from noontide.actors.settings import SchedulerSettings
from noontide.actors.standby import Standby
from noontide.actors.waiting import wait_for_event
from noontide.ports.due_index import DueIndex
from noontide.ports.membership import Assignment, Membership, Standing
from noontide.records.config import ConfigView

log = logging.getLogger("noontide.scheduler")

_RETIRE_TIMEOUT_S = 3.0


class Copies(Protocol):
    """What is known of local copies that are not open."""

    def freshness(self) -> Mapping[int, int]:
        """Per slot the sum of the offsets that the copy on disk reflects."""

    def note(self, slot: int, freshness: int) -> None:
        """A copy on disk reflects so much."""


class Supervisor:
    """All slots of a process. `make_runner` and `make_standby` build what works on a slot; the index may be open."""

    def __init__(
        self,
        make_runner: Callable[[int, DueIndex | None], SlotRunner],
        make_standby: Callable[[int, DueIndex | None], Standby],
        settings: SchedulerSettings,
        *,
        copies: Copies,
        disk: DiskWatch,
    ) -> None:
        self.runners: dict[int, SlotRunner] = {}
        self.standbys: dict[int, Standby] = {}
        self.fenced: Counter[int] = Counter()
        self._make_runner = make_runner
        self._make_standby = make_standby
        self._settings = settings
        self._copies = copies
        self.disk = disk
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wanted = Assignment()
        self._ending = False
        self._changed = asyncio.Event()

    async def run(self, membership: Membership, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then hand over slot by slot: the group is left after the last cycle."""
        await membership.join(self.assign)
        warming = asyncio.create_task(self._ask_for_warmed(membership), name="warming")
        watching = asyncio.create_task(self.disk.run(membership.rejoin), name="disk")
        try:
            await stop.wait()
            await self._retire(membership)
        finally:
            warming.cancel()
            watching.cancel()
            self._stop_all()
            await asyncio.gather(warming, watching, *self._tasks.values(), return_exceptions=True)
            await membership.leave()

    def assign(self, assignment: Assignment) -> None:
        """What this process is to do is now this; once it ends, what the group still says changes nothing."""
        if self._ending:
            return
        if assignment.owned != self._wanted.owned:
            log.info("slots: %s", ", ".join(map(str, sorted(assignment.owned))) or "none")
        self._wanted = assignment
        self._changed.set()
        self._changed = asyncio.Event()
        for slot, runner in self.runners.items():
            if slot in assignment.owned:
                runner.keep()
            else:
                runner.hand_over()
        for slot, standby in self.standbys.items():
            if slot in assignment.owned or slot not in assignment.standby:
                standby.stop()
        for slot in sorted((assignment.owned | assignment.standby) - self._tasks.keys()):
            self._tasks[slot] = asyncio.create_task(self._keep(slot), name=f"slot-{slot}")

    def standing(self) -> Standing:
        """What to tell the group about the slots."""
        copies = {slot: each.freshness for slot, each in self.standbys.items()}
        copies |= {slot: each.freshness for slot, each in self.runners.items()}
        known = {slot: freshness for slot, freshness in copies.items() if freshness is not None}
        load = {slot: each.load for slot, each in self.runners.items()}
        return Standing({**self._copies.freshness(), **known}, load, unfit=self.disk.is_unfit)

    def config_changed(self, view: ConfigView) -> None:
        """Tell all runners."""
        for runner in self.runners.values():
            runner.config_changed(view)

    # --- one slot

    async def _keep(self, slot: int) -> None:
        """Own a slot or stand by for it, for as long as that is wanted here."""
        try:
            while self._is_wanted(slot):
                await self._drop(slot, await self._keep_open(slot))
        finally:
            self._tasks.pop(slot, None)

    async def _keep_open(self, slot: int) -> DueIndex | None:
        """The same until it is not wanted; returns the index, which stayed open from one to the other."""
        index: DueIndex | None = None
        while self._is_wanted(slot):
            try:
                work = self._own if slot in self._wanted.owned else self._stand_by
                index = await work(slot, index)
            except Exception:  # a fault of ours must not leave the slot to nobody
                log.exception("slot %d: unexpected; beginning again", slot)
                index = None
                await self._stand_back(slot)
        return index

    def _is_wanted(self, slot: int) -> bool:
        return slot in self._wanted.owned or slot in self._wanted.standby

    async def _own(self, slot: int, index: DueIndex | None) -> DueIndex | None:
        runner = self.runners[slot] = self._make_runner(slot, index)
        try:
            phase = await runner.run()
        except Exception:
            await self._drop(slot, runner.release())
            raise
        finally:
            del self.runners[slot]
        if runner.freshness is not None:
            self._copies.note(slot, runner.freshness)
        index = runner.release()
        if phase is Phase.FENCED and slot in self._wanted.owned:
            self.fenced[slot] += 1
            await self._stand_back(slot)
        return index

    async def _stand_by(self, slot: int, index: DueIndex | None) -> DueIndex | None:
        standby = self.standbys[slot] = self._make_standby(slot, index)
        try:
            await standby.run()
        except Exception:
            await self._drop(slot, standby.release())
            raise
        finally:
            del self.standbys[slot]
        return standby.release()

    async def _drop(self, slot: int, index: DueIndex | None) -> None:
        if index is not None:
            await close_index(index, slot)

    async def _stand_back(self, slot: int) -> None:
        pause_ms = self._settings.fenced_retry_ms * (1 + slot % 4 / 4)
        await wait_for_event(self._changed, at_most_ms=pause_ms)

    # --- warm copies, and the end

    async def _ask_for_warmed(self, membership: Membership) -> None:
        """When copies of slots that are promised to this process have caught up, ask for them."""
        while True:
            await asyncio.sleep(self._settings.standby_poll_ms / 1000)
            warming = self._wanted.warming
            if warming and all(slot in self.standbys and self.standbys[slot].is_warm for slot in warming):
                log.info("slots %s are warm here", ", ".join(map(str, sorted(warming))))
                membership.rejoin()
                await wait_for_event(self._changed, at_most_ms=self._settings.warming_retry_ms)

    async def _retire(self, membership: Membership) -> None:
        """Give the slots away while they are worked on, and wait until all are taken, if somebody is there to."""
        membership.retire()
        deadline_s = asyncio.get_running_loop().time() + _RETIRE_TIMEOUT_S
        while not self._wanted.retired and asyncio.get_running_loop().time() < deadline_s:
            await wait_for_event(self._changed, at_most_ms=_RETIRE_TIMEOUT_S * 1000)
        if self._wanted.retired and not self._wanted.owned and self._tasks:
            log.info("handing over %d slots", len(self.runners))
            await asyncio.wait(self._tasks.values(), timeout=self._settings.handover_ms / 1000)

    def _stop_all(self) -> None:
        self._ending = True
        self._wanted = Assignment(retired=True)
        self._changed.set()
        for runner in self.runners.values():
            runner.stop()
        for standby in self.standbys.values():
            standby.stop()
