"""Limits that come while runs are with workers already: from then on these runs count for them.

A run takes its permits when it is offered. One that was offered before its tenant or target had a cap is entered
afterwards, with a permit nobody had to give; so the limiter starts no new one until enough have ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from noontide.actors.effects import Scene
from noontide.actors.live_runs import LiveRuns
from noontide.core.run import HANDED_OUT, Run
from noontide.records.config import ConfigView
from noontide.records.limit_book import LimitBook

ENTERED_MAX = 1_000
"""Runs that are entered in one cycle."""
Found = tuple[int, Run]
"""(partition, run)."""


class Latecomers:
    """The runs of one slot that are to be looked at. live: its live runs, by partition."""

    def __init__(self, live: Mapping[int, LiveRuns]) -> None:
        self._live = live
        self._queue: deque[tuple[int, str]] = deque()
        self._capped: frozenset[str] = frozenset()
        self._seen_config = -1

    def collect(self, config: ConfigView, limit: int) -> list[Found]:
        """Runs with workers that lack the permit of a limit; after a change of the limits all are looked at."""
        if config.offset != self._seen_config:
            self._seen_config = config.offset
            capped = config.limits.capped()
            if capped - self._capped:
                self._queue = deque(self._lacking(config.limits))
            self._capped = capped
        found: list[Found] = []
        while self._queue and len(found) < min(limit, ENTERED_MAX):
            partition, run_id = self._queue.popleft()
            run = self._live[partition].by_id.get(run_id)
            if run is not None and entered(run, config.limits) is not None:
                found.append((partition, run))
        return found

    def _lacking(self, book: LimitBook) -> Iterable[tuple[int, str]]:
        for partition, live in self._live.items():
            yield from ((partition, run_id) for run_id, run in live.by_id.items() if entered(run, book) is not None)

    def next_wake_ms(self) -> int | None:
        """At once while some are left."""
        return 0 if self._queue else None


def decide(found: Iterable[Found], scene: Scene, set_aside: Collection[object]) -> None:
    """Enter those that are still with workers at the end of this cycle."""
    for partition, known in found:
        run = None if known.run_id in set_aside else scene.effects.current(known)
        permits = None if run is None else entered(run, scene.world.config.limits)
        if run is not None and permits is not None:
            scene.effects.open_run(partition, run._replace(permits=permits))
            scene.effects.limited = True
            scene.effects.counts["entered"] += 1


def entered(run: Run, book: LimitBook) -> tuple[str, ...] | None:
    """The permits that a run with workers is to have; None when it lacks none, or is not with workers.

    A concurrency key is part of the definition that the run was claimed with, so it has that permit or needs none.
    """
    if not run.lane or run.state not in HANDED_OUT:
        return None
    wanted = book.limiters_of(run.tenant, run.target, None)
    lacking = [each for each in wanted if each not in run.permits and book.ceiling(each).concurrency is not None]
    if not lacking:
        return None
    ordered = [each for each in wanted if each in lacking or each in run.permits]
    return (*(each for each in run.permits if each not in ordered), *ordered)
