"""What becomes of occurrences that could not be claimed in time. Lateness counts from the spread start."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from noontide.core.occurrence import Occurrence
from noontide.core.policies import MisfireRule
from noontide.core.run import Decision

Following = Callable[[int], Occurrence | None]


class Passed(NamedTuple):
    """Occurrences that are decided without a run: from first to last, `occurrences` of them."""

    first_ms: int
    last_ms: int
    occurrences: int
    decision: Decision


class Verdict(NamedTuple):
    """What to do about a late job.

    passed: occurrences to record as not run, if any; claim: the occurrence to run now, if any;
    following: the one after those, unless it has to be looked for after the claim.
    """

    passed: Passed | None
    claim: Occurrence | None
    following: Occurrence | None


class Backlog(NamedTuple):
    """Late occurrences, oldest first; `following` is the first that is not late, or not looked at yet."""

    late: list[Occurrence]
    following: Occurrence | None


def backlog(first: Occurrence, following: Following, *, until_ms: int, limit: int) -> Backlog:
    """Occurrences from `first` on that start at or before `until_ms`, at most `limit` (the rest: next time)."""
    late, current = [first], following(first.due_ms)
    while current is not None and current.start_ms <= until_ms and len(late) < limit:
        late.append(current)
        current = following(current.due_ms)
    return Backlog(late, current)


def judge(rule: MisfireRule, found: Backlog, *, run_all_max: int, now_ms: int) -> Verdict:
    """Apply the rule to a backlog whose first occurrence is later than its grace.

    run_once: the newest runs, the older ones are coalesced. run_all: the oldest runs now, the others follow in order;
    what exceeds `run_all_max` is dropped from the old end. skip: all are missed.
    A backlog that was cut at its limit (its `following` is late too) is decided without a run: more of it follows.
    """
    late, following = found
    cut = following is not None and following.start_ms <= now_ms
    match rule:
        case MisfireRule.SKIP:
            return Verdict(_passed(late, Decision.MISSED), None, following)
        case MisfireRule.RUN_ONCE if cut:
            return Verdict(_passed(late, Decision.COALESCED), None, following)
        case MisfireRule.RUN_ONCE:
            return Verdict(_passed(late[:-1], Decision.COALESCED), late[-1], following)
        case MisfireRule.RUN_ALL:
            excess = len(late) - run_all_max
            if excess > 0:
                return Verdict(_passed(late[:excess], Decision.DROPPED), None, late[excess])
            return Verdict(None, late[0], late[1] if len(late) > 1 else following)


def _passed(late: list[Occurrence], decision: Decision) -> Passed | None:
    return Passed(late[0].due_ms, late[-1].due_ms, len(late), decision) if late else None
