"""`GET /v1/jobs/{id}/occurrences`: every due time of a range with what was decided about it and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import job_id_of, json_response
from noontide.apps.api.principal import Principal, Viewer
from noontide.apps.api.reading import find_job, loaded
from noontide.apps.api.services import owners_of, services_of
from noontide.apps.api.views import execution_view, live_view, shown
from noontide.apps.port import wire
from noontide.apps.timelines import entries_of
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant, parse_instant
from noontide.core.job import Job
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
    are more.
    """
    found = await find_job(request, who, job_id_of(job_id))
    job = loaded(found)
    zone = "UTC" if job is None else job.timezone
    from_ms = parse_instant(since, zone=zone, pointer="/query/from")
    to_ms = parse_instant(until, zone=zone, pointer="/query/to")
    if to_ms <= from_ms:
        raise InvalidDefinition.of("/query/to", "must be later than from")
    recorded = [each async for each in _recorded(request, who, job_id)]
    items = {_key(each): each for each in recorded if _lies_in(each, from_ms, to_ms)}
    covered = [each for each in recorded if "until" in each]
    truncated = False
    if job is not None:
        planned = list(_scheduled(request, job, from_ms, to_ms, created_ms=found.created_ms))
        truncated = len(planned) > OCCURRENCES_MAX
        for item in planned[:OCCURRENCES_MAX]:
            if not any(each["due"] <= item["due"] <= each["until"] for each in covered):
                items.setdefault(item["due"], item)
    return json_response({"items": [items[key] for key in sorted(items)], "truncated": truncated})


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


async def _recorded(request: Request, who: Principal, job_id: str) -> AsyncIterator[dict[str, Any]]:
    """What happened: the newest lines of history, and live runs."""
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(job_id))
    history = await owners.ask(slot, wire.Executions(slot=slot, job_id=job_id, limit=LINES_MAX))
    live = await owners.ask(slot, wire.LivePage(slots=[slot], after="", limit=LINES_MAX, job_id=job_id))
    assert isinstance(history, wire.Lines)
    assert isinstance(live, wire.FoundRuns)
    for line in reversed(history.lines):  # of one that was redriven the newest counts
        view = execution_view(orjson.loads(bytes(line.execution)))
        if who.sees(str(view.get("tenant"))):
            yield view
    for run in live.runs:
        text = wire.text_of(run.live)
        if text is not None:
            lease = decode_lease(run.id.encode(), text)
            if who.sees(lease.tenant):
                yield {**live_view(lease), "due": _instant(lease.due_ms)}


def _lies_in(view: dict[str, Any], from_ms: int, to_ms: int) -> bool:
    due_ms = parse_instant(view["due"], zone=None, pointer="")
    end_ms = parse_instant(view["until"], zone=None, pointer="") if "until" in view else due_ms
    return due_ms < to_ms and end_ms >= from_ms


def _key(view: dict[str, Any]) -> str:
    """Scheduled occurrences by their due time; runs by hand and redriven ones beside them."""
    run_id = str(view["run_id"])
    return str(view["due"]) if ":m" not in run_id[run_id.rfind(":") :] else f"{view['due']} {run_id}"


def _instant(instant_ms: int) -> str:
    """With milliseconds, as lines of history have it."""
    return format_instant(instant_ms)
