"""Runs that should be closed by a time (`complete_by`): whoever is to know hears of those that are not.

The time counts from the nominal one, whether a run has started or not. What was said is part of the run's record, so it
is said once, whoever owns the slot.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping

from noontide.actors.effects import Effects, Scene
from noontide.actors.live_runs import LiveRuns
from noontide.actors.mailbox import reading
from noontide.actors.timelines import loaded
from noontide.core.partitioner import partition_for
from noontide.core.policies import NotifyOn
from noontide.core.run import Run
from noontide.ports.record_log import Record, TopicPartition
from noontide.records import rows
from noontide.records.alerts import encode_alert
from noontide.records.job_row import JobRow, decode_job_row

OVERDUE_MAX = 500
"""Runs that are found overdue in one cycle."""
Due = tuple[int, str, int]
"""(time, run id, partition)."""


class Expectations:
    """The times of one slot. live: its live runs, by partition."""

    def __init__(self, live: Mapping[int, LiveRuns]) -> None:
        self._live = live
        self._times: list[Due] = []

    def collect(self, now_ms: int) -> list[tuple[int, Run]]:
        """Live runs whose time has passed, each with its partition."""
        found: list[tuple[int, Run]] = []
        while self._times and self._times[0][0] <= now_ms and len(found) < OVERDUE_MAX:
            at_ms, run_id, partition = heapq.heappop(self._times)
            run = self._live[partition].by_id.get(run_id)
            if run is not None and run.complete_by_ms == at_ms:
                found.append((partition, run))
        return found

    def wanted(self, overdue: Iterable[tuple[int, Run]]) -> Iterator[bytes]:
        """Keys of the rows that deciding reads."""
        for partition, run in overdue:
            yield rows.job_key(partition, run.job_id.encode())
            yield rows.claimed_key(partition, run.run_id.encode())

    def decide(self, overdue: Iterable[tuple[int, Run]], scene: Scene, set_aside: Collection[object]) -> None:
        """Say of each that it is overdue, unless it was closed in this very cycle. Raises Misread, naming the run."""
        for partition, known in overdue:
            run = scene.effects.current(known)
            if run is None or not run.complete_by_ms or known.run_id in set_aside:
                continue
            with reading(known.run_id):
                row = decode_job_row(scene.effects.row_of(partition, run))
                say_overdue(run.run_id, run.job_id, row, scene, state=run.state)
                scene.effects.open_run(partition, run._replace(complete_by_ms=0))

    def apply(self, effects: Effects) -> None:
        """Take over what the commit made true."""
        for partition, _, run in effects.run_changes:
            if run is not None and run.complete_by_ms:
                self.load(partition, run)

    def load(self, partition: int, run: Run) -> None:
        """A live run; one that is noted several times comes up as often, and is said once."""
        if run.complete_by_ms:
            heapq.heappush(self._times, (run.complete_by_ms, run.run_id, partition))

    def next_wake_ms(self) -> int | None:
        """When the next time comes; None without one."""
        return self._times[0][0] if self._times else None


def say_overdue(run_id: str, job_id: str, row: JobRow, scene: Scene, *, state: str) -> None:
    """Raise the alert of a run that is not closed in time. state: what it is instead."""
    effects, layout = scene.effects, scene.world.layout
    notify = loaded(row.document).notify
    value = encode_alert(
        "overdue", run_id, job_id=job_id, tenant=row.tenant, at_ms=scene.world.now_ms, reason=f"still {state}",
        to=notify.to if NotifyOn.OVERDUE in notify.on else (),
    )  # fmt: skip
    partition = partition_for(job_id, layout.topic_partitions("alerts"))
    effects.outputs[TopicPartition(layout.name("alerts"), partition)].append(Record(job_id.encode(), value))
    effects.counts["overdue"] += 1
