"""`/v1/scaling`: how many workers each lane needs in the next minutes, for autoscalers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Supervisor
from noontide.apps.api.services import services_of, settings_of
from noontide.apps.demand import demand_of, demand_view, terms_of

router = APIRouter(prefix="/v1", tags=["cluster"])


@router.get("/scaling", summary="Workers that each lane needs in the next minutes")
async def scaling(
    request: Request,
    _who: Supervisor,
    *,
    minutes: Annotated[int | None, Query(ge=1, le=60, description="Until when the work is to be done.")] = None,
    concurrency: Annotated[int | None, Query(ge=1, le=100_000, description="Places of one worker.")] = None,
) -> Response:
    """By lane: what waits, what is to come, what a run takes of late (`mean_ms`), and the workers that follow from it.

    places = max((ready + queued + coming) x mean / minutes, fullest minute x mean, running); workers = places /
    (concurrency x utilisation), rounded up. Runs that wait for permits, retries or upstreams are no demand.
    """
    settings, services = settings_of(request), services_of(request)
    wanted = minutes or settings.scaling_minutes
    demand = await demand_of(services, minutes=wanted, wait_ms=settings.partial_wait_ms)
    missing = [number for slot in demand.missing for number in services.layout.partitions_of(slot)]
    return json_response({"minutes": wanted, **demand_view(demand, terms_of(settings, concurrency), missing)})
