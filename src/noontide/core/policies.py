"""The rules a job may choose from, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Guarantee(StrEnum):
    """What is promised about the number of starts of one run."""

    AT_LEAST_ONCE = "at_least_once"
    """A run whose worker is lost starts again; targets use the run id to tell repetitions."""
    AT_MOST_ONCE = "at_most_once"
    """A run never starts twice; a lost worker closes it as dead, its outcome unknown."""


class Overlap(StrEnum):
    """What happens when an occurrence falls due while a run of the job is live."""

    SKIP = "skip"
    """The occurrence is recorded as skipped."""
    QUEUE = "queue"
    """One occurrence waits until the live run closes; another one is recorded as skipped."""
    ALLOW = "allow"
    """Both run."""
    REPLACE = "replace"
    """The live run is cancelled; the new one starts when it is closed."""


class MisfireRule(StrEnum):
    """What happens to occurrences that could not be claimed within the grace."""

    RUN_ONCE = "run_once"
    """One run for the newest missed time; the others are recorded as coalesced."""
    RUN_ALL = "run_all"
    """Each missed time in order; beyond the maximum the oldest are recorded as dropped."""
    SKIP = "skip"
    """All are recorded as missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfirePolicy:
    """grace_ms: lateness, counted from the spread start, that is still an ordinary run.

    run_all_max: most runs that one catch-up makes under MisfireRule.RUN_ALL.
    """

    rule: MisfireRule = MisfireRule.RUN_ONCE
    grace_ms: int = 60_000
    run_all_max: int = 1_000


class Jitter(StrEnum):
    """How the wait before an attempt is spread."""

    FULL = "full"
    """Uniform between zero and the computed wait, so that runs that failed together do not return together."""
    NONE = "none"
    """The computed wait itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """The wait before attempt k + 1 is at most min(cap_ms, base_ms x 2^k), spread as `jitter` says."""

    base_ms: int = 5_000
    cap_ms: int = 3_600_000
    jitter: Jitter = Jitter.FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDelays:
    """The wait before attempt k + 1 is delays_ms[k - 1], and the last one from there on."""

    delays_ms: tuple[int, ...]


Backoff = ExponentialBackoff | FixedDelays


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """max_attempts: granted starts of one run, the first one included."""

    max_attempts: int = 5
    backoff: Backoff = ExponentialBackoff()


class UpstreamFailure(StrEnum):
    """What a job does when an upstream of the same logical time did not succeed (failed, skipped or cancelled)."""

    SKIP = "skip"
    """The occurrence is recorded as skipped, and so on down the line."""
    RUN = "run"
    """It runs as if the upstream had succeeded."""


class NotifyOn(StrEnum):
    """Events of a job that people may be told about."""

    DEAD = "dead"
    """A run ended dead."""
    STREAK = "streak"
    """Several runs in a row ended dead."""
    RECOVERED = "recovered"
    """A run succeeded after dead ones."""
    OVERDUE = "overdue"
    """A run had not succeeded when `complete_by` passed."""
    LATE = "late"
    """A run began later than `late_after`; once, until one begins in time."""
    LEASE_LOST = "lease_lost"
    """Workers of a run that has ended had lost their leases."""
    NOTHING_RAN = "nothing_ran"
    """No run ended for longer than `nothing_ran_after`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """on: what is told. to: names of channels the operator configured; empty = nobody is told.

    streak, late_after_ms: None = as the agents are configured. nothing_ran_after_ms: there when it is told.
    """

    on: tuple[NotifyOn, ...] = ()
    to: tuple[str, ...] = ()
    streak: int | None = None
    late_after_ms: int | None = None
    nothing_ran_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRule:
    """Names of calendars: occurrences inside an excluded one, or outside every included one, do not happen."""

    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()


DEFAULT_RETRY = RetryPolicy()
DEFAULT_MISFIRE = MisfirePolicy()
NO_CALENDAR = CalendarRule()
NOBODY = Notify()
