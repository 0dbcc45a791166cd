"""Owns the slots of one process: starts a runner for each slot the group assigns, stops those it takes away.

Membership is a hint. When a runner is fenced although the group still assigns the slot here, it is tried again only
after a pause, and only if nothing changed meanwhile: two owners must not fence each other in turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from noontide.actors.runner import Phase, SlotRunner
from noontide.actors.settings import SchedulerSettings
from noontide.ports.membership import Membership
from noontide.records.config import ConfigView

log = logging.getLogger("noontide.scheduler")


class Supervisor:
    """All slots of a process. `make_runner` builds the runner of a slot."""

    def __init__(self, make_runner: Callable[[int], SlotRunner], settings: SchedulerSettings) -> None:
        self.runners: dict[int, SlotRunner] = {}
        self._make_runner = make_runner
        self._settings = settings
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wanted: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    async def run(self, membership: Membership, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then hand over: the group is left after the last cycle."""
        await membership.join(self.assign)
        try:
            await stop.wait()
        finally:
            self.assign(frozenset())
            await asyncio.gather(*self._tasks.values())
            await membership.leave()

    def assign(self, slots: frozenset[int]) -> None:
        """The slots of this process are now these."""
        if slots != self._wanted:
            log.info("slots: %s", ", ".join(map(str, sorted(slots))) or "none")
        self._wanted = slots
        self._changed.set()
        self._changed = asyncio.Event()
        for slot, runner in self.runners.items():
            if slot not in slots:
                runner.stop()
        for slot in sorted(slots - self._tasks.keys()):
            self._tasks[slot] = asyncio.create_task(self._keep(slot), name=f"slot-{slot}")

    def config_changed(self, view: ConfigView) -> None:
        """Tell all runners."""
        for runner in self.runners.values():
            runner.config_changed(view)

    async def _keep(self, slot: int) -> None:
        """Run a slot for as long as it is wanted here."""
        try:
            while slot in self._wanted:
                runner = self.runners[slot] = self._make_runner(slot)
                phase = await runner.run()
                del self.runners[slot]
                if phase is Phase.FENCED and slot in self._wanted:
                    await self._stand_back(slot)
        finally:
            self.runners.pop(slot, None)
            self._tasks.pop(slot, None)

    async def _stand_back(self, slot: int) -> None:
        pause_ms = self._settings.fenced_retry_ms * (1 + slot % 4 / 4)
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return
