"""`/v1/workers`, `/v1/partitions`, `/v1/meta`: what all tenants share; `/v1/me`: who asks."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Supervisor, Viewer
from noontide.apps.api.services import owners_of, services_of, settings_of
from noontide.apps.api.views import shown
from noontide.apps.port import wire
from noontide.core.zones import tzdata_version
from noontide.records.topics import DEFAULT_LANES, FORMAT_VERSION

router = APIRouter(prefix="/v1", tags=["cluster"])


@router.get("/workers", summary="Who runs what")
async def workers(request: Request, _who: Supervisor) -> Response:
    """Workers that hold runs, and how many runs of each lane are in which state."""
    owners = owners_of(request)
    answers = await owners.ask_all(range(owners.layout.slots), lambda slots: wire.Workers(slots=slots))
    counted: dict[tuple[str, str], wire.WorkerCount] = {}
    lanes: dict[str, dict[str, int]] = {}
    for answer in answers:
        assert isinstance(answer, wire.FoundWorkers)
        for worker in answer.workers:
            known = counted.setdefault((worker.worker, worker.lane), msgspec.structs.replace(worker, runs=0))
            known.runs += worker.runs
            known.oldest_granted_ms = min(known.oldest_granted_ms, worker.oldest_granted_ms)
        for lane, states in answer.lanes.items():
            mine = lanes.setdefault(lane, {})
            for state, count in states.items():
                mine[state] = mine.get(state, 0) + count
    items = [
        {"worker": each.worker, "lane": each.lane, "runs": each.runs, "oldest_since": shown(each.oldest_granted_ms)}
        for each in sorted(counted.values(), key=lambda each: -each.runs)
    ]
    return json_response({"items": items, "lanes": lanes})


@router.get("/partitions", summary="Who owns what, and how far it is")
async def partitions(request: Request, _who: Supervisor) -> Response:
    """Each slot as its owner said last; what was said long ago speaks of a process that is gone."""
    owners = owners_of(request)
    items = []
    for slot in range(owners.layout.slots):
        numbers = owners.layout.partitions_of(slot)
        owner = owners.directory.owners.get(slot)
        item: dict[str, Any] = {"slot": slot, "partitions": [numbers[0], numbers[-1]], "owner": None}
        if owner is not None:
            said = {name: value for name, value in owner.said.items() if name not in ("slot", "partitions")}
            item |= {**said, "said_at": shown(owner.appended_ms)}
            for name in ("since", "cycle_at"):
                value = item.get(name)
                item[name] = shown(value) if isinstance(value, int) and value else None
        items.append(item)
    return json_response({"items": items})


@router.get("/meta", summary="Versions and limits")
async def meta(request: Request, _who: Viewer) -> Response:
    """What this installation is made of, and what a definition may be."""
    services, settings = services_of(request), settings_of(request)
    layout = services.layout
    limits = settings.definition
    return json_response(
        {
            "version": version("noontide"),
            "api": "v1",
            "format": FORMAT_VERSION,
            "tzdata": tzdata_version(),
            "partitions": layout.partitions,
            "slots": layout.slots,
            "lanes": sorted({*DEFAULT_LANES, *services.config().lanes}),
            "limits": {
                "payload_max_bytes": limits.payload_max_bytes,
                "definition_max_bytes": limits.definition_max_bytes,
                "batch_max_bytes": settings.batch_max_bytes,
                "batch_max_lines": settings.batch_max_lines,
                "page_max": settings.page_max,
            },
        }
    )


@router.get("/me", summary="Who asks")
async def me(who: Viewer) -> Response:
    """The name, role and tenants of whoever asks, so that a page does not offer what would be refused."""
    return json_response({"name": who.name, "role": who.role, "tenants": sorted(who.tenants)})
