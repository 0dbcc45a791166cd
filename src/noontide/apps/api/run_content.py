"""`/v1/runs/{id}/content`: what a run was given and what it brought back, without what looks like a secret."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Viewer
from noontide.apps.api.redaction import redacted
from noontide.apps.api.runs import LIVE, shown_run
from noontide.apps.api.services import owners_of, services_of
from noontide.apps.port import wire
from noontide.core.ids import OccurrenceRunId, parse_run_id
from noontide.core.instants import parse_instant
from noontide.core.payload import member_texts
from noontide.ports.record_log import Doubt

router = APIRouter(prefix="/v1", tags=["runs"])


@router.get("/runs/{run_id}/content", summary="Payload and result of a run")
async def content(request: Request, run_id: str, who: Viewer) -> Response:
    """`payload`, and in `payload_of` whose it is: of the `run` itself, or of the `job` as it is now; null when nobody
    knows any more. `result` and `error` as on the topic `results` (7 days), if it could be `looked_up`. `hidden`:
    pointers to what is not shown.
    """
    view = await shown_run(request, who, run_id)
    payload, payload_of = await _payload(request, run_id, view)
    result, looked_up = (None, True) if view["state"] in LIVE else await _result(request, run_id, view)
    shown: dict[str, Any] = {"run_id": run_id, "payload_of": payload_of, "looked_up": looked_up, "hidden": []}
    fields = {} if result is None else member_texts(result)
    for name, text in (("payload", payload), ("result", fields.get("result"))):
        if text is not None:
            cleared, pointers = redacted(bytes(text))
            shown[name] = orjson.Fragment(cleared)
            shown["hidden"] += [f"/{name}{pointer}" for pointer in pointers]
    for name in ("error", "truncated"):
        if name in fields:
            shown[name] = orjson.Fragment(bytes(fields[name]))
    return json_response(shown)


async def _payload(request: Request, run_id: str, view: dict[str, Any]) -> tuple[bytes | None, str | None]:
    """The JSON text of the payload, if there is one, and whose it is."""
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(str(view["job_id"])))
    found = await owners.ask(slot, wire.RunContent(slot=slot, run_id=run_id))
    assert isinstance(found, wire.FoundContent)
    document = wire.text_of(found.document)
    if document is None or found.tenant != view["tenant"]:
        return None, None
    payload = member_texts(document).get("payload")
    text = None if payload is None else bytes(payload)
    claimed_ms = parse_instant(view["claimed_at"], zone=None, pointer="")
    by_schedule = isinstance(parse_run_id(run_id, ""), OccurrenceRunId)  # one by hand may have had its own
    same = found.claimed or (by_schedule and found.changed_ms <= claimed_ms)
    return text, "run" if same else "job"


async def _result(request: Request, run_id: str, view: dict[str, Any]) -> tuple[bytes | None, bool]:
    """The record of `results`, None when there is none (any more); and whether the brokers could tell."""
    ended_ms = parse_instant(view["ended_at"], zone=None, pointer="")
    try:
        return await asyncio.to_thread(services_of(request).result_of, run_id, ended_ms), True
    except Doubt:
        return None, False
