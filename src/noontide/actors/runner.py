"""The loop of one slot: take over, work, and take over again after a doubt. The only place that waits.

    taking over ──> working ──Doubt──> taking over ...
         │             ├──Fenced──> fenced     (another owner; the supervisor decides what next)
         └── stop ─────┴──stop───> stopped

Take-over: fence older owners; read the configuration; replay to the ends; read requests up to now; only then fire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import orjson

from noontide.actors.answerer import Answerer
from noontide.actors.breaker import Breakers
from noontide.actors.caution import Caution
from noontide.actors.closing import Delivered
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.effects import Decided, Names
from noontide.actors.inputs import Inputs
from noontide.actors.restore import Restored, Restorer
from noontide.actors.sender import Sender
from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.actors.slot_ports import SlotPorts, to_nobody
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.due_index import DueIndex, IndexFailed
from noontide.ports.record_log import Courier, Doubt, Feed, Fenced, Incoming, Record, Replay, SlotLog, TopicPartition
from noontide.records.config import ConfigView

log = logging.getLogger("noontide.slot")


UNREADABLE_LOGGED_MAX = 20
"""Records of the log that cannot be read and are named in the process's log at a take-over; more are only counted."""


class Phase(StrEnum):
    """What a runner is doing."""

    TAKING_OVER = "taking over"
    WORKING = "working"
    FENCED = "fenced"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPorts:
    """What the slots of one process share, and how to make what they do not.

    url: where the process can be asked. decided: takes verdicts that somebody waits for.
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


class SlotRunner:
    """Runs one slot until it is stopped or fenced."""

    def __init__(self, names: Names, ports: RunnerPorts, settings: SchedulerSettings) -> None:
        self.names = names
        self.phase = Phase.TAKING_OVER
        self.slot: Slot | None = None
        self.restored: Restored | None = None
        self._ports = ports
        self._settings = settings
        self._inputs = Inputs(names.layout, names.slot)
        self._caution = Caution(settings.inputs_max)
        self._log = ports.open_log(names.slot)
        self._index: DueIndex | None = None
        self._checkpointing: asyncio.Future[None] | None = None
        self._answerer: Answerer | None = None
        self._lanes_probed_ms = 0.0
        self._wake = asyncio.Event()
        self._stopping = False
        self._doubts = 0
        self._attached: set[TopicPartition] = set()
        self._paused = False
        self._first_requests = 0
        self._domains_changed = False

    async def run(self) -> Phase:
        """Work until `stop`; returns STOPPED, or FENCED when another owner took the slot."""
        try:
            while not self._stopping:
                await self._own()
            self.phase = Phase.STOPPED
        except Fenced as error:
            log.warning("slot %d: %s", self.names.slot, error)
            self.phase = Phase.FENCED
        finally:
            await self._close()
        return self.phase

    async def _own(self) -> None:
        """From a take-over to the next doubt."""
        try:
            slot, sender = await self._take_over()
            try:
                await self._work(slot)
            finally:
                self._detach()
                await sender.close()
        except (Fenced, asyncio.CancelledError):
            raise
        except (Doubt, IndexFailed) as error:
            log.warning("slot %d: %s; replaying", self.names.slot, error)
            await self._after_doubt(error)
        except Exception as error:  # a fault of ours: the log still knows everything, so go on from there
            log.exception("slot %d: unexpected; replaying", self.names.slot)
            await self._after_doubt(error)

    @property
    def readable(self) -> tuple[Slot, DueIndex] | None:
        """The slot and its index, for other threads that only read rows; None while they do not say what is."""
        slot, index = self.slot, self._index
        return None if slot is None or index is None else (slot, index)

    def stop(self) -> None:
        """Finish the cycle under way, then stop."""
        self._stopping = True
        self._wake.set()

    def config_changed(self, view: ConfigView) -> None:
        """New request domains may have appeared."""
        self._domains_changed = bool(view.domains or view.lanes)
        self._wake.set()

    # --- taking over

    async def _take_over(self) -> tuple[Slot, Sender]:
        self.phase, self.slot = Phase.TAKING_OVER, None
        began_ms = self._ports.clock.boot_ms()
        await self._log.open()
        await self._probe()
        config = await self._ports.config.refresh()
        if self._index is None:
            self._index = await asyncio.to_thread(self._ports.open_index, self.names.slot)
        restorer = Restorer(self.names, index=self._index, replay=self._ports.replay, settings=self._settings)
        self.restored = await asyncio.to_thread(partial(restorer.restore, now_ms=self._ports.clock.now_ms()))
        sender = Sender(self._ports.courier, self._delivered, self._settings)
        answerer = Answerer(self._ports.courier, self.names, self._ports.owner, self._settings)
        ports = SlotPorts(
            log=self._log,
            index=self._index,
            clock=self._ports.clock,
            config=self._ports.config,
            breakers=self._ports.breakers,
            send=sender.send,
            answer=answerer.answer,
            decided=self._ports.decided,
        )
        self._answerer = answerer
        slot = Slot(self.names, ports, self._settings, self._caution)
        slot.load()
        await self._read_requests(slot, config)
        self.slot, self.phase = slot, Phase.WORKING
        for what in self.restored.unreadable[:UNREADABLE_LOGGED_MAX]:
            log.warning("slot %d: passed over %s", self.names.slot, what)
        restore_ms = self._ports.clock.boot_ms() - began_ms
        log.info(
            "slot %d: owned after %.0f ms (%d records replayed%s)", self.names.slot, restore_ms, self.restored.records,
            f"; local copy thrown away: {self.restored.wiped_because}" if self.restored.wiped_because else "",
        )  # fmt: skip
        await self._probe(restore_ms=restore_ms)
        return slot, sender

    async def _read_requests(self, slot: Slot, config: ConfigView) -> None:
        """Requests that are in the log by now are decided before anything fires: one of them may be a delete."""
        read = partial(self._inputs.read, self._ports.replay, slot.positions, config)
        found = await asyncio.to_thread(read, records_max=self._settings.inbox_high)
        for record in found.records:
            self._take(slot, record)
        self._first_requests = slot.backlog
        self._attach(found.reached)

    async def _probe(self, *, restore_ms: float | None = None) -> None:
        """Say who owns the slot; the answer tells the broker's time."""
        clock, names = self._ports.clock, self.names
        sent_boot_ms = clock.boot_ms()
        numbers = names.layout.partitions_of(names.slot)
        value = {
            "slot": names.slot,
            "owner": self._ports.owner,
            "url": self._ports.url,
            "generation": 0,
            "since": clock.now_ms() if clock.trusted() else 0,
            "partitions": [numbers[0], numbers[-1]],
            "restore_ms": None if restore_ms is None else round(restore_ms),
        }
        record = Record(str(names.slot).encode(), orjson.dumps(value))
        topic = names.layout.name("owners")
        delivery = await self._ports.courier.send(topic, record, partition=0, timeout_ms=self._settings.send_timeout_ms)
        if delivery.receipt is None:
            raise Doubt(f"the broker's time is unknown: {delivery.error}")
        clock.observe(
            appended_ms=delivery.receipt.appended_ms,
            sent_boot_ms=sent_boot_ms,
            acknowledged_boot_ms=clock.boot_ms(),
        )

    # --- inputs

    def _attach(self, positions: Mapping[TopicPartition, int]) -> None:
        fresh = {at: offset for at, offset in positions.items() if at not in self._attached}
        self._ports.feed.attach(self._receive, fresh)
        self._attached |= fresh.keys()

    async def _attach_new_domains(self, slot: Slot) -> None:
        """Topics of request domains that were configured, or created, since the last look."""
        config = self._ports.config.view
        wanted = set(self._inputs.partitions(config.domains, config.lanes)) - self._attached
        if wanted:
            existing = await asyncio.to_thread(self._ports.replay.stable_offsets, tuple(wanted))
            self._attach({at: self._inputs.position(at, slot.positions) for at in existing})

    def _detach(self) -> None:
        self._ports.feed.detach(tuple(self._attached))
        self._attached, self._paused = set(), False

    def _receive(self, records: list[Incoming]) -> None:
        slot = self.slot
        if slot is None:
            return
        for record in records:
            self._take(slot, record)
        if not self._paused and self._is_full(slot, share=1):
            self._paused = True
            self._ports.feed.pause(tuple(self._attached))
        self._wake.set()

    def _is_full(self, slot: Slot, *, share: int) -> bool:
        """Whether more than a share (1 = all, 2 = half) of what may wait waits."""
        settings = self._settings
        too_many = slot.backlog + len(slot.keeper.inbox) > settings.inbox_high // share
        return too_many or slot.backlog_bytes > settings.inbox_high_bytes // share

    def _take(self, slot: Slot, record: Incoming) -> None:
        if self._inputs.is_event(record):
            heard = self._inputs.heard(record)
            if heard is not None:
                slot.hear(heard)
            return
        request = self._inputs.request(record)
        if request is not None:
            slot.receive(request)

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
            slot.holds_fire = slot.requests_decided < self._first_requests
            if self._domains_changed:
                self._domains_changed = False
                await self._attach_new_domains(slot)
            worked = await slot.cycle()
            self._doubts = 0 if worked else self._doubts
            if self._paused and not self._is_full(slot, share=2):
                self._paused = False
                self._ports.feed.resume(tuple(self._attached))
            now_ms = clock.boot_ms()
            if now_ms - checkpoint_ms > settings.checkpoint_ms:
                checkpoint_ms = now_ms
                await self._checkpoint()
            if now_ms - probe_ms > (settings.probe_ms if clock.trusted() else settings.distrust_probe_ms):
                probe_ms = now_ms
                await self._probe()
                self._domains_changed = True
            self._move_lease_time(slot)
            if worked:
                await asyncio.sleep(settings.cycle_gap_ms / 1000)
            else:
                await self._sleep(slot)

    async def _sleep(self, slot: Slot) -> None:
        """Until something arrives, something is due, or a heartbeat has passed."""
        wake_ms = slot.next_wake_ms()
        delay_ms = float(self._settings.heartbeat_ms)
        if wake_ms is not None:
            delay_ms = min(delay_ms, max(1.0, wake_ms - self._ports.clock.now_ms()))
        if not slot.may_fire:
            delay_ms = float(self._settings.hold_poll_ms)
        await self._pause(delay_ms)

    def _move_lease_time(self, slot: Slot) -> None:
        """Probe lanes that hold leases and are silent: lease time passes only with what is heard."""
        boot_ms, silence_ms = self._ports.clock.boot_ms(), self._settings.lane_silence_ms
        if boot_ms - self._lanes_probed_ms >= silence_ms and self._answerer is not None:
            self._lanes_probed_ms = boot_ms
            self._answerer.probe(slot.keeper.silent_lanes(self._ports.clock.now_ms(), silence_ms))

    # --- leaving

    async def _after_doubt(self, error: Exception) -> None:
        self.slot = None
        self._doubts += 1
        if not isinstance(error, Doubt):
            await self._close_index()
        if self._doubts > 1 and not self._stopping:
            settings = self._settings
            pause_ms = min(settings.doubt_pause_max_ms, settings.doubt_pause_ms << min(self._doubts, 20))
            await self._pause(pause_ms)

    async def _pause(self, duration_ms: float) -> None:
        try:
            async with asyncio.timeout(duration_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

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
        await self._checkpointed()
        index, self._index = self._index, None
        if index is not None:
            await asyncio.to_thread(index.close)

    async def _close(self) -> None:
        self._detach()
        self.slot = None
        await self._log.close()
        try:
            await self._close_index()
        except IndexFailed as error:
            log.warning("slot %d: %s", self.names.slot, error)
