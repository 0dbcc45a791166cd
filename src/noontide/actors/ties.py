"""What a slot remembers of jobs that wait for others, and what one cycle changes of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.records.backfills import Backfills
from noontide.records.dependencies import Join, JoinKey, Upstreams, Wave


class Follows(NamedTuple):
    """A definition in force whose job waits for others, or did. version: its ETag."""

    tenant: str
    after: tuple[str, ...]
    version: str


@dataclass(slots=True)
class Ties:
    """dependants: by upstream, of upstreams at home here. after: by job; waves: by run id; joins: what waits.

    streaks: dead runs in a row, by job, of jobs that are paused for them. backfills: by job.
    """

    dependants: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    after: dict[str, Upstreams] = field(default_factory=dict)
    waves: dict[str, Wave] = field(default_factory=dict)
    joins: dict[JoinKey, Join] = field(default_factory=dict)
    streaks: dict[str, int] = field(default_factory=dict)
    backfills: dict[str, Backfills] = field(default_factory=dict)


class OwnTime(NamedTuple):
    """An occurrence of a job that has a schedule and upstreams."""

    partition: int
    job_id: str
    due_ms: int


@dataclass(slots=True)
class TieChanges:
    """What one cycle changes. follows: definitions; appeared, gone: jobs; own_times: to be matched with upstreams.

    edges: (upstream, downstream) to whether there is one; probed: probes that were passed on.
    """

    follows: dict[str, Follows] = field(default_factory=dict)
    appeared: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    own_times: list[OwnTime] = field(default_factory=list)
    edges: dict[tuple[str, str], bool] = field(default_factory=dict)
    after: dict[str, Upstreams | None] = field(default_factory=dict)
    waves: dict[str, Wave | None] = field(default_factory=dict)
    joins: dict[JoinKey, Join | None] = field(default_factory=dict)
    probed: list[tuple[str, str]] = field(default_factory=list)
    streaks: dict[str, int] = field(default_factory=dict)
    backfills: dict[str, Backfills | None] = field(default_factory=dict)
