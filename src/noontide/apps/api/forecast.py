"""`/v1/forecast`: how many runs each minute to come will have, as the owners see it in their indexes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Principal, Viewer
from noontide.apps.api.reading import tenants_seen
from noontide.apps.api.services import owners_of, services_of, settings_of
from noontide.apps.api.views import shown
from noontide.apps.forecasting import asked_of, peaks_of, question_of, view_of
from noontide.apps.port import wire
from noontide.core.durations import MINUTE_MS

router = APIRouter(prefix="/v1", tags=["cluster"])
DAY_MINUTES = 24 * 60
Minutes = Annotated[int, Query(ge=1, le=DAY_MINUTES, description="How far to look, in minutes.")]
Tenant = Annotated[str | None, Query(description="Runs of this tenant only.")]


@router.get("/forecast", summary="Runs of each minute of the next day")
async def forecast(
    request: Request,
    who: Viewer,
    *,
    minutes: Minutes = DAY_MINUTES,
    by: Annotated[Literal["tenant", "lane", "target"] | None, Query(description="A series for each of these.")] = None,
    tenant: Tenant = None,
    peaks: Annotated[int, Query(ge=0, le=50, description="How many of the fullest minutes are explained.")] = 5,
) -> Response:
    """Runs per minute from the beginning of this minute on, by where jobs stand now.

    `relaxed`: what it would be if the jobs that recur and insist on their minute (`exact`) had relaxed timing. Jobs
    that run after others are not counted; jobs that count from the end of a run are taken to need no time. The answer
    is `complete` unless owners do not answer (`missing_partitions`), still look at their jobs, or have too many.
    """
    question = _question(request, who, tenant, minutes=minutes, by=by or "")
    found, missing = await _asked(request, question)
    fullest = peaks_of(found.runs, peaks)
    detailed = found
    if fullest:
        question.by, question.details = "", fullest
        detailed, _ = await _asked(request, question)
    view = view_of(found, detailed, fullest, from_ms=question.from_ms, by=by)
    return json_response({**_frame(request, question, found, missing), **view})


@router.get("/forecast/due", summary="Runs of each minute, as one array")
async def due(request: Request, who: Viewer, *, minutes: Minutes = 60, tenant: Tenant = None) -> Response:
    """The same counts in the least bytes, for charts: `runs` begins with this minute."""
    question = _question(request, who, tenant, minutes=minutes)
    found, missing = await _asked(request, question)
    return json_response({**_frame(request, question, found, missing), "runs": found.runs})


def _question(request: Request, who: Principal, tenant: str | None, *, minutes: int, by: str = "") -> wire.Forecast:
    now_ms = services_of(request).now_ms()
    return question_of(now_ms, minutes=minutes, by=by, tenants=tenants_seen(who, tenant))


async def _asked(request: Request, question: wire.Forecast) -> tuple[wire.FoundForecast, list[int]]:
    return await asked_of(owners_of(request), question, wait_ms=settings_of(request).partial_wait_ms)


def _frame(request: Request, question: wire.Forecast, found: wire.FoundForecast, missing: list[int]) -> dict[str, Any]:
    """When the minutes begin, and what is lacking."""
    layout = services_of(request).layout
    absent = sorted(number for slot in {*missing, *found.pending} for number in layout.partitions_of(slot))
    return {
        "from": shown(question.from_ms),
        "step_sec": MINUTE_MS // 1_000,
        "as_of": shown(found.as_of_ms or None),
        "complete": not absent and not found.cut,
        "missing_partitions": absent,
    }
