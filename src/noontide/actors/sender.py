"""Records that go out after the commit, to topics that are not registered. At least once: what is not confirmed in
the log is sent again by the next owner.

One pump per topic, so that a sick topic holds up nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from noontide.actors.closing import Delivered
from noontide.actors.effects import Send
from noontide.actors.settings import SchedulerSettings
from noontide.ports.record_log import Courier

Outcome = Callable[[int, Delivered], None]


class Sender:
    """The outgoing records of one slot. `outcome` is called on the event loop with (partition, what became of it)."""

    def __init__(self, courier: Courier, outcome: Outcome, settings: SchedulerSettings) -> None:
        self._courier = courier
        self._outcome = outcome
        self._settings = settings
        self._queues: dict[str, deque[Send]] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}

    def send(self, sends: list[Send]) -> None:
        """Take records; they are sent in order per topic, many at a time."""
        for each in sends:
            self._queues.setdefault(each.topic, deque()).append(each)
        for topic in {each.topic for each in sends}:
            if topic not in self._pumps:
                self._pumps[topic] = asyncio.create_task(self._pump(topic))

    async def close(self) -> None:
        """Stop; nothing is reported after this returns."""
        pumps = list(self._pumps.values())
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, topic: str) -> None:
        queue = self._queues[topic]
        while queue:
            batch = [queue.popleft() for _ in range(min(len(queue), self._settings.sends_in_flight_max))]
            await asyncio.gather(*map(self._one, batch))
        del self._pumps[topic], self._queues[topic]

    async def _one(self, send: Send) -> None:
        timeout_ms = self._settings.send_timeout_ms
        delivery = await self._courier.send(send.topic, send.record, partition=None, timeout_ms=timeout_ms)
        self._outcome(send.partition, Delivered(send.run_id, delivery.error, delivery.retriable))
