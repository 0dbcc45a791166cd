"""`/healthz`, `/readyz`, `/metrics`: for load balancers, probes and Prometheus; only the last asks who it is."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Supervisor
from noontide.apps.api.problems import unavailable
from noontide.apps.api.services import services_of, settings_of

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process is alive")
async def healthz() -> Response:
    """Always 200 while the process answers at all."""
    return json_response({"status": "ok"})


@router.get("/readyz", summary="Whether requests can be answered")
async def readyz(request: Request) -> Response:
    """200 when every slot has an owner that can be asked, else 503 with those that have none."""
    owners = services_of(request).owners
    missing = [] if owners is None else owners.missing()
    if missing:
        retry_after_sec = settings_of(request).retry_after_sec
        raise unavailable(f"no owner of slot {', '.join(map(str, missing))}", retry_after_sec=retry_after_sec)
    return json_response({"status": "ok"})


@router.get("/metrics", summary="Metrics for Prometheus")
async def metrics(request: Request, _who: Supervisor) -> Response:
    """Requests by method, route and status, how long they took, and the process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(request.app.state.traffic)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
