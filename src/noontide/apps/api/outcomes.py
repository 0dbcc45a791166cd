"""`/v1/outcomes`: what ended in each of the last minutes, and how late it had begun."""

from __future__ import annotations

from operator import add
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.job_lists import Tenant
from noontide.apps.api.principal import Viewer
from noontide.apps.api.reading import tenants_seen
from noontide.apps.api.services import owners_of, services_of, settings_of
from noontide.apps.api.views import shown
from noontide.apps.port import wire
from noontide.apps.port.tallies import ENDS, NOTHING, lateness
from noontide.core.durations import MINUTE_MS

router = APIRouter(prefix="/v1", tags=["runs"])
WEEK_MINUTES = 7 * 24 * 60
STEPS_MAX = 1_440


@router.get("/outcomes", summary="What ended in each of the last minutes, and how late it had begun")
async def outcomes(
    request: Request,
    who: Viewer,
    *,
    minutes: Annotated[int, Query(ge=1, le=WEEK_MINUTES, description="How far to look back, in minutes.")] = 60,
    step: Annotated[int, Query(ge=1, le=1440, description="Minutes that are put together.")] = 1,
    tenant: Tenant = None,
) -> Response:
    """Arrays that begin at `from`: runs that ended as `succeeded`, `dead` or `cancelled`, occurrences that were
    `decided` not to run, and within how many ms of their time half (`late_p50_ms`) and 99 % (`late_p99_ms`) began.

    The last minute is this one, and not complete. At most 1,440 steps. Times are upper bounds: 1, 2, 5, 10 ms, ...
    """
    steps = min(-(-minutes // step), STEPS_MAX)
    stop = services_of(request).now_ms() // MINUTE_MS + 1
    first = stop - steps * step
    owners = owners_of(request)
    answers, missing = await owners.ask_present(
        range(owners.layout.slots),
        lambda slots: wire.Ended(slots=slots, first=first, stop=stop, tenants=tenants_seen(who, tenant)),
        wait_ms=settings_of(request).partial_wait_ms,
    )
    counted = [NOTHING] * steps
    for answer in answers:
        assert isinstance(answer, wire.FoundEnded)
        for minute, counts in answer.minutes.items():
            if first <= minute < stop:
                place = (minute - first) // step
                counted[place] = tuple(map(add, counted[place], counts))
    return json_response(
        {
            "from": shown(first * MINUTE_MS),
            "step_sec": step * 60,
            **{name: [counts[place] for counts in counted] for place, name in enumerate(ENDS)},
            "late_p50_ms": [lateness(counts, 0.5) for counts in counted],
            "late_p99_ms": [lateness(counts, 0.99) for counts in counted],
            "missing_partitions": [number for slot in missing for number in owners.layout.partitions_of(slot)],
        }
    )
