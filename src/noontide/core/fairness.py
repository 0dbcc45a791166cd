"""Sharing a scarce thing by weights: permits among tenants, and turns in a lane."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import NamedTuple


class Claimant(NamedTuple):
    """One who wants shares. holding: what it has already; wanted: how many more; weight: its part, 1 when not said."""

    holding: int
    wanted: int
    weight: float = 1.0


def share_out(free: int, claimants: Mapping[str, Claimant], served: Mapping[str, int]) -> dict[str, int]:
    """Give out `free` shares, each to the one who has least for its weight; of equals, to the one served longest ago.

    served: when each was last served, greater = later; those who are not in it come first.
    Returns shares by name; nobody gets more than it wanted, and nothing is kept back while somebody wants it.
    """
    asking = {name: each for name, each in claimants.items() if each.wanted > 0}
    if len(asking) == 1:
        ((name, only),) = asking.items()
        return {name: min(free, only.wanted)} if free > 0 else {}
    queue = [(each.holding / each.weight, served.get(name, -1), name) for name, each in asking.items()]
    heapq.heapify(queue)
    shares: dict[str, int] = {}
    turn = max(served.values(), default=0)
    while free > 0 and queue:
        _, _, name = queue[0]
        each = asking[name]
        shares[name] = given = shares.get(name, 0) + 1
        free -= 1
        turn += 1
        if given < each.wanted:
            heapq.heapreplace(queue, ((each.holding + given) / each.weight, turn, name))
        else:
            heapq.heappop(queue)
    return shares


class Turns:
    """Weighted round robin: whoever has had least for its weight is next. A newcomer begins where the others are."""

    __slots__ = ("_clock", "_passes", "_queue")

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, str]] = []
        self._passes: dict[str, float] = {}
        self._clock = 0

    def join(self, name: str) -> None:
        """Somebody has something to do; one who left a moment ago keeps what it had."""
        now = self._queue[0][0] if self._queue else 0.0
        self._put(name, max(now, self._passes.pop(name, 0.0)))

    def next(self) -> str:
        """Whose turn it is; it leaves until `again` or `join`. Raises IndexError when nobody is there."""
        at, _, name = heapq.heappop(self._queue)
        self._passes[name] = at
        return name

    def again(self, name: str, weight: float) -> None:
        """It had one turn and wants another."""
        self._put(name, self._passes.pop(name) + 1.0 / weight)

    def leave(self, name: str, weight: float) -> None:
        """It had one turn and has nothing more to do; what it had counts for as long as others are there."""
        if self._queue:
            self._passes[name] += 1.0 / weight
        else:
            self._passes.clear()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def _put(self, name: str, at: float) -> None:
        self._clock += 1
        heapq.heappush(self._queue, (at, self._clock, name))
