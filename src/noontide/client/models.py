"""What the API answers, typed. Members that a later version adds are passed over."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong with a request. pointer: JSON pointer into the body, or /query/..., /headers/..., /path/..."""

    pointer: str
    message: str


class Job(msgspec.Struct, kw_only=True):
    """A job. state: active, paused, completed, quarantined, blocked; deleted when a repeated create finds it gone.

    next_due: its next time; start_after: when that run may start (spread). runs: completed so far. definition: as it
    was accepted, with all short forms written out. etag: its version, for `if_match`.
    """

    id: str
    tenant: str
    state: str
    next_due: datetime | None = None
    start_after: datetime | None = None
    last_due: datetime | None = None
    runs: int = 0
    reason: str | None = None
    etag: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    definition: dict[str, Any] = {}


class Run(msgspec.Struct, kw_only=True):
    """A run, or the decision not to run an occurrence (`state` is then skipped, missed, coalesced, dropped ...).

    state: pending, queued, running, retry_wait, succeeded, dead, cancelled. attempts: the earlier ones. ends: of a run
    that was redriven, every end it had; only where one run is read.
    """

    run_id: str
    job_id: str
    tenant: str
    state: str
    due: datetime | None = None
    until: datetime | None = None
    count: int = 1
    start_after: datetime | None = None
    claimed_at: datetime | None = None
    queued_at: datetime | None = None
    granted_at: datetime | None = None
    ended_at: datetime | None = None
    not_before: datetime | None = None
    attempt: int = 0
    token: int = 0
    target: str | None = None
    lane: str | None = None
    worker: str | None = None
    reason: str | None = None
    error: str | None = None
    attempts: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []


class Time(msgspec.Struct, kw_only=True):
    """One time a job would run. local: the same in the job's zone; notes: what daylight saving did to it."""

    due: datetime
    start_after: datetime | None = None
    local: str = ""
    notes: list[str] = []


class Times(msgspec.Struct, kw_only=True):
    """Answer of preview and of next."""

    id: str
    timezone: str
    times: list[Time]


class Page(msgspec.Struct, Generic[T], kw_only=True):
    """Some items of a list; next_cursor: None = these are the last.

    older: of executions and runs, what is known beyond the recent ones: history, unreachable, not_kept.
    """

    items: list[T]
    next_cursor: str | None = None
    older: str | None = None


class BatchLine(msgspec.Struct, kw_only=True):
    """What became of one definition of many. line: from 1; status: 201 done, 200 repeated, 202 open, else refused."""

    line: int
    status: int
    id: str | None = None
    etag: str | None = None
    detail: str | None = None
    errors: list[Problem] = []

    @property
    def accepted(self) -> bool:
        """Whether it is in force."""
        return self.status in (200, 201)


class Redriven(msgspec.Struct, kw_only=True):
    """What became of runs that were to start again; of a dry run only `runs`."""

    started: list[str] = []
    refused: list[dict[str, str]] = []
    runs: list[dict[str, Any]] = []


class Workers(msgspec.Struct, kw_only=True):
    """Who holds runs, and how many runs of each lane are in which state."""

    items: list[dict[str, Any]] = []
    lanes: Any = None


class LeasedRun(msgspec.Struct, kw_only=True):
    """A run to carry out. token: fencing token; heartbeat_ms: say one that often, or lose it after lease_ms."""

    run_id: str
    token: int
    job_id: str
    tenant: str
    handler: str
    payload: Any
    due: datetime
    attempt: int
    max_attempts: int
    lane: str
    lease_ms: int
    heartbeat_ms: int
    timeout_ms: int


class Leased(msgspec.Struct, kw_only=True):
    """Runs that a worker has now; empty when none came in time."""

    worker: str
    runs: list[LeasedRun]


class Beaten(msgspec.Struct, kw_only=True):
    """What became of runs: each has `run_id`, `token`, `state` and perhaps `reason`."""

    runs: list[dict[str, Any]]


class Completed(msgspec.Struct, kw_only=True):
    """The end of a run was accepted; state: what it is now."""

    run_id: str
    state: str


class Triggered(msgspec.Struct):
    """The run that a trigger made."""

    run_id: str


class Backfilled(msgspec.Struct, kw_only=True, rename={"begin": "from", "end": "to"}):
    """What a backfill makes. begin, end: of its range, the end exclusive. skipped: occurrences dealt with before.

    dry_run: nothing was made. repeated: it had been asked for before, with the same idempotency key.
    """

    job_id: str
    begin: datetime
    end: datetime
    runs: int
    skipped: int
    dry_run: bool = False
    repeated: bool = False


class Decided(msgspec.Struct, kw_only=True):
    """What became of a write that was answered 202."""

    state: str
    verdict: str | None = None
    refusal: str | None = None
    problems: list[Problem] = []
    run_id: str | None = None
