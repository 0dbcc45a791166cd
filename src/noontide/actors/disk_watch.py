"""Whether the disk of a process carries the indexes of its slots; if not for long, others are asked to take them.

Everything on the disk is in the log too, so a disk that fails loses nothing, but a slot without an index is not worked
on. A process whose disk stays full says that it is unfit: the group gives what it has to the others, warm or not, and
nothing new to it, until the disk has been well for a while. Where nobody else is there it keeps its slots, and trying.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from noontide.actors.settings import SchedulerSettings
from noontide.ports.due_index import IndexFailed

log = logging.getLogger("noontide.scheduler")


class DiskWatch:
    """What is known of the disk. probe: writes something; raises IndexFailed when that cannot be done."""

    def __init__(self, probe: Callable[[], None], boot_ms: Callable[[], float], settings: SchedulerSettings) -> None:
        self.is_unfit = False
        self._probe = probe
        self._boot_ms = boot_ms
        self._settings = settings
        self._first_ms: float | None = None
        self._last_ms = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether an index failed a short while ago."""
        return self._first_ms is not None

    def failed(self) -> None:
        """An index could not be opened, read or written. From any thread."""
        self._last_ms = self._boot_ms()
        if self._first_ms is None:
            self._first_ms = self._last_ms

    async def run(self, changed: Callable[[], None]) -> None:
        """Watch without an end; `changed` is called whenever `is_unfit` has changed."""
        while True:
            await asyncio.sleep(self._settings.disk_probe_ms / 1000)
            if self.is_failing:
                await self._look()
                self._judge(changed)

    async def _look(self) -> None:
        try:
            await asyncio.to_thread(self._probe)
        except IndexFailed as error:
            log.debug("disk: %s", error)
            self.failed()

    def _judge(self, changed: Callable[[], None]) -> None:
        """Failures that span some time make unfit, one alone does not: a damaged index is made anew."""
        settings, was_unfit = self._settings, self.is_unfit
        assert self._first_ms is not None
        failed_for_ms = self._last_ms - self._first_ms
        if self._boot_ms() - self._last_ms > settings.disk_calm_ms:
            self._first_ms, self.is_unfit = None, False
        elif failed_for_ms > settings.disk_failed_ms:
            self.is_unfit = True
        if self.is_unfit == was_unfit:
            return
        if self.is_unfit:
            log.warning("the disk has failed for %.0f s: the slots are given to others", failed_for_ms / 1000)
        else:
            log.info("the disk is well again")
        changed()
