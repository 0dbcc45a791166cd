"""A disk that fails for long makes a process unfit, until it has been well for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from noontide.actors.disk_watch import DiskWatch
from noontide.actors.settings import SchedulerSettings
from noontide.ports.due_index import IndexFailed

SETTINGS = SchedulerSettings(disk_failed_ms=15_000, disk_calm_ms=60_000, disk_probe_ms=1)


class Disk:
    """A disk that is full or not, on a clock that the test moves."""

    def __init__(self) -> None:
        self.is_full = True
        self.boot_ms = 1_000.0
        self.probes = 0
        self.told: list[bool] = []
        self.watch = DiskWatch(self.probe, lambda: self.boot_ms, SETTINGS)

    def probe(self) -> None:
        self.probes += 1
        if self.is_full:
            raise IndexFailed("no space left on device")

    async def pass_by(self, milliseconds: float) -> None:
        """Time passes, and then the disk has been looked at."""
        self.boot_ms += milliseconds
        before = self.probes
        async with asyncio.timeout(30):
            while self.watch.is_failing and self.probes < before + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@asynccontextmanager
async def watched(disk: Disk) -> AsyncIterator[Disk]:
    task = asyncio.create_task(disk.watch.run(lambda: disk.told.append(disk.watch.is_unfit)))
    try:
        yield disk
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_disk_that_stays_full_makes_unfit_and_one_that_is_well_again_fit() -> None:
    async with watched(Disk()) as disk:
        disk.watch.failed()
        await disk.pass_by(15_000)
        assert (disk.watch.is_unfit, disk.told) == (False, []), "just so long"
        await disk.pass_by(1)
        assert (disk.watch.is_unfit, disk.told) == (True, [True])
        disk.is_full = False
        await disk.pass_by(60_000)
        assert disk.watch.is_unfit, "it may be full again in a moment"
        await disk.pass_by(1)
        assert (disk.watch.is_unfit, disk.watch.is_failing, disk.told) == (False, False, [True, False])


async def test_an_index_that_fails_on_a_disk_that_seems_well_counts_too() -> None:
    async with watched(Disk()) as disk:
        disk.is_full = False
        for _ in range(4):
            disk.watch.failed()
            await disk.pass_by(5_000)
        disk.watch.failed()
        await disk.pass_by(0)
        assert disk.watch.is_unfit


@pytest.mark.parametrize("later_ms", [0, 14_999, 60_001])
async def test_a_failure_now_and_then_is_no_reason(later_ms: float) -> None:
    async with watched(Disk()) as disk:
        disk.is_full = False
        disk.watch.failed()
        await disk.pass_by(later_ms)
        disk.watch.failed()
        await disk.pass_by(1)
        assert not disk.watch.is_unfit


async def test_a_disk_that_never_failed_is_not_written_to() -> None:
    async with watched(Disk()) as disk:
        await asyncio.sleep(0.02)
        assert disk.probes == 0
