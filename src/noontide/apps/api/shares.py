"""`/v1/tenants/{tenant}/share`: what a tenant has of what is shared."""

from __future__ import annotations

from operator import add
from typing import Any

from fastapi import APIRouter, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Viewer
from noontide.apps.api.problems import not_found
from noontide.apps.api.services import owners_of, services_of
from noontide.apps.port import wire
from noontide.records.limit_book import TENANT, LimitBook

router = APIRouter(prefix="/v1", tags=["cluster"])
_LIMITER, _LANE = ("given", "running", "waiting"), ("ready", "queued", "running", "waiting")


@router.get("/tenants/{tenant}/share", summary="What a tenant has of what is shared")
async def share(request: Request, tenant: str, who: Viewer) -> Response:
    """Permits given, used and waited for, by limiter; and the tenant's runs by lane."""
    if not who.sees(tenant):
        raise not_found(f"tenant {tenant[:200]!r}")
    owners, book = owners_of(request), services_of(request).config().limits
    every = range(owners.layout.slots)
    answers = await owners.ask_all(every, lambda slots: wire.Shares(slots=slots, tenant=tenant))
    limiters: dict[str, tuple[int, ...]] = {}
    lanes: dict[str, tuple[int, ...]] = {}
    if TENANT + tenant in book.ceilings:
        limiters[TENANT + tenant] = (0, 0, 0)
    for answer in answers:
        assert isinstance(answer, wire.FoundShares)
        for name, *counts in answer.limiters:
            limiters[name] = tuple(map(add, limiters.get(name, (0, 0, 0)), counts))
        for name, *counts in answer.lanes:
            lanes[name] = tuple(map(add, lanes.get(name, (0, 0, 0, 0)), counts))
    return json_response(
        {
            "tenant": tenant,
            "weight": book.weight_of(tenant),
            "limiters": [_limiter(name, counts, book) for name, counts in sorted(limiters.items())],
            "lanes": [_lane(name, counts) for name, counts in sorted(lanes.items())],
        }
    )


def _lane(name: str, counts: tuple[int, ...]) -> dict[str, Any]:
    return {"lane": name, **dict(zip(_LANE, counts, strict=True))}


def _limiter(name: str, counts: tuple[int, ...], book: LimitBook) -> dict[str, Any]:
    ceiling = book.ceiling(name)
    return {
        "limiter": name,
        "concurrency_max": ceiling.concurrency,
        "starts_per_second_max": ceiling.per_second,
        **dict(zip(_LIMITER, counts, strict=True)),
    }
