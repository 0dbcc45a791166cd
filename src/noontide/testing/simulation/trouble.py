"""Whoever breaks things: at random times something goes wrong somewhere; in the end everything heals."""

from __future__ import annotations

import asyncio
from typing import Final

from noontide.adapters.memory.log import MemoryLog
from noontide.records.topics import Layout
from noontide.testing.simulation.groups import SESSION_MS, SlotGroup
from noontide.testing.simulation.hosts import SchedulerHost, WorkerHost, transactional_id
from noontide.testing.simulation.network import Site, Wire
from noontide.testing.simulation.people import SICKLY
from noontide.testing.virtual_clock import START_MS

PLACES: Final = (
    "opening", "opened", "topic_ids", "end_offsets", "stable_offsets", "read",
    "begun", "begun", "written", "written", "settled", "settled", "apply", "apply", "applied", "send", "sent",
)  # fmt: skip
"""Where a scheduler may die: before and after each message to the broker, and around the apply."""
WORKER_PLACES: Final = ("post", "posted")
TRANSACTION_MS: Final = 10_000
TOMBSTONES_MS: Final = 16_000
CLOCK_JUMPS_MS: Final = (200, 2_000, 15_000, 90_000)
COMPACTED: Final = ("jobs", "state", "leases", "config")


class Trouble:
    """Chooses by the dice what happens next. `broker_jump_ms`: how far the broker's clock has jumped."""

    def __init__(self, site: Site, log: MemoryLog, layout: Layout, group: SlotGroup) -> None:
        self.broker_jump_ms = 0
        self.schedulers: list[SchedulerHost] = []
        self.workers: list[WorkerHost] = []
        self._site = site
        self._dice = site.dice
        self._log = log
        self._layout = layout
        self._group = group
        self._kinds = [
            self.crash_scheduler, self.crash_scheduler, self.ambush, self.ambush, self.ambush, self.freeze, self.freeze,
            self.cut, self.stop_scheduler, self.rebalance, self.rebalance, self.crash_worker, self.freeze_worker,
            self.stop_worker, self.compact, self.compact, self.jump, self.fill_disk, self.sicken, self.cut_worker,
            self.black_out,
        ]  # fmt: skip

    def strike(self) -> None:
        """Something goes wrong."""
        self._dice.choice(self._kinds)()

    def heal(self) -> None:
        """Everything is well from now on; who is down comes back by itself."""
        self._site.weather.calm()
        self._site.tell("all is well from here on")
        self._log.faults.accept(SICKLY)
        for wire in self._wires():
            wire.ambush, wire.cut_until_ms = None, 0.0
        for each in self.schedulers:
            each.disk.is_full = False

    def _tell(self, what: str) -> None:
        self._site.counts["faults"] += 1
        self._site.tell(what)

    # --- schedulers

    def crash_scheduler(self) -> None:
        """Kill -9 at any step."""
        host = self._dice.choice(self.schedulers)
        if host.process.alive:
            self._site.counts["crashes"] += 1
            self._tell(f"{host.process.name} is killed")
            host.kill()

    def ambush(self) -> None:
        """Kill -9 at a certain step."""
        host = self._dice.choice(self.schedulers)
        host.wire.ambush = self._dice.choice(PLACES)

    def freeze(self) -> None:
        """SIGSTOP and, after a while, SIGCONT: it wakes up as what it was."""
        host, stop_ms = self._dice.choice(self.schedulers), self._dice.choice((300, 3_000, 5_000, 8_000, 14_000))
        process = host.process
        if not process.runs:
            return
        self._tell(f"{process.name} is frozen for {stop_ms} ms")
        process.pause()
        self._group.session_ends(process)

        def wake() -> None:
            if process.alive:
                process.resume()
                self._site.tell(f"{process.name} wakes up")
                self._group.comes_back(process)

        self._site.later(stop_ms, wake)

    def cut(self) -> None:
        """Nothing gets through for a while; the group believes it dead after its session."""
        host, cut_ms = self._dice.choice(self.schedulers), self._dice.choice((400, 3_000, 5_000, 9_000))
        host.wire.cut_until_ms = self._site.loop.now_ms + cut_ms
        process = host.process
        self._tell(f"{process.name} is cut off for {cut_ms} ms")
        if cut_ms > SESSION_MS and process.runs:
            self._site.later(SESSION_MS, self._group.expire, process)
            self._site.later(cut_ms, self._group.comes_back, process)

    def stop_scheduler(self) -> None:
        """SIGTERM."""
        host = self._dice.choice(self.schedulers)
        if host.process.runs:
            self._tell(f"{host.process.name} is told to stop")
            host.stop.set()

    def rebalance(self) -> None:
        """The group thinks again."""
        self._tell("rebalance")
        self._group.divide(by_dice=bool(self._dice.randrange(2)))

    def fill_disk(self) -> None:
        """No space left, for a while."""
        host = self._dice.choice(self.schedulers)
        self._tell(f"the disk of {host.name} is full")
        host.disk.is_full = True

        def free() -> None:
            host.disk.is_full = False

        self._site.later(self._dice.choice((500, 4_000, 12_000)), free)

    # --- workers

    def crash_worker(self) -> None:
        """Kill -9 of a worker, now or when it speaks."""
        host = self._dice.choice(self.workers)
        if self._dice.randrange(2):
            host.wire.ambush = self._dice.choice(WORKER_PLACES)
        elif host.process.alive:
            self._site.counts["crashes"] += 1
            self._tell(f"{host.process.name} is killed")
            host.kill()

    def freeze_worker(self) -> None:
        """SIGSTOP of a worker; it may wake up long after its leases."""
        process, stop_ms = self._dice.choice(self.workers).process, self._dice.choice((500, 4_000, 12_000))
        if process.runs:
            self._tell(f"{process.name} is frozen for {stop_ms} ms")
            process.pause()
            self._site.later(stop_ms, process.resume)

    def cut_worker(self) -> None:
        """A worker reaches nobody for a while, and works on."""
        host, cut_ms = self._dice.choice(self.workers), self._dice.choice((500, 4_000, 9_000))
        self._tell(f"{host.process.name} is cut off for {cut_ms} ms")
        host.wire.cut_until_ms = self._site.loop.now_ms + cut_ms

    def stop_worker(self) -> None:
        """SIGTERM of a worker."""
        host = self._dice.choice(self.workers)
        if host.process.runs:
            self._tell(f"{host.process.name} is told to stop")
            host.stop.set()

    # --- the broker

    def compact(self) -> None:
        """The cleaner runs."""
        topic = self._dice.choice(COMPACTED)
        self._tell(f"{topic} is compacted")
        before_ms = START_MS + int(self._site.loop.now_ms) - TOMBSTONES_MS  # a clock that jumps makes nothing older
        self._log.compact(self._layout.name(topic), drop_tombstones=True, older_than_ms=before_ms)

    def jump(self) -> None:
        """The broker's clock jumps."""
        jump_ms = self._dice.choice(CLOCK_JUMPS_MS)
        self._tell(f"the broker's clock jumps by {jump_ms} ms")
        self.broker_jump_ms += jump_ms

    def sicken(self) -> None:
        """A registered topic refuses records for a while."""
        self._tell(f"topic {SICKLY} is sick")
        self._log.faults.refuse(SICKLY)
        self._site.later(self._dice.choice((600, 5_000)), lambda: self._log.faults.accept(SICKLY))

    def broker_now_ms(self) -> int:
        """What the broker's clock says."""
        return START_MS + int(self._site.loop.now_ms) + self.broker_jump_ms

    def black_out(self) -> None:
        """Nobody reaches the broker for a while, and the groups, which are there too, miss nobody."""
        cut_ms = self._dice.choice((1_000, 4_000, 9_000))
        self._tell(f"the broker is away for {cut_ms} ms")
        for wire in self._wires():
            wire.cut_until_ms = max(wire.cut_until_ms, self._site.loop.now_ms + cut_ms)

    def _wires(self) -> list[Wire]:
        return [*(host.wire for host in self.schedulers), *(host.wire for host in self.workers)]

    async def abort_old_transactions(self) -> None:
        """The broker aborts what was open for too long, when nobody takes over."""
        seen: dict[str, int] = {}
        while True:
            await asyncio.sleep(TRANSACTION_MS / 1000)
            for slot in range(self._layout.slots):
                name = transactional_id(self._layout, slot)
                number = self._log.open_transaction(name)
                if number is not None and seen.get(name) == number and self._log.expire(name):
                    self._tell(f"the broker aborts the open transaction of {name}")
                if number is not None:
                    seen[name] = number
