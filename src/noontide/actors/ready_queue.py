"""Runs that wait for workers, per lane. The backlog stays here; only a window of it is published.

Within a lane tenants take turns; within a tenant the higher priority goes first, then the earlier due time. So a flood
of one tenant delays the others by their own share only, and priority, cancel and new limits work however long it is.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque

from noontide.core.run import Run

_Entry = tuple[int, int, str, int]
"""(-priority, due_ms, run id, partition): sorts as it is to be taken."""


class _Lane:
    """One lane: a heap per tenant, and the tenants in the order of their turns."""

    __slots__ = ("heaps", "turns")

    def __init__(self) -> None:
        self.heaps: dict[str, list[_Entry]] = {}
        self.turns: deque[str] = deque()


class ReadyQueues:
    """The ready runs of one slot. Entries are hints: whoever takes one checks that the run still waits."""

    def __init__(self) -> None:
        self._lanes: defaultdict[str, _Lane] = defaultdict(_Lane)

    def add(self, partition: int, run: Run) -> None:
        """A run is ready."""
        lane = self._lanes[run.lane]
        heap = lane.heaps.get(run.tenant)
        if heap is None:
            heap = lane.heaps[run.tenant] = []
            lane.turns.append(run.tenant)
        heapq.heappush(heap, (-run.priority, run.due_ms, run.run_id, partition))

    def take(self, lane: str, limit: int) -> list[tuple[int, str]]:
        """The next (partition, run id), at most `limit`; they leave the queue."""
        queue, taken = self._lanes[lane], list[tuple[int, str]]()
        while queue.turns and len(taken) < limit:
            tenant = queue.turns.popleft()
            heap = queue.heaps[tenant]
            _, _, run_id, partition = heapq.heappop(heap)
            taken.append((partition, run_id))
            if heap:
                queue.turns.append(tenant)
            else:
                del queue.heaps[tenant]
        return taken

    def lanes(self) -> list[str]:
        """Lanes with ready runs."""
        return [name for name, lane in self._lanes.items() if lane.turns]
