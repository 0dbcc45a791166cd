"""`POST /v1/preview`: whether a definition would be accepted, and when it would run."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import body_of, json_response, object_of
from noontide.apps.api.principal import Viewer
from noontide.apps.api.services import services_of, settings_of
from noontide.apps.timelines import entries_of, shown_instant
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.core.job import Job
from noontide.records.config import ConfigView

router = APIRouter(prefix="/v1", tags=["jobs"])
COUNT_MAX = 1_000


@router.post("/preview", summary="Check a definition and show when it would run")
async def preview(
    request: Request,
    who: Viewer,
    count: Annotated[int, Query(ge=1, le=COUNT_MAX, description="How many times.")] = 10,
    after: Annotated[str | None, Query(description="Later than this instant, RFC 3339; default: now.")] = None,
) -> Response:
    """Nothing is stored. The body is a definition as for `POST /v1/jobs`; `target` may be left out."""
    services = services_of(request)
    given = object_of(await body_of(request))
    if given.get("target") is None:
        given = {**given, "target": "handler:preview"}
    context = DefinitionContext(
        key=None,
        tenant=who.tenant,
        created_ms=services.now_ms(),
        limits=settings_of(request).definition,
        unknown_fields="refuse",
        new_id="preview",
        topic_prefix=services.layout.prefix,
    )
    job = parse_definition(orjson.dumps(given), context=context).job
    after_ms = services.now_ms() if after is None else parse_instant(after, zone=job.timezone, pointer="/query/after")
    return json_response(times_of(job, services.config(), after_ms=after_ms, count=count))


def times_of(job: Job, config: ConfigView, *, after_ms: int, count: int) -> dict[str, Any]:
    """The next times of a job, as preview and `next` show them. Raises InvalidDefinition for an unknown calendar."""
    missing = [name for name in (*job.calendar.include, *job.calendar.exclude) if name not in config.calendars]
    if missing:
        raise InvalidDefinition.of("/calendar", f"no calendar is called {missing[0]!r}")
    return {
        "id": job.id,
        "timezone": job.timezone,
        "times": [
            {
                "due": shown_instant(each.due_ms),
                "start_after": shown_instant(each.start_ms),
                "local": each.local,
                "notes": list(each.notes),
            }
            for each in entries_of(job, config, after_ms=after_ms, count=count)
        ],
    }
