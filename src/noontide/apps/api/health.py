"""`/healthz`, `/readyz`: for load balancers and probes; no credentials."""

from __future__ import annotations

from fastapi import APIRouter, Response

from noontide.apps.api.bodies import json_response

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process is alive")
async def healthz() -> Response:
    """Always 200 while the process answers at all."""
    return json_response({"status": "ok"})
