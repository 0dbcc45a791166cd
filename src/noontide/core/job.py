"""A job as the scheduler knows it: every field of an accepted definition, typed, with its default.

The words its fields use (`policies`, `targets`) can be imported from here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from noontide.core.dst import DEFAULT_DST, DstRule
from noontide.core.occurrence import RELAXED, Timing
from noontide.core.policies import (
    DEFAULT_MISFIRE,
    DEFAULT_RETRY,
    NO_CALENDAR,
    NOBODY,
    CalendarRule,
    Guarantee,
    MisfirePolicy,
    MisfireRule,
    Notify,
    Overlap,
    RetryPolicy,
    UpstreamFailure,
)
from noontide.core.schedule import Schedule
from noontide.core.targets import HandlerTarget, HttpTarget, Target, TopicTarget

__all__ = [
    "CalendarRule",
    "Guarantee",
    "HandlerTarget",
    "HttpTarget",
    "Job",
    "MisfirePolicy",
    "MisfireRule",
    "Notify",
    "Overlap",
    "RetryPolicy",
    "Target",
    "Timing",
    "TopicTarget",
    "UpstreamFailure",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One accepted definition. Instants are ms since the epoch, UTC; durations are ms; None = not set.

    schedule: None for a job that only follows its upstreams (`after`).
    timezone: IANA name; the schedule and local instants are read in it.
    payload: the JSON text exactly as it was sent; b"null" when there was none.
    lease_ms: how long a worker may be silent (it reports three times as often).
    timeout_ms: from grant to forced end. queue_deadline_ms: from publication to the return to the ready queue.
    complete_by_ms: after the nominal time, when an unfinished run counts as overdue.
    priority: 0 (lowest) to 9.
    """

    id: str
    tenant: str
    target: Target
    schedule: Schedule | None
    timezone: str = "UTC"
    dst: DstRule = DEFAULT_DST
    timing: Timing = RELAXED
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    max_runs: int | None = None
    calendar: CalendarRule = NO_CALENDAR
    payload: bytes = b"null"
    lane: str = "default"
    priority: int = 5
    retry: RetryPolicy = DEFAULT_RETRY
    timeout_ms: int = 300_000
    queue_deadline_ms: int = 600_000
    lease_ms: int = 30_000
    complete_by_ms: int | None = None
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    misfire: MisfirePolicy = DEFAULT_MISFIRE
    overlap: Overlap = Overlap.SKIP
    concurrency_key: str | None = None
    after: tuple[str, ...] = ()
    on_upstream_failure: UpstreamFailure = UpstreamFailure.SKIP
    pause_after_failures: int | None = None
    paused: bool = False
    note: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    managed_by: str | None = None
    notify: Notify = NOBODY
    idempotency_key: str | None = None
