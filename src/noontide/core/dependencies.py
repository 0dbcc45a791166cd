"""Jobs that wait for others: when one runs, when it is skipped, and what may not be (a cycle).

Logical time is the due time of the root. A job runs for a logical time when all its upstreams have succeeded for it;
what happens otherwise is the job's own rule (`on_upstream_failure`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from noontide.core.policies import UpstreamFailure

OWN_TIME = "*"
"""Stands among the upstreams of a job that has a schedule too: its own occurrence of the logical time."""
SUCCEEDED = "succeeded"
PATH_MAX = 64
"""Longest chain of jobs that is searched for a cycle."""


class Step(StrEnum):
    """What becomes of a job at one logical time."""

    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"


class Verdict(NamedTuple):
    """The step, and why; `because` names the upstreams that are awaited, or the one that failed."""

    step: Step
    because: str = ""


def judge(needed: Collection[str], got: Mapping[str, str], rule: UpstreamFailure) -> Verdict:
    """What becomes of a job whose upstreams ended like this so far. got: final state by upstream."""
    if rule is UpstreamFailure.SKIP:
        for upstream in needed:
            if got.get(upstream, SUCCEEDED) != SUCCEEDED:
                return Verdict(Step.SKIP, f"upstream {upstream} was {got[upstream]}")
    awaited = [upstream for upstream in needed if upstream not in got]
    if awaited:
        return Verdict(Step.WAIT, ", ".join(each for each in awaited if each != OWN_TIME) or "its own time")
    return Verdict(Step.RUN)


def path_to(goal: str, starts: Iterable[str], upstreams_of: Callable[[str], Iterable[str]]) -> tuple[str, ...] | None:
    """A chain of upstreams from one of `starts` to `goal`, both included; None when there is none (that is known)."""
    found: dict[str, str | None] = dict.fromkeys(starts)
    queue = list(found)
    for job in queue:
        if job == goal:
            return _traced(job, found)
        for upstream in upstreams_of(job):
            if upstream not in found:
                found[upstream] = job
                queue.append(upstream)
    return None


def _traced(job: str, found: Mapping[str, str | None]) -> tuple[str, ...]:
    path, at = [job], found[job]
    while at is not None:
        path.append(at)
        at = found[at]
    return tuple(reversed(path))


def subtree(root: str, dependants_of: Callable[[str], Iterable[str]]) -> list[str]:
    """The root and everything downstream of it, each once, in the order of breadth."""
    found = {root: None}
    queue = [root]
    for job in queue:
        for each in dependants_of(job):
            if each not in found:
                found[each] = None
                queue.append(each)
    return queue


def cycle_text(path: Iterable[str]) -> str:
    """A cycle for people: each job waits for the next."""
    return " → ".join(path)
