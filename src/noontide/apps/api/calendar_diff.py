"""`POST /v1/calendars/{name}/diff`: which fires of which jobs would move, before a calendar is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import body_of, json_response, object_of
from noontide.apps.api.job_lists import merged
from noontide.apps.api.principal import Supervisor
from noontide.apps.api.reading import loaded
from noontide.apps.api.services import owners_of, services_of
from noontide.apps.calendar_diff import as_document, moved_fires
from noontide.apps.port import wire
from noontide.apps.timelines import shown_instant
from noontide.core.calendar import parse_calendar
from noontide.core.durations import DAY_MS
from noontide.core.job import Job

router = APIRouter(prefix="/v1", tags=["configuration"])
PAGE = 200
JOBS_MAX = 1_000
"""Jobs whose fires are compared; the answer says when there are more."""
SEARCH_S = 20.0
"""How long jobs that use the calendar are looked for."""


@router.post("/calendars/{name}/diff", summary="Which fires would move if a calendar became this")
async def diff(
    request: Request,
    name: str,
    _who: Supervisor,
    *,
    days: Annotated[int, Query(ge=1, le=3_660, description="How far ahead, in days.")] = 366,
) -> Response:
    """The body is the calendar as it would be. Nothing is changed. Of each job that moves: due times `gone` and `new`.

    `complete` is false when there were more jobs with the calendar, or it took longer to find them, than is allowed.
    """
    changed = parse_calendar(name, object_of(await body_of(request)), pointer="")
    services = services_of(request)
    config, now_ms = services.config(), services.now_ms()
    items: list[dict[str, Any]] = []
    compared, complete = 0, True
    async for job in _users(request, name):
        if job is None or compared == JOBS_MAX:
            complete = False
            break
        compared += 1
        moved = await asyncio.to_thread(
            moved_fires, job, changed, config, after_ms=now_ms, until_ms=now_ms + days * DAY_MS
        )
        if moved is not None:
            items.append(as_document(moved, {at: shown_instant(at) for at in (*moved.gone, *moved.new)}))
    return json_response({"items": items, "jobs": compared, "complete": complete})


async def _users(request: Request, name: str) -> AsyncIterator[Job | None]:
    """Jobs that use a calendar, by id; None when looking for them took too long."""
    owners, after, loop = owners_of(request), "", asyncio.get_running_loop()
    until_s = loop.time() + SEARCH_S
    wanted = wire.JobFilter(calendar=name)
    while True:
        page = wire.JobPage(slots=[], after=after, limit=PAGE, filter=wanted)
        answers = await owners.ask_all(range(owners.layout.slots), page.of)
        pages = [answer for answer in answers if isinstance(answer, wire.FoundJobs)]
        found = [(job.id, job) for each in pages for job in each.jobs if job is not None]
        jobs, last = merged(found, [each.reached for each in pages], PAGE)
        for each in jobs:
            job = loaded(each)
            if job is not None:
                yield job
        if last is None:
            return
        if loop.time() > until_s:
            yield None
            return
        after = last
