"""How much a slot dares in one cycle: everything, until a commit fails; then half, and half again, down to one item.

An item that the broker refuses on its own is the culprit and is set aside; silence of the broker convicts nobody.
"""

from __future__ import annotations

from noontide.actors.closing import Delivered
from noontide.actors.partition import Work
from noontide.actors.request_input import Input
from noontide.actors.timers import DueItem
from noontide.core.run import Run
from noontide.ports.record_log import Doubt

EASE_AFTER = 8
"""Cycles in a row that must succeed before the limit doubles."""

Item = Input | Delivered | Run | DueItem


class Caution:
    """Survives the slot's memory: it is what a slot learns from its doubts. `limit`: items per cycle."""

    def __init__(self, limit_max: int) -> None:
        self._limit_max = limit_max
        self.limit = limit_max
        self._calm = 0
        self._culprits: dict[object, str] = {}

    def shares(self, active: int) -> int:
        """How many partitions may take part in the next cycle."""
        return min(active, self.limit)

    def ease(self) -> None:
        """A commit succeeded."""
        if self.limit == self._limit_max:
            return
        self._calm += 1
        if self._calm >= EASE_AFTER:
            self.limit, self._calm = min(self._limit_max, 2 * self.limit), 0

    def tighten(self, doubt: Doubt, work: dict[int, Work]) -> None:
        """A commit failed with this work in it."""
        items = [item for each in work.values() for item in each.items()]
        self._calm = 0
        if len(items) == 1 and doubt.refused:
            self._culprits[_identity(items[0])] = str(doubt)
        else:
            self.limit = max(1, min(self.limit, len(items)) // 2)

    def culprits_in(self, work: Work) -> dict[int, str]:
        """The items of this work that are to be set aside, by their `id()`, and why."""
        if not self._culprits:
            return {}
        found = ((id(item), self._culprits.get(_identity(item))) for item in work.items())
        return {item: reason for item, reason in found if reason is not None}


def _identity(item: Item) -> object:
    match item:
        case Input(source=source):
            return source
        case Delivered() | Run():
            return item.run_id
        case key, _:
            return key
