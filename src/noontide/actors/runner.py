"""The loop of one slot: take over, work, and take over again after a doubt. The only place that waits.

    taking over ──> working ──Doubt──> taking over ...
         │             ├──Fenced──> fenced     (another owner; the supervisor decides what next)
         └── stop ─────┴──stop───> stopped

Take-over: fence older owners; read the configuration; replay to the ends; read requests up to now; only then fire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from noontide.actors.announcer import Announcer
from noontide.actors.answerer import Answerer
from noontide.actors.breaker import Breakers
from noontide.actors.caution import Caution
from noontide.actors.closing import Delivered
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.effects import Decided, Names
from noontide.actors.intake import Intake
from noontide.actors.local_index import close_index
from noontide.actors.pulse import Pulses, new_pulses
from noontide.actors.read_ahead import ReadAhead
from noontide.actors.restore import Restored, Restorer
from noontide.actors.sender import Sender
from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.actors.slot_ports import SlotPorts, to_nobody
from noontide.actors.waiting import wait_for_event
from noontide.core.tracing import TraceSpan
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.due_index import DueIndex, IndexFailed
from noontide.ports.record_log import Courier, Doubt, Feed, Fenced, Replay, SlotLog, TopicPartition
from noontide.records.config import ConfigView
from noontide.records.owners import OwnerStatus, Speaker

log = logging.getLogger("noontide.slot")

UNREADABLE_LOGGED_MAX = 20
"""Records of the log that cannot be read and are named in the process's log at a take-over; more are only counted."""


class Phase(StrEnum):
    """What a runner is doing."""

    TAKING_OVER = "taking over"
    WORKING = "working"
    HANDING_OVER = "handing over"
    FENCED = "fenced"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPorts:
    """What the slots of one process share, and how to make what they do not.

    url: where the process can be asked. decided: takes verdicts that somebody waits for. spans: takes those of runs
    that are traced.
    """

    owner: str
    clock: BrokerTimeSource
    config: ConfigDirectory
    breakers: Breakers
    feed: Feed
    replay: Replay
    courier: Courier
    open_log: Callable[[int], SlotLog]
    open_index: Callable[[int], DueIndex]
    url: str | None = None
    decided: Callable[[list[Decided]], None] = to_nobody
    spans: Callable[[list[TraceSpan]], None] | None = None
    pulses: Pulses = field(default_factory=new_pulses)


class SlotRunner:
    """Runs one slot until it is stopped or fenced.

    index: the open copy of a standby, which then needs no long replay. `release` gives it back after `run`.
    """

    def __init__(
        self, names: Names, ports: RunnerPorts, settings: SchedulerSettings, *, index: DueIndex | None = None
    ) -> None:
        self.names = names
        self.phase = Phase.TAKING_OVER
        self.slot: Slot | None = None
        self.restored: Restored | None = None
        self.load = 0
        self._ports = ports
        self._settings = settings
        self._wake = asyncio.Event()
        self._intake = Intake(names, ports.feed, ports.replay, settings, wake=self._wake.set)
        self._caution = Caution(settings.inputs_max)
        self._log = ports.open_log(names.slot)
        self._announcer = Announcer(
            names,
            ports.courier,
            ports.clock,
            speaker=Speaker(ports.owner, url=ports.url),
            timeout_ms=settings.send_timeout_ms,
        )
        self._index = index
        self._is_warm = index is not None
        self._restorer: Restorer | None = None
        self._offsets: dict[TopicPartition, int] = {}
        self._checkpointing: asyncio.Future[None] | None = None
        self._answerer: Answerer | None = None
        self._sender: Sender | None = None
        self._read_ahead: Callable[[int], bool] = lambda _until_ms: False
        self._lanes_probed_ms = 0.0
        self._stopping = False
        self._leaves_ms: float | None = None
        self._cycled_ms = 0
        self._doubts = 0
        self.restore_ms: int | None = None
        self._domains_changed = False

    async def run(self) -> Phase:
        """Work until `stop`; returns STOPPED, or FENCED when another owner took the slot."""
        try:
            while not self._stopping:
                await self._own()
            self.phase = Phase.STOPPED
        except Fenced as error:
            if self._leaves_ms is None:
                log.warning("slot %d: %s", self.names.slot, error)
            else:
                log.info("slot %d: handed over", self.names.slot)
            self.phase = Phase.FENCED
        finally:
            await self._close()
        return self.phase

    @property
    def freshness(self) -> int | None:
        """The sum of the offsets that the index reflects; None before anything is known."""
        slot = self.slot
        offsets = self._offsets if slot is None else {**self._offsets, **slot.reflected.offsets}
        return sum(offsets.values()) if offsets else None

    async def _own(self) -> None:
        """From a take-over to the next doubt."""
        try:
            try:
                await self._work(await self._take_over())
            finally:
                await self._let_go()
        except (Fenced, asyncio.CancelledError):
            raise
        except (Doubt, IndexFailed) as error:
            if self._is_leaving(error):
                return
            log.warning("slot %d: %s; replaying", self.names.slot, error)
            await self._after_doubt(error)
        except Exception as error:  # a fault of ours: the log still knows everything, so go on from there
            log.exception("slot %d: unexpected; replaying", self.names.slot)
            await self._after_doubt(error)

    @property
    def readable(self) -> tuple[Slot, DueIndex] | None:
        """The slot and its index, for other threads that only read rows; None while they do not say what is."""
        slot, index = self.slot, self._index
        return None if slot is None or index is None or self.phase is Phase.TAKING_OVER else (slot, index)

    def stop(self) -> None:
        """Finish the cycle under way, then stop."""
        self._stopping = True
        if self._restorer is not None:
            self._restorer.abandoned = True
        self._wake.set()

    def hand_over(self) -> None:
        """Work on until another owner takes the slot, at most for `handover_ms`; then end."""
        if self.phase is Phase.WORKING:
            self._leaves_ms = self._ports.clock.boot_ms() + self._settings.handover_ms
            self.phase = Phase.HANDING_OVER
            self._wake.set()
        elif self.phase is Phase.TAKING_OVER:
            self.stop()

    def keep(self) -> None:
        """The slot is not to be handed over after all."""
        if self.phase is Phase.HANDING_OVER:
            self.phase, self._leaves_ms = Phase.WORKING, None

    def config_changed(self, view: ConfigView) -> None:
        """New request domains may have appeared."""
        self._domains_changed = bool(view.domains or view.lanes)
        self._wake.set()

    def release(self) -> DueIndex | None:
        """The open index, for whoever goes on with it; None when it had to be closed."""
        index, self._index = self._index, None
        return index

    # --- taking over

    async def _take_over(self) -> Slot:
        self.phase, self.slot = Phase.TAKING_OVER, None
        if self._index is None:
            self._index = await asyncio.to_thread(self._ports.open_index, self.names.slot)
        if not self._is_warm and self._ports.clock.trusted():
            self._is_warm = True  # while the owner before, if there is one, works on
            await self._replayed(self._index, ahead=True)
        began_ms = self._ports.clock.boot_ms()
        await self._log.open()
        await self._announcer.tell(OwnerStatus(self.phase))
        config = await self._ports.config.refresh()
        self.restored = await self._replayed(self._index)
        sender = self._sender = Sender(self._ports.courier, self._delivered, self._settings)
        answerer = self._answerer = Answerer(self._ports.courier, self.names, self._ports.owner, self._settings)
        ahead = ReadAhead(self._index, bytes_max=self._settings.read_ahead_max_bytes)
        ports = SlotPorts(
            log=self._log, index=ahead, clock=self._ports.clock, config=self._ports.config,
            breakers=self._ports.breakers, send=sender.send, answer=answerer.answer, decided=self._ports.decided,
            spans=self._ports.spans, pulse=self._ports.pulses[self.names.slot],
        )  # fmt: skip
        slot = self.slot = Slot(self.names, ports, self._settings, self._caution)
        self._read_ahead = partial(ahead.step, [partition.window for partition in slot.partitions.values()])
        slot.load()  # sends what may not have been sent; the answers may come before the slot is at work
        await self._intake.begin(slot, config)
        self.phase = Phase.WORKING
        for what in self.restored.unreadable[:UNREADABLE_LOGGED_MAX]:
            log.warning("slot %d: passed over %s", self.names.slot, what)
        self.restore_ms = round(self._ports.clock.boot_ms() - began_ms)
        log.info("slot %d: owned after %d ms (%s)", self.names.slot, self.restore_ms, self.restored)
        await self._announcer.tell(OwnerStatus(self.phase, restore_ms=self.restore_ms))
        return slot

    async def _replayed(self, index: DueIndex, *, ahead: bool = False) -> Restored:
        """Bring the index up to the log in a thread, and say meanwhile how far it is."""
        restorer = Restorer(self.names, index=index, replay=self._ports.replay, settings=self._settings)
        self._restorer = restorer
        restorer.abandoned = self._stopping
        work = partial(restorer.catch_up if ahead else restorer.restore, now_ms=self._ports.clock.now_ms())
        replaying = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            while not (await asyncio.wait({replaying}, timeout=self._settings.status_ms / 1000))[0]:
                if not ahead:
                    status = OwnerStatus("replaying", read=restorer.progress.read, total=restorer.progress.total)
                    self._announcer.tell_meanwhile(status)
            return replaying.result()
        finally:
            restorer.abandoned = True
            await asyncio.wait({replaying})
            self._restorer = None
            self._offsets = restorer.offsets() if replaying.exception() is None else {}

    def _delivered(self, partition: int, event: Delivered) -> None:
        if self.slot is not None:
            self.slot.deliver(partition, event)
            self._wake.set()

    # --- working

    async def _work(self, slot: Slot) -> None:
        clock, settings = self._ports.clock, self._settings
        checkpoint_ms = probe_ms = clock.boot_ms()
        while not self._stopping:
            self._wake.clear()
            slot.holds_fire = slot.requests_decided < self._intake.first_requests
            if self._domains_changed:
                self._domains_changed = False
                await self._intake.attach_new(slot, self._ports.config.view)
            worked = await self._cycle(slot)
            self._intake.ease(slot)
            now_ms = clock.boot_ms()
            if now_ms - checkpoint_ms > settings.checkpoint_ms:
                checkpoint_ms = now_ms
                await self._checkpoint()
            if now_ms - probe_ms > (settings.status_ms if clock.trusted() else settings.distrust_probe_ms):
                self._tell(slot, now_ms - probe_ms)
                probe_ms = now_ms
                self._domains_changed = True
            self._move_lease_time(slot)
            if worked:
                gathers = slot.written < settings.cycle_gap_below
                await asyncio.sleep(settings.cycle_gap_ms / 1000 if gathers else 0)
            elif self._read_ahead(clock.now_ms() + settings.read_ahead_ms):
                await asyncio.sleep(0)
            else:
                await self._sleep(slot)

    async def _cycle(self, slot: Slot) -> bool:
        """One cycle; while the slot is handed over, also a look whether it still is ours."""
        worked = await slot.cycle()
        if worked:
            self._doubts, self._cycled_ms = 0, self._ports.clock.now_ms()
        elif self._leaves_ms is not None:
            await slot.prove()
        if self._leaves_ms is not None and self._ports.clock.boot_ms() > self._leaves_ms:
            log.info("slot %d: nobody took it in %d ms", self.names.slot, self._settings.handover_ms)
            self._stopping = True
        return worked

    def _tell(self, slot: Slot, elapsed_ms: float) -> None:
        """Say how the slot is; its load is records written per second, the latest counting half."""
        now_ms, wake_ms = self._ports.clock.now_ms(), slot.next_wake_ms()
        self.load = round((self.load + slot.reflected.records * 1000 / max(1.0, elapsed_ms)) / 2)
        slot.reflected.records = 0
        status = OwnerStatus(
            self.phase,
            restore_ms=self.restore_ms,
            lag=slot.backlog,
            late_ms=0 if wake_ms is None else max(0, now_ms - wake_ms),
            cycle=slot.cycle_number,
            cycle_at=self._cycled_ms,
        )
        self._announcer.tell_meanwhile(status)

    async def _sleep(self, slot: Slot) -> None:
        """Until something arrives, something is due, or a heartbeat has passed."""
        wake_ms = slot.next_wake_ms()
        delay_ms = float(self._settings.heartbeat_ms)
        if wake_ms is not None:
            delay_ms = min(delay_ms, max(1.0, wake_ms - self._ports.clock.now_ms()))
        if not slot.may_fire:
            delay_ms = float(self._settings.hold_poll_ms)
        if self._leaves_ms is not None:
            delay_ms = min(delay_ms, float(self._settings.handover_poll_ms))
        await wait_for_event(self._wake, at_most_ms=delay_ms)

    def _move_lease_time(self, slot: Slot) -> None:
        """Probe lanes that hold leases and are silent: lease time passes only with what is heard."""
        boot_ms, silence_ms = self._ports.clock.boot_ms(), self._settings.lane_silence_ms
        if boot_ms - self._lanes_probed_ms >= silence_ms and self._answerer is not None:
            self._lanes_probed_ms = boot_ms
            self._answerer.probe(slot.keeper.silent_lanes(self._ports.clock.now_ms(), silence_ms))

    # --- leaving

    async def _let_go(self) -> None:
        """Nothing reaches the slot any more, even if it was left in the middle of a take-over."""
        self._intake.detach()
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()

    def _is_leaving(self, error: Exception) -> bool:
        """Whether a doubt ends the work here: taking a slot again that is handed over would fence the next owner."""
        if self._leaves_ms is None and not self._stopping:
            return False
        log.info("slot %d: ends with a doubt: %s", self.names.slot, error)
        self._stopping = True
        return True

    async def _after_doubt(self, error: Exception) -> None:
        self.phase, self.slot = Phase.TAKING_OVER, None  # whoever is given the slot now is not fenced
        self._doubts += 1
        if not isinstance(error, Doubt):
            await self._close_index()
        if self._doubts > 1 and not self._stopping:
            settings = self._settings
            pause_ms = min(settings.doubt_pause_max_ms, settings.doubt_pause_ms << min(self._doubts, 20))
            await wait_for_event(self._wake, at_most_ms=pause_ms)

    async def _checkpoint(self) -> None:
        """Flush the index in the background; an error of the one before is raised here."""
        await self._checkpointed()
        assert self._index is not None
        self._checkpointing = asyncio.ensure_future(asyncio.to_thread(self._index.checkpoint))

    async def _checkpointed(self) -> None:
        flush, self._checkpointing = self._checkpointing, None
        if flush is not None:
            await flush

    async def _close_index(self) -> None:
        """Close the index, whatever the disk says to that: the log has everything."""
        index = self.release()
        with suppress(IndexFailed):
            await self._checkpointed()
        if index is not None:
            await close_index(index, self.names.slot)

    async def _close(self) -> None:
        """Leave the slot to others first, then make the copy durable."""
        if self.slot is not None:
            self._offsets |= self.slot.reflected.offsets
            self.slot = None
        await self._log.close()
        await self._announcer.close()
        try:
            await self._checkpointed()
            if self._index is not None:
                await asyncio.to_thread(self._index.checkpoint)
        except IndexFailed as error:
            log.warning("slot %d: %s", self.names.slot, error)
            await self._close_index()
