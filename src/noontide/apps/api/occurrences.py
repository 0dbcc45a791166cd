"""`GET /v1/jobs/{id}/occurrences`: every due time of a range with what was decided about it and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import job_id_of, json_response
from noontide.apps.api.past import past_page, tenants_of
from noontide.apps.api.principal import Principal, Viewer
from noontide.apps.api.reading import find_job, loaded
from noontide.apps.api.services import owners_of, services_of
from noontide.apps.api.views import execution_view, live_view, shown
from noontide.apps.port import wire
from noontide.apps.timelines import entries_of
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant, parse_instant
from noontide.core.job import Job
from noontide.ports.history import ExecutionFilter
from noontide.records.leases import decode_lease

router = APIRouter(prefix="/v1", tags=["jobs"])
OCCURRENCES_MAX = 1_000
LINES_MAX = 1_000


@router.get("/jobs/{job_id}/occurrences", summary="Every due time of a range, and what became of it")
async def occurrences(
    request: Request,
    job_id: str,
    who: Viewer,
    since: Annotated[str, Query(alias="from", description="First instant, RFC 3339, inclusive.")],
    until: Annotated[str, Query(alias="to", description="Last instant, RFC 3339, exclusive.")],
) -> Response:
    """What is recorded; else, by the schedule as it is now, `planned` where the time is to come, else `unrecorded`.

    A recorded decision over many occurrences at once has `until` and `count`. At most 1,000; `truncated` says if there
    are more. `older` is as for executions: where it is `unreachable`, what is `unrecorded` may be recorded.
    """
    found = await find_job(request, who, job_id_of(job_id))
    job = loaded(found)
    zone = "UTC" if job is None else job.timezone
    from_ms = parse_instant(since, zone=zone, pointer="/query/from")
    to_ms = parse_instant(until, zone=zone, pointer="/query/to")
    if to_ms <= from_ms:
        raise InvalidDefinition.of("/query/to", "must be later than from")
    planned = [] if job is None else list(_scheduled(request, job, from_ms, to_ms, created_ms=found.created_ms))
    if truncated := len(planned) > OCCURRENCES_MAX:
        to_ms = _due_ms(planned.pop())
    wanted = ExecutionFilter(job_id=job_id, tenants=tenants_of(who), since_ms=from_ms, until_ms=to_ms)
    past = await past_page(request, wanted, limit=LINES_MAX)
    if len(past.items) == LINES_MAX and past.more:  # the latest ones are shown
        truncated, from_ms = True, max(from_ms, _due_ms(past.items[-1]))
    recorded = [execution_view(each) for each in past.items] + [each async for each in _live(request, who, job_id)]
    items = {_key(each): each for each in recorded if _lies_in(each, from_ms, to_ms)}
    covered = [each for each in recorded if "until" in each]
    for item in planned:
        if _due_ms(item) >= from_ms and not any(each["due"] <= item["due"] <= each["until"] for each in covered):
            items.setdefault(item["due"], item)
    shown = [items[key] for key in sorted(items)]
    return json_response({"items": shown, "truncated": truncated, "older": past.older})


def _scheduled(request: Request, job: Job, from_ms: int, to_ms: int, *, created_ms: int) -> Iterator[dict[str, Any]]:
    """Due times as the definition gives them now; those before the job was created are none."""
    services = services_of(request)
    now_ms, after_ms = services.now_ms(), max(from_ms - 1, created_ms)
    for entry in entries_of(job, services.config(), after_ms=after_ms, count=OCCURRENCES_MAX + 1):
        if entry.due_ms >= to_ms:
            return
        state = "planned" if entry.start_ms > now_ms else "unrecorded"
        yield {
            "due": _instant(entry.due_ms),
            "start_after": shown(entry.start_ms),
            "state": state,
            "run_id": None,
            "notes": list(entry.notes),
        }


async def _live(request: Request, who: Principal, job_id: str) -> AsyncIterator[dict[str, Any]]:
    """What is going on."""
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(job_id))
    live = await owners.ask(slot, wire.LivePage(slots=[slot], after="", limit=LINES_MAX, job_id=job_id))
    assert isinstance(live, wire.FoundRuns)
    for run in live.runs:
        text = wire.text_of(run.live)
        if text is not None:
            lease = decode_lease(run.id.encode(), text)
            if who.sees(lease.tenant):
                yield {**live_view(lease), "due": _instant(lease.due_ms)}


def _due_ms(view: Mapping[str, Any]) -> int:
    return parse_instant(view["due"], zone=None, pointer="")


def _lies_in(view: dict[str, Any], from_ms: int, to_ms: int) -> bool:
    due_ms = _due_ms(view)
    end_ms = parse_instant(view["until"], zone=None, pointer="") if "until" in view else due_ms
    return due_ms < to_ms and end_ms >= from_ms


def _key(view: dict[str, Any]) -> str:
    """Scheduled occurrences by their due time; runs by hand and redriven ones beside them."""
    run_id = str(view["run_id"])
    return str(view["due"]) if ":m" not in run_id[run_id.rfind(":") :] else f"{view['due']} {run_id}"


def _instant(instant_ms: int) -> str:
    """With milliseconds, as lines of history have it."""
    return format_instant(instant_ms)
