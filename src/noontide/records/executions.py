"""Records of the `executions` topic: one flat object per closed run or recorded decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import orjson

from noontide.core.instants import format_instant
from noontide.core.run import Run, RunState
from noontide.core.zones import tzdata_version


class Range(NamedTuple):
    """A recorded decision over many occurrences at once: from `due` of the record to `until_ms`."""

    until_ms: int
    occurrences: int


class Times(NamedTuple):
    """Instants of a run, ms since the epoch: nominal, earliest start, claim, end."""

    due_ms: int
    start_ms: int
    claimed_ms: int
    ended_ms: int


def delivered(run_id: str, job_id: str, *, tenant: str, target: str, times: Times) -> bytes:
    """A run that succeeded by appending to a topic."""
    return delivered_of(tenant=tenant, target=target, times=times)(run_id.encode(), job_id.encode())


def delivered_of(*, tenant: str, target: str, times: Times) -> Callable[[bytes, bytes], bytes]:
    """As `delivered`, for many runs: a function of run id and job id. No JSON library: nothing needs escaping."""
    due_ms, start_ms, claimed_ms, ended_ms = times
    due, claimed = format_instant(due_ms), format_instant(claimed_ms)
    started = "" if start_ms == due_ms else f'","start_after":"{format_instant(start_ms)}'
    ended = claimed if ended_ms == claimed_ms else format_instant(ended_ms)
    rest = (
        f'","tenant":"{tenant}","due":"{due}{started}'
        f'","state":"succeeded","attempt":1,"target":"{target}","claimed_at":"{claimed}","ended_at":"{ended}'
        f'","late_ms":{ended_ms - start_ms},"tzdata":"{tzdata_version()}"}}'
    ).encode()
    return lambda run_id, job_id: b'{"run_id":"%b","job_id":"%b%b' % (run_id, job_id, rest)


def closed(run_id: str, job_id: str, *, tenant: str, times: Times, **fields: object) -> bytes:
    """A run closed in any other way, or a decision. `fields`: state, reason, attempt, target, ...; None is left out."""
    due_ms, start_ms, claimed_ms, ended_ms = times
    return orjson.dumps(
        {
            "run_id": run_id,
            "job_id": job_id,
            "tenant": tenant,
            "due": format_instant(due_ms),
            **({} if start_ms == due_ms else {"start_after": format_instant(start_ms)}),
            **{name: value for name, value in fields.items() if value is not None},
            "claimed_at": format_instant(claimed_ms),
            "ended_at": format_instant(ended_ms),
            "tzdata": tzdata_version(),
        }
    )


def succeeded_of(run: Run, *, ended_ms: int) -> Callable[[bytes, bytes], bytes]:
    """As `closed`, for many runs of workers that succeeded and are alike: a function of run id and job id."""
    line = closed(
        "", "", tenant=run.tenant, times=Times(run.due_ms, run.start_ms, run.claimed_ms, ended_ms),
        **fields_of(run, state=RunState.SUCCEEDED, ended_ms=ended_ms),
    )  # fmt: skip
    rest = line.removeprefix(b'{"run_id":"","job_id":"')
    return lambda run_id, job_id: b'{"run_id":"%b","job_id":"%b%b' % (run_id, job_id, rest)


def fields_of(run: Run, *, state: RunState, ended_ms: int, reason: str | None = None) -> dict[str, object]:
    """What `closed` is told of a run that has been live."""
    return {
        "state": state,
        "reason": reason,
        "attempt": run.attempt,
        "token": run.token,
        "target": run.target,
        "worker": run.worker,
        "queued_at": format_instant(run.queued_ms) if run.queued_ms else None,
        "started_at": format_instant(run.granted_ms) if run.granted_ms else None,
        "late_ms": max(0, (run.granted_ms or ended_ms) - run.start_ms),
        "attempts": f"[{run.history}]" if run.history else None,
    }


def decided(run_id: str, job_id: str, *, tenant: str, due_ms: int, at_ms: int, **fields: object) -> bytes:
    """A decision not to run one occurrence, or (with `span`: a Range) many. `fields`: decision, reason, span."""
    span = fields.pop("span", None)
    if isinstance(span, Range):
        fields |= {"until": format_instant(span.until_ms), "count": span.occurrences}
    fields["state"] = fields.pop("decision")
    return closed(run_id, job_id, tenant=tenant, times=Times(due_ms, due_ms, at_ms, at_ms), **fields)
