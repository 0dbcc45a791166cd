"""What tenants have of what is limited: given, used, waiting; worked out from `state`, `leases` and `config`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from noontide.actors.live_runs import is_free
from noontide.core.run import Run, RunState
from noontide.records import state
from noontide.records.limit_book import LimitBook


class Share(NamedTuple):
    """A tenant's part of one limiter.

    concurrency_max, starts_per_second_max: of the limiter; None = no bound now. weight: of the tenant.
    given: permits it has; running: runs of workers with one; waiting: runs that wait for one.
    """

    limiter: str
    tenant: str
    concurrency_max: int | None
    starts_per_second_max: float | None
    weight: float
    given: int
    running: int
    waiting: int


class LaneShare(NamedTuple):
    """A tenant's runs in one lane: ready to be offered, offered (queued), running, and waiting for something else."""

    lane: str
    tenant: str
    weight: float
    ready: int
    queued: int
    running: int
    waiting: int


def limiter_shares(given: Mapping[bytes, bytes], runs: Iterable[Run], book: LimitBook) -> list[Share]:
    """Shares by limiter and tenant. given: values of `state` by key (`limiter/...`); others are passed over."""
    permits, running, waiting = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for key, value in given.items():
        if key.startswith(state.LIMITER):
            limiter, tenant, _ = state.limiter_key_parts(key)
            permits[limiter, tenant] += state.decode_counts(value, "given", "wanted")[0]
    for run in runs:
        if run.awaits is not None:
            waiting[run.awaits, run.tenant] += 1
        for limiter in run.permits if run.state is RunState.RUNNING else ():
            running[limiter, run.tenant] += 1
    configured = ((limiter, limiter.removeprefix("tenant/")) for limiter in book.ceilings if limiter[:7] == "tenant/")
    found = []
    for limiter, tenant in sorted({*permits, *running, *waiting, *configured}):
        ceiling, at = book.ceiling(limiter), (limiter, tenant)
        weight, counts = book.weight_of(tenant), (permits[at], running[at], waiting[at])
        found.append(Share(limiter, tenant, ceiling.concurrency, ceiling.per_second, weight, *counts))
    return found


def lane_shares(runs: Iterable[Run], book: LimitBook) -> list[LaneShare]:
    """Shares by lane and tenant, of runs that workers take."""
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for run in runs:
        if run.lane:
            counts[run.lane, run.tenant][stage_of(run)] += 1
    return [
        LaneShare(lane, tenant, book.weight_of(tenant), *(of[each] for each in LaneShare._fields[3:]))
        for (lane, tenant), of in sorted(counts.items())
    ]


def stage_of(run: Run) -> str:
    """running, queued (offered to workers), ready to be offered, or waiting for something else."""
    if run.state in (RunState.RUNNING, RunState.QUEUED):
        return str(run.state)
    return "ready" if is_free(run) else "waiting"
