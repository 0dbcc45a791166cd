"""One slot of a stage: its place in the log, its index, its memory, and how it comes back after a loss."""

from __future__ import annotations

from dataclasses import dataclass

from noontide.actors.answerer import answer_records, probe_records
from noontide.actors.breaker import Breakers
from noontide.actors.caution import Caution
from noontide.actors.closing import Delivered
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.effects import Names, Send
from noontide.actors.inputs import Inputs
from noontide.actors.restore import Restored, Restorer
from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.actors.slot_ports import SlotPorts
from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.log import MemoryLog
from noontide.adapters.memory.readers import MemoryFeed, MemoryReplay
from noontide.adapters.memory.slot_log import MemorySlotLog
from noontide.adapters.memory.targets import MemoryCourier
from noontide.ports.record_log import Doubt, Incoming, TopicPartition
from noontide.records import rows
from noontide.records.worker_inbox import Answer
from noontide.testing.virtual_clock import VirtualClock

_FAR_MS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the slots of a stage share."""

    log: MemoryLog
    clock: VirtualClock
    config: ConfigDirectory
    breakers: Breakers
    settings: SchedulerSettings


class MemorySlot:
    """A real `Slot` with everything around it in memory.

    under_way: records sent after a commit and not yet acknowledged, oldest first.
    loses_answers: while True, what it says to workers is lost.
    """

    def __init__(self, names: Names, surroundings: Surroundings) -> None:
        self.names = names
        self.index = MemoryIndex()
        self.under_way: list[Send] = []
        self.answers: list[tuple[int, Answer]] = []
        self.loses_answers = False
        self.restored: Restored | None = None
        self.doubts = 0
        self._probed_ms: int | None = None
        self._around = surroundings
        self._caution = Caution(surroundings.settings.inputs_max)
        self._log = MemorySlotLog(
            surroundings.log, transactional_id=self.transactional_id, time_source=surroundings.clock
        )
        self._feed = MemoryFeed(surroundings.log)
        self._inputs = Inputs(names.layout, names.slot)
        self._attached: list[TopicPartition] = []
        self._first_requests = 0
        self._courier = MemoryCourier(surroundings.log)
        self.slot = self._empty_slot()

    @property
    def transactional_id(self) -> str:
        """The id under which the slot commits."""
        return f"{self.names.layout.prefix}slot-{self.names.slot}"

    async def take_over(self) -> None:
        """Fence whoever was there, bring the index up to the log, and start from what it says."""
        around = self._around
        self._feed.detach(self._attached)
        self.under_way.clear()
        self.answers.clear()
        await self._log.open()
        config = await around.config.refresh()
        restorer = Restorer(self.names, index=self.index, replay=MemoryReplay(around.log), settings=around.settings)
        self.restored = restorer.restore(now_ms=around.clock.now_ms())
        self.slot = self._empty_slot()
        self.slot.load()
        found = self._inputs.read(
            MemoryReplay(around.log), self.slot.positions, config, records_max=around.settings.inbox_high
        )
        self._receive(found.records)
        self._first_requests = self.slot.backlog
        self._attached = list(found.reached)
        self._feed.attach(self._receive, found.reached)

    def lose(self, *, left_rows: dict[bytes, bytes] | None) -> None:
        """Forget everything but these rows of the index; what the slot learnt from doubts goes too."""
        self._caution = Caution(self._around.settings.inputs_max)
        self.index = MemoryIndex(left_rows)

    async def step(self) -> bool:
        """Read what has arrived and run one cycle; False when there was nothing to do. A doubt costs a take-over."""
        arrived = self._feed.pump()
        self.slot.holds_fire = self.slot.requests_decided < self._first_requests  # as the runner does it
        try:
            worked = await self.slot.cycle()
        except Doubt:
            self.doubts += 1
            await self.take_over()
            return True
        self._tell_workers()
        return self._probe() or worked or arrived > 0

    async def send(self, count: int | None = None) -> bool:
        """Hand the oldest records under way to their topics, and tell the slot; False when there were none."""
        batch = self.under_way[:count]
        del self.under_way[: len(batch)]
        for each in batch:
            timeout_ms = self._around.settings.send_timeout_ms
            found = await self._courier.send(each.topic, each.record, partition=None, timeout_ms=timeout_ms)
            self.slot.deliver(each.partition, Delivered(each.run_id, found.error, found.retriable))
        return bool(batch)

    def next_wake_ms(self) -> int | None:
        """When something happens by itself: rows beyond the slot's horizon count too."""
        first = [self.index.scan(*rows.due_range(number), 1) for number in self.slot.partitions]
        times = [rows.due_key_parts(found[0][0])[0] for found in first if found]
        more = (self.slot.next_wake_ms(), self._next_probe_ms())
        return min([*times, *(at_ms for at_ms in more if at_ms is not None)], default=None)

    def _tell_workers(self) -> None:
        """Put answers into the inboxes of workers, as the answerer does after a commit."""
        for at, record in () if self.loses_answers else answer_records(self.answers, self.names.layout):
            self._around.log.append(at, [record])
        self.answers.clear()

    def _probe(self) -> bool:
        """Move the time of silent leases on, as the runner does; False when there was no need."""
        now_ms, silence_ms = self._around.clock.now_ms(), self._around.settings.lane_silence_ms
        if self._probed_ms is not None and now_ms - self._probed_ms < silence_ms:
            return False
        self._probed_ms = now_ms
        lanes = self.slot.keeper.silent_lanes(now_ms, silence_ms)
        for at, record in probe_records(lanes, self.names, "stage"):
            self._around.log.append(at, [record])
        return bool(lanes)

    def _next_probe_ms(self) -> int | None:
        """When a lane with leases is looked at again; None without leases."""
        if not self.slot.keeper.silent_lanes(_FAR_MS, 0):
            return None
        silence_ms, now_ms = self._around.settings.lane_silence_ms, self._around.clock.now_ms()
        return now_ms + 1 if self._probed_ms is None else max(now_ms + 1, self._probed_ms + silence_ms)

    def _empty_slot(self) -> Slot:
        around = self._around
        ports = SlotPorts(
            log=self._log,
            index=self.index,
            clock=around.clock,
            config=around.config,
            breakers=around.breakers,
            send=self.under_way.extend,
            answer=self.answers.extend,
        )
        return Slot(self.names, ports, around.settings, self._caution)

    def _receive(self, records: list[Incoming]) -> None:
        for record in records:
            if self._inputs.is_event(record):
                heard = self._inputs.heard(record)
                if heard is not None:
                    self.slot.hear(heard)
                continue
            request = self._inputs.request(record)
            if request is not None:
                self.slot.receive(request)
