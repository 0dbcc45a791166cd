"""Verdicts on their way from the slots to the API nodes that wait for them. Lives on the port's event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from noontide.actors.effects import Decided as SlotDecided
from noontide.apps.port import wire

API_REQUESTS = "requests.api"


class Listener:
    """One API node that follows the verdicts; `dropped` when it did not read them in time."""

    def __init__(self, waiting_max: int) -> None:
        self.dropped = False
        self._waiting: list[bytes] = []
        self._waiting_max = waiting_max
        self._something = asyncio.Event()

    def tell(self, line: bytes) -> None:
        """Pass a line on."""
        if len(self._waiting) >= self._waiting_max:
            self.dropped = True
        else:
            self._waiting.append(line)
        self._something.set()

    async def lines(self, *, at_least_every_s: float) -> bytes:
        """All lines that wait; an empty line when there was none for so long."""
        try:
            async with asyncio.timeout(at_least_every_s):
                await self._something.wait()
        except TimeoutError:
            return b"\n"
        self._something.clear()
        waiting, self._waiting = self._waiting, []
        return b"".join(waiting)


class Board:
    """Remembers the latest verdicts and tells them to everybody who listens.

    kept_max: verdicts that are remembered; older ones are in the index. waiting_max: lines that wait for a listener.
    """

    def __init__(self, *, kept_max: int, waiting_max: int = 1_000) -> None:
        self._kept: OrderedDict[tuple[int, int], wire.Decided] = OrderedDict()
        self._kept_max = kept_max
        self._waiting_max = waiting_max
        self._listeners: set[Listener] = set()

    def post(self, decided: list[SlotDecided]) -> None:
        """A cycle has decided these requests."""
        found = [_on_the_wire(each) for each in decided if each.origin.topic == API_REQUESTS]
        if not found:
            return
        for each in found:
            self._kept[each.partition, each.offset] = each
        while len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        line = wire.encode(found) + b"\n"
        for listener in self._listeners:
            listener.tell(line)

    def find(self, partition: int, offset: int) -> wire.Decided | None:
        """A verdict that is remembered."""
        return self._kept.get((partition, offset))

    def listen(self) -> Listener:
        """Follow the verdicts from now on, until `leave`."""
        listener = Listener(self._waiting_max)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Follow no more."""
        self._listeners.discard(listener)


def _on_the_wire(decided: SlotDecided) -> wire.Decided:
    _, partition, offset = decided.origin
    cursor = wire.NOTHING if decided.cursor is None else msgspec.Raw(decided.cursor)
    return wire.Decided(partition, offset, msgspec.Raw(decided.verdict), cursor)
