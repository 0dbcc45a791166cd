"""`/v1/requests/{id}`: what became of a write that was answered 202."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Viewer
from noontide.apps.api.services import writer_of

router = APIRouter(prefix="/v1", tags=["requests"])


@router.get("/requests/{request_id}", summary="Ask what became of a write")
async def read(request: Request, request_id: str, who: Viewer) -> Response:
    """`state` is pending or decided; decided ones say `verdict` and, when refused, `problems`. Kept for a day."""
    return json_response(await writer_of(request).state_of(request_id, who))
