"""What was seen of the demo so far: runs as they arrived, what workers have, and what comes next."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from noontide.core.cursor import Cursor, JobState
from noontide.core.instants import parse_instant
from noontide.core.run import Run, RunState
from noontide.ports.record_log import Incoming

RUNS_SHOWN: Final = 12
NEXT_SHOWN: Final = 6


class Arrived(NamedTuple):
    """A run or a decision, as the log has it. begun_ms: when it was appended, or when a worker started it."""

    execution: dict[str, object]
    job_id: str
    due_ms: int
    start_ms: int
    appended_ms: int
    begun_ms: int

    @property
    def late_ms(self) -> int:
        """How much later than planned it began, in ms."""
        return self.begun_ms - self.start_ms

    @property
    def took_ms(self) -> int:
        """How long a worker had it, in ms; 0 for records on topics."""
        return self.appended_ms - self.begun_ms


@dataclass(slots=True)
class Board:
    """What was seen so far.

    late_ms: of runs that succeeded; latest_ms: the newest append, in broker time. live: runs that workers have.
    notes: what the demo itself did.
    """

    jobs: int
    runs: int = 0
    decisions: int = 0
    late_ms: list[int] = field(default_factory=list)
    last: deque[Arrived] = field(default_factory=lambda: deque(maxlen=RUNS_SHOWN))
    cursors: dict[str, Cursor] = field(default_factory=dict)
    latest_ms: int = 0
    live: dict[str, Run] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note_run(self, arrived: Arrived) -> None:
        """Count a run or a decision."""
        self.latest_ms = max(self.latest_ms, arrived.appended_ms)
        if arrived.execution.get("state") == "succeeded":
            self.runs += 1
            self.late_ms.append(arrived.late_ms)
        else:
            self.decisions += 1
        self.last.append(arrived)

    def note_lease(self, run_id: str, run: Run | None) -> None:
        """What `leases` says of a run; None = it is closed."""
        if run is not None and run.state is RunState.RUNNING:
            self.live[run_id] = run
        else:
            self.live.pop(run_id, None)

    def workers(self) -> Counter[str]:
        """How many runs each worker has."""
        return Counter(run.worker for run in self.live.values() if run.worker is not None)

    def coming_up(self) -> list[tuple[int, str]]:
        """(start in ms, job id) of what is next, only of jobs that are not among the runs on show."""
        shown = {arrived.job_id for arrived in self.last}
        waiting = (
            (cursor.start_ms, job_id)
            for job_id, cursor in self.cursors.items()
            if cursor.state is JobState.ACTIVE and cursor.start_ms is not None and job_id not in shown
        )
        return sorted(waiting)[:NEXT_SHOWN]


def arrived(record: Incoming) -> Arrived:
    """A record of `executions`."""
    execution = orjson.loads(record.value or b"{}")
    due_ms = parse_instant(execution["due"], zone=None, pointer="/due")
    start = execution.get("start_after")
    start_ms = due_ms if start is None else parse_instant(start, zone=None, pointer="/start_after")
    granted = [attempt.get("granted") for attempt in orjson.loads(execution.get("attempts") or "[]")]
    last = execution.get("started_at")
    last_ms = record.appended_ms if last is None else parse_instant(last, zone=None, pointer="/started_at")
    begun_ms = next(filter(None, granted), last_ms)
    return Arrived(execution, execution["job_id"], due_ms, start_ms, record.appended_ms, begun_ms)
