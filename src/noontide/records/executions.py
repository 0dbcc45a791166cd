"""Records of the `executions` topic: one flat object per closed run or recorded decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from noontide.core.instants import format_instant
from noontide.core.zones import tzdata_version


class Range(NamedTuple):
    """A recorded decision over many occurrences at once: from `due` of the record to `until_ms`."""

    until_ms: int
    occurrences: int


def delivered(*, run_id: str, job_id: str, tenant: str, times: Mapping[str, int], target: str, attempt: int = 1) -> bytes:
    """A run that succeeded by appending to a topic. `times`: due, start, claimed, ended (ms). Hot path: no JSON library.

    Ids, tenants and topic names have no characters that JSON would escape.
    """
    due, start, ended = times["due"], times["start"], times["ended"]
    started = "" if start == due else f'","start_after":"{format_instant(start)}'
    return (
        f'{{"run_id":"{run_id}","job_id":"{job_id}","tenant":"{tenant}","due":"{format_instant(due)}{started}'
        f'","state":"succeeded","attempt":{attempt},"target":"{target}'
        f'","claimed_at":"{format_instant(times["claimed"])}","ended_at":"{format_instant(ended)}'
        f'","late_ms":{ended - start},"tzdata":"{tzdata_version()}"}}'
    ).encode()


def closed(*, run_id: str, job_id: str, tenant: str, times: Mapping[str, int], **fields: object) -> bytes:
    """A run closed in any other way, or a decision. `fields`: state, reason, attempt, target, ...; None is left out."""
    due, start, ended = times["due"], times["start"], times["ended"]
    return orjson.dumps(
        {
            "run_id": run_id,
            "job_id": job_id,
            "tenant": tenant,
            "due": format_instant(due),
            **({} if start == due else {"start_after": format_instant(start)}),
            **{name: value for name, value in fields.items() if value is not None},
            "claimed_at": format_instant(times["claimed"]),
            "ended_at": format_instant(ended),
            "tzdata": tzdata_version(),
        }
    )


def decided(
    *, run_id: str, job_id: str, tenant: str, due_ms: int, at_ms: int, state: str, reason: str, span: Range | None = None
) -> bytes:
    """A decision not to run one occurrence, or a range of them."""
    covered: dict[str, object] = {} if span is None else {"until": format_instant(span.until_ms), "count": span.occurrences}
    times = {"due": due_ms, "start": due_ms, "claimed": at_ms, "ended": at_ms}
    return closed(run_id=run_id, job_id=job_id, tenant=tenant, times=times, state=state, reason=reason, **covered)
