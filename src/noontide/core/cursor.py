"""Where a job stands in its schedule: the one fact that a dispatch moves.

active ──(last occurrence claimed)──> completed ──(retention over)──> gone
  │  ▲
  │  └─ resume ─ paused               deleted ──(marker retention over)──> gone
  └──(one input that cannot be handled)──> quarantined
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class JobState(StrEnum):
    """What the scheduler does with a job."""

    ACTIVE = "active"
    """Has a next occurrence, or waits for something that will give it one."""
    PAUSED = "paused"
    """Times that pass are not missed; a trigger still works."""
    COMPLETED = "completed"
    """Nothing left to do; removed after `completed_retention_ms`."""
    QUARANTINED = "quarantined"
    """Set aside because handling it failed; the reason says how. A new definition releases it."""
    BLOCKED = "blocked"
    """Waits on jobs that wait on it."""
    DELETED = "deleted"
    """A marker that outlives the job, so that late copies of old requests are recognised."""


class Cursor(NamedTuple):
    """The position of one job.

    due_ms: nominal time of the next occurrence; None when there is none.
    start_ms: when something happens next: the spread start of that occurrence (active), the removal (completed),
        the end of the marker (deleted).
    runs: occurrences claimed so far (counts towards `max_runs`).
    generation: 1 for the first life of the id, one more each time it is created anew.
    last_due_ms: nominal time of the last claimed or decided occurrence.
    accepted_ms: append time of the request that gave the definition in force (or that deleted it).
    """

    state: JobState
    due_ms: int | None = None
    start_ms: int | None = None
    runs: int = 0
    generation: int = 1
    last_due_ms: int | None = None
    accepted_ms: int = 0
    reason: str | None = None
