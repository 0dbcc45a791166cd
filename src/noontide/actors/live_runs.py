"""The live runs of one partition, and the timer heap of what they wait for. A view of the `live` rows of the index."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Collection

from noontide.actors.effects import Effects
from noontide.actors.ready_queue import ReadyQueues
from noontide.core.run import HANDED_OUT, WAITING, Run, RunState


def is_free(run: Run) -> bool:
    """Whether nothing but its target holds a run up."""
    waits = run.not_before_ms or run.waits_for is not None or run.awaits is not None
    return run.state in WAITING and not waits


class LiveRuns:
    """Runs between claim and close.

    Deadlines are (time, run id) in a heap; an entry that no longer fits its run is skipped when it comes up.
    """

    def __init__(self, partition: int, ready: ReadyQueues) -> None:
        self._partition = partition
        self._ready = ready
        self.by_id: dict[str, Run] = {}
        self._by_job: defaultdict[str, dict[str, Run]] = defaultdict(dict)
        self._deadlines: list[tuple[int, str]] = []
        self._waiting: defaultdict[str, deque[str]] = defaultdict(deque)

    def put(self, run: Run) -> None:
        """A run is live, in this state."""
        run_id, job_id, _, state = run[:4]
        self.by_id[run_id] = run
        self._by_job[job_id][run_id] = run
        if state in HANDED_OUT:
            return
        if state in WAITING and run.waits_for is None:
            if run.not_before_ms:
                heapq.heappush(self._deadlines, (run.not_before_ms, run.run_id))
            elif run.awaits is not None:
                return  # its permit brings it up again
            elif run.lane:
                self._ready.add(self._partition, run)
            else:
                self._waiting[run.target].append(run.run_id)

    def remove(self, run_id: str) -> None:
        """A run is closed."""
        run = self.by_id.pop(run_id, None)
        if run is None:
            return
        siblings = self._by_job[run.job_id]
        if len(siblings) == 1:
            del self._by_job[run.job_id]
        else:
            siblings.pop(run_id, None)

    def is_busy(self, effects: Effects) -> bool:
        """Whether any job has a live run, or had one at the beginning of this cycle."""
        return bool(self.by_id or effects.live_changes)

    def is_only(self, job_id: str) -> bool:
        """Whether a job has one live run, not counting what this cycle changed."""
        return len(self._by_job.get(job_id, ())) == 1

    def of_job(self, job_id: str, effects: Effects) -> Collection[Run]:
        """The live runs of a job as this cycle sees them."""
        known = self._by_job.get(job_id)
        changes = effects.live_changes.get(job_id)
        if changes is None:
            return () if known is None else known.values()
        merged: dict[str, Run | None] = {**(known or {}), **changes}
        return [run for run in merged.values() if run is not None]

    def due(self, now_ms: int, limit: int) -> list[Run]:
        """Runs whose wait is over, at most `limit`; they leave the heap."""
        found: list[Run] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms and len(found) < limit:
            at_ms, run_id = heapq.heappop(self._deadlines)
            run = self.by_id.get(run_id)
            if run is not None and run.not_before_ms == at_ms and run.state is not RunState.QUEUED:
                found.append(run)
        return found

    def waiting_for(self, target: str, limit: int) -> list[Run]:
        """Runs that wait for a target, oldest first, at most `limit`; they leave the queue."""
        queue, found = self._waiting[target], list[Run]()
        while queue and len(found) < limit:
            run = self.by_id.get(queue.popleft())
            if run is not None and is_free(run):
                found.append(run)
        return found

    def targets_waited_for(self) -> list[str]:
        """Targets that runs wait for."""
        return [target for target, queue in self._waiting.items() if queue]

    def count_waiting(self, target: str) -> int:
        """How many runs wait for a target (an upper bound)."""
        return len(self._waiting[target])

    def next_ms(self) -> int | None:
        """When the earliest deadline is; None without one."""
        return self._deadlines[0][0] if self._deadlines else None
