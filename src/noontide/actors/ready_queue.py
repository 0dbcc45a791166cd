"""Runs that wait for workers, per lane. The backlog stays here; only a window of it is published.

Within a lane tenants take turns, by their weights; within a tenant the higher priority goes first, but waiting raises
it: `ageing_ms` of waiting count as much as one level. Of equals the earlier due time is first. So a flood of one tenant
delays the others by their own share only, nothing waits for ever, and cancel and new limits work however long it is.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable

from noontide.core.fairness import Turns
from noontide.core.run import Run

AGEING_MS = 60_000
_Entry = tuple[int, int, str, int]
"""(place, due_ms, run id, partition): sorts as it is to be taken."""


def place_ms(run: Run, ageing_ms: int) -> int:
    """Where a run stands among those of its tenant, as an instant: linear ageing is an order that never changes."""
    return run.claimed_ms - run.priority * ageing_ms


class _Lane:
    """One lane: a heap per tenant, and the turns of the tenants."""

    __slots__ = ("heaps", "turns")

    def __init__(self) -> None:
        self.heaps: dict[str, list[_Entry]] = {}
        self.turns = Turns()


class ReadyQueues:
    """The ready runs of one slot. Entries are hints: whoever takes one checks that the run still waits."""

    def __init__(self, ageing_ms: int = AGEING_MS) -> None:
        self._lanes: defaultdict[str, _Lane] = defaultdict(_Lane)
        self._ageing_ms = ageing_ms

    def add(self, partition: int, run: Run) -> None:
        """A run is ready."""
        lane = self._lanes[run.lane]
        heap = lane.heaps.get(run.tenant)
        if heap is None:
            heap = lane.heaps[run.tenant] = []
            lane.turns.join(run.tenant)
        heapq.heappush(heap, (place_ms(run, self._ageing_ms), run.due_ms, run.run_id, partition))

    def take(
        self, lane: str, limit: int, weight_of: Callable[[str], float] = lambda _tenant: 1.0
    ) -> list[tuple[int, str]]:
        """The next (partition, run id), at most `limit`; they leave the queue. weight_of: of a tenant."""
        queue, taken = self._lanes[lane], list[tuple[int, str]]()
        while queue.turns and len(taken) < limit:
            tenant = queue.turns.next()
            heap = queue.heaps[tenant]
            _, _, run_id, partition = heapq.heappop(heap)
            taken.append((partition, run_id))
            if heap:
                queue.turns.again(tenant, weight_of(tenant))
            else:
                queue.turns.leave(tenant, weight_of(tenant))
                del queue.heaps[tenant]
        return taken

    def depths(self) -> dict[str, int]:
        """Ready runs by lane; entries of runs that do not wait any more count too. May be asked in any thread."""
        return {name: sum(map(len, list(lane.heaps.values()))) for name, lane in list(self._lanes.items())}

    def lanes(self) -> list[str]:
        """Lanes with ready runs."""
        return [name for name, lane in self._lanes.items() if lane.turns]
