"""The life of a run: one occurrence of a job, from its claim to its close.

    pending ──> queued ──> running ──> succeeded | dead | cancelled
       ▲           ▲          │
       │           └─ retry_wait <─┘
    (claim)

`TRANSITIONS` is the whole truth; what is absent is an error.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class RunState(StrEnum):
    """States of a live or closed run."""

    PENDING = "pending"
    """Claimed; waits for its start time, a permit, or a target that can take it."""
    QUEUED = "queued"
    """Handed out; nobody has confirmed it yet."""
    RUNNING = "running"
    """A worker holds its lease."""
    RETRY_WAIT = "retry_wait"
    """An attempt failed; the next one waits for its backoff."""
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    """No more attempts; the payload is kept in `dead-letters` and can be redriven."""
    CANCELLED = "cancelled"


class Decision(StrEnum):
    """What else can become of an occurrence: recorded, but never run."""

    SKIPPED = "skipped"
    """By overlap, calendar or a rule; the reason says which."""
    MISSED = "missed"
    """Later than its grace under `misfire: skip`."""
    COALESCED = "coalesced"
    """Missed together with a newer one that ran for all (`misfire: run_once`)."""
    DROPPED = "dropped"
    """Beyond `run_all_max` of `misfire: run_all`."""


class RunEvent(StrEnum):
    """What can happen to a run."""

    HAND_OUT = "hand_out"
    GRANT = "grant"
    SUCCEED = "succeed"
    FAIL = "fail"
    GIVE_UP = "give_up"
    CANCEL = "cancel"
    REQUEUE = "requeue"


_S, _E = RunState, RunEvent
TRANSITIONS: dict[tuple[RunState, RunEvent], RunState] = {
    (_S.PENDING, _E.HAND_OUT): _S.QUEUED,
    (_S.PENDING, _E.SUCCEED): _S.SUCCEEDED,
    (_S.PENDING, _E.GIVE_UP): _S.DEAD,
    (_S.PENDING, _E.CANCEL): _S.CANCELLED,
    (_S.QUEUED, _E.GRANT): _S.RUNNING,
    (_S.QUEUED, _E.SUCCEED): _S.SUCCEEDED,
    (_S.QUEUED, _E.FAIL): _S.RETRY_WAIT,
    (_S.QUEUED, _E.GIVE_UP): _S.DEAD,
    (_S.QUEUED, _E.CANCEL): _S.CANCELLED,
    (_S.QUEUED, _E.REQUEUE): _S.PENDING,
    (_S.RUNNING, _E.SUCCEED): _S.SUCCEEDED,
    (_S.RUNNING, _E.FAIL): _S.RETRY_WAIT,
    (_S.RUNNING, _E.GIVE_UP): _S.DEAD,
    (_S.RUNNING, _E.CANCEL): _S.CANCELLED,
    (_S.RUNNING, _E.REQUEUE): _S.PENDING,
    (_S.RETRY_WAIT, _E.HAND_OUT): _S.QUEUED,
    (_S.RETRY_WAIT, _E.GIVE_UP): _S.DEAD,
    (_S.RETRY_WAIT, _E.REQUEUE): _S.PENDING,
    (_S.RETRY_WAIT, _E.CANCEL): _S.CANCELLED,
}
CLOSED = frozenset({_S.SUCCEEDED, _S.DEAD, _S.CANCELLED})
HANDED_OUT, WAITING = (_S.QUEUED, _S.RUNNING), (_S.PENDING, _S.RETRY_WAIT)  # pairs: faster than sets


def advance(state: RunState, event: RunEvent) -> RunState:
    """The state after an event. Raises ValueError for a transition that does not exist."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a {state} run cannot {event}") from None


class Run(NamedTuple):
    """A live run.

    due_ms: nominal time of the occurrence; start_ms: when it may start (spread); not_before_ms: when to try again.
    attempt: granted starts so far; token: fencing token of the latest grant.
    target: where it goes (kafka://topic, https://..., handler:name); reason: why it waits, for people.
    waits_for: the run whose close it waits for (overlap: queue, replace).
    lane, priority: of a run that workers take; no lane = a record for a topic.
    etag: version of the definition it was claimed with; kept: that definition is kept for it (the job has moved on).
    queued_ms: when it was last handed out, 0 = never. worker, granted_ms: who holds it since when, in broker time.
    cancel: why it is to stop; durable until it has. history: earlier attempts, as JSON members of a list.
    permits: limiters of which it has a permit; awaits: the one whose permit it waits for.
    complete_by_ms: when it is overdue; 0 = never, or that was said.
    trace: trace context of the request that it follows from, "" = none; see `core.tracing`.
    """

    run_id: str
    job_id: str
    tenant: str
    state: RunState
    due_ms: int
    start_ms: int
    claimed_ms: int
    target: str
    attempt: int = 0
    token: int = 0
    not_before_ms: int = 0
    reason: str | None = None
    waits_for: str | None = None
    lane: str = ""
    priority: int = 5
    etag: str = ""
    kept: bool = False
    queued_ms: int = 0
    worker: str | None = None
    granted_ms: int = 0
    cancel: str | None = None
    history: str = ""
    permits: tuple[str, ...] = ()
    awaits: str | None = None
    complete_by_ms: int = 0
    trace: str = ""
