"""Tells `owners` how a slot is; the answer tells the broker's time."""

from __future__ import annotations

import asyncio

from noontide.actors.effects import Names
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.record_log import Courier, Doubt, Record
from noontide.records.owners import OwnerStatus, Speaker, encode_owner, speaker_key


class Announcer:
    """Speaks for one process about one slot, as its owner or as a standby."""

    def __init__(
        self, names: Names, courier: Courier, clock: BrokerTimeSource, *, speaker: Speaker, timeout_ms: int
    ) -> None:
        self._names = names
        self._courier = courier
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._speaker = speaker
        self._telling: asyncio.Task[None] | None = None

    async def tell(self, status: OwnerStatus) -> None:
        """Say how it is. Raises Doubt when the broker does not answer: then its time is unknown."""
        clock, slot = self._clock, self._names.slot
        sent_boot_ms = clock.boot_ms()
        if not self._speaker.since_ms and clock.trusted():
            self._speaker = self._speaker._replace(since_ms=clock.now_ms())
        value = encode_owner(self._names.layout, slot, status, self._speaker)
        appended_ms = await self._send(Record(speaker_key(slot, self._speaker), value))
        clock.observe(appended_ms=appended_ms, sent_boot_ms=sent_boot_ms, acknowledged_boot_ms=clock.boot_ms())

    def tell_meanwhile(self, status: OwnerStatus) -> None:
        """The same without waiting; the failure of the time before is raised here. One at a time."""
        if self._telling is not None:
            if not self._telling.done():
                return
            self._telling.result()
        self._telling = asyncio.create_task(self.tell(status), name=f"announce-{self._names.slot}")

    async def withdraw(self) -> None:
        """A standby is none any more; a failure changes nothing."""
        try:
            await self._send(Record(speaker_key(self._names.slot, self._speaker), None))
        except Doubt:
            return

    async def close(self) -> None:
        """End what is being said."""
        telling, self._telling = self._telling, None
        if telling is not None:
            telling.cancel()
            await asyncio.wait({telling})

    async def _send(self, record: Record) -> int:
        topic = self._names.layout.name("owners")
        delivery = await self._courier.send(topic, record, partition=0, timeout_ms=self._timeout_ms)
        if delivery.receipt is None:
            raise Doubt(f"the broker's time is unknown: {delivery.error}")
        return delivery.receipt.appended_ms
