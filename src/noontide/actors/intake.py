"""What arrives for a slot: which partitions are read, from where, and when reading has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from noontide.actors.effects import Names
from noontide.actors.inputs import Inputs
from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.ports.record_log import Feed, Incoming, Replay, TopicPartition
from noontide.records.config import ConfigView


class Intake:
    """The inputs of one slot, from a take-over to the next. wake: called after something arrived."""

    def __init__(
        self, names: Names, feed: Feed, replay: Replay, settings: SchedulerSettings, *, wake: Callable[[], None]
    ) -> None:
        self.first_requests = 0
        self._inputs = Inputs(names.layout, names.slot)
        self._feed = feed
        self._replay = replay
        self._settings = settings
        self._wake = wake
        self._slot: Slot | None = None
        self._attached: set[TopicPartition] = set()
        self._paused = False

    async def begin(self, slot: Slot, config: ConfigView) -> None:
        """Requests that are in the log by now are decided before anything fires: one of them may be a delete."""
        read = partial(self._inputs.read, self._replay, slot.positions, config)
        found = await asyncio.to_thread(read, records_max=self._settings.inbox_high)
        self._slot = slot
        for record in found.records:
            self._take(slot, record)
        self.first_requests = slot.backlog
        self._attach(found.reached)

    async def attach_new(self, slot: Slot, config: ConfigView) -> None:
        """Topics of request domains and lanes that were configured, or created, since the last look."""
        wanted = set(self._inputs.partitions(config.domains, config.lanes)) - self._attached
        if wanted:
            existing = await asyncio.to_thread(self._replay.stable_offsets, tuple(wanted))
            self._attach({at: self._inputs.position(at, slot.positions) for at in existing})

    def detach(self) -> None:
        """Nothing arrives any more."""
        self._feed.detach(tuple(self._attached))
        self._slot = None
        self._attached, self._paused = set(), False

    def ease(self, slot: Slot) -> None:
        """Read on when enough of what waited is decided."""
        if self._paused and not self._is_full(slot, share=2):
            self._paused = False
            self._feed.resume(tuple(self._attached))

    def _attach(self, positions: Mapping[TopicPartition, int]) -> None:
        fresh = {at: offset for at, offset in positions.items() if at not in self._attached}
        self._feed.attach(self._receive, fresh)
        self._attached |= fresh.keys()

    def _receive(self, records: list[Incoming]) -> None:
        slot = self._slot
        if slot is None:
            return
        for record in records:
            self._take(slot, record)
        if not self._paused and self._is_full(slot, share=1):
            self._paused = True
            self._feed.pause(tuple(self._attached))
        self._wake()

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
