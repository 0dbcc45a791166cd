"""`/v1/jobs/{id}/...`: run it now, pause and resume it, see when it runs next and what became of its occurrences."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import body_of, job_id_of, json_response, object_of
from noontide.apps.api.cursors import decode_cursor, encode_cursor, offsets_of
from noontide.apps.api.drafts import check_key
from noontide.apps.api.job_lists import Cursor, Limit
from noontide.apps.api.jobs import IdempotencyKey, patched
from noontide.apps.api.preview import COUNT_MAX, times_of
from noontide.apps.api.principal import Operator, Viewer
from noontide.apps.api.problems import ApiProblem
from noontide.apps.api.reading import find_job, loaded, tenant_meant
from noontide.apps.api.services import owners_of, services_of, writer_of
from noontide.apps.api.views import execution_view, found_job_view
from noontide.apps.api.writing import Asked, Outcome
from noontide.apps.port import wire
from noontide.core.access import Principal
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.records.requests import Kind

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.post("/jobs/{job_id}/trigger", status_code=201, summary="Run a job now")
async def trigger(request: Request, job_id: str, who: Operator, idempotency_key: IdempotencyKey = None) -> Response:
    """Besides its schedule, even when it is paused. Body, optional: `payload` for this run, `reason`."""
    outcome = await command(request, who, Kind.TRIGGER, job_id, idempotency_key)
    status = 200 if outcome.repeated else 201
    return json_response({"run_id": outcome.run_id}, status, {"location": f"/v1/runs/{outcome.run_id}"})


@router.post("/jobs/{job_id}/backfill", summary="Make the runs of a range of past occurrences")
async def backfill(request: Request, job_id: str, who: Operator, idempotency_key: IdempotencyKey = None) -> Response:
    """Body: `from`, `to` (exclusive), and optionally `overlap`, `reprocess`, `dry_run`, `max`.

    Answers how many `runs` are made from when to when, and how many occurrences are `skipped`.
    """
    outcome = await command(request, who, Kind.BACKFILL, job_id, idempotency_key)
    said = {**(outcome.backfill or {}), "repeated": outcome.repeated}
    return json_response({"job_id": job_id, **said})


@router.post("/jobs/{job_id}/pause", summary="Pause a job")
async def pause(request: Request, job_id: str, who: Operator) -> Response:
    """Times that pass are not missed. Body, optional: `note`, why."""
    return await _noted(request, who, job_id, {"paused": True})


@router.post("/jobs/{job_id}/resume", summary="Resume a job")
async def resume(request: Request, job_id: str, who: Operator) -> Response:
    """At its next time after now. Body, optional: `note`; null removes it."""
    return await _noted(request, who, job_id, {"paused": None})


@router.get("/jobs/{job_id}/next", summary="When a job runs next")
async def following(
    request: Request,
    job_id: str,
    who: Viewer,
    count: Annotated[int, Query(ge=1, le=COUNT_MAX, description="How many times.")] = 10,
    after: Annotated[str | None, Query(description="Later than this instant, RFC 3339; default: now.")] = None,
) -> Response:
    """As its definition says now; a paused job is shown as if it were not."""
    found = await find_job(request, who, job_id_of(job_id))
    job = loaded(found)
    if job is None:
        raise ApiProblem(409, "conflict", "its definition names a time zone that does not exist any more")
    services = services_of(request)
    after_ms = services.now_ms() if after is None else parse_instant(after, zone=job.timezone, pointer="/query/after")
    return json_response(times_of(job, services.config(), after_ms=after_ms, count=count))


@router.get("/jobs/{job_id}/executions", summary="What became of the occurrences of a job")
async def executions(request: Request, job_id: str, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """The newest first: ends of runs, and occurrences that were decided not to run, with the reason."""
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(job_id_of(job_id)))
    fields = decode_cursor("executions", cursor)
    before = None if fields is None else offsets_of(fields, "before").get(str(slot))
    question = wire.Executions(slot=slot, job_id=job_id, limit=limit, before=before)
    answer = await owners.ask(slot, question)
    assert isinstance(answer, wire.Lines)
    items = [execution_view(orjson.loads(bytes(line.execution))) for line in answer.lines]
    shown = [each for each in items if who.sees(str(each.get("tenant")))]
    if not shown:
        await find_job(request, who, job_id)  # no job and no history of theirs: 404
    next_cursor = encode_cursor("executions", {"before": answer.more}) if answer.more else None
    return json_response({"items": shown, "next_cursor": next_cursor})


async def command(
    request: Request, who: Principal, kind: Kind, job_id: str, idempotency_key: str | None = None
) -> Outcome:
    """A command whose body is passed on to the owner, which reads it strictly."""
    job_id = job_id_of(job_id)
    body = await body_of(request) or b"{}"
    object_of(body)
    tenant = await tenant_meant(request, who, job_id)
    return await writer_of(request).ask(
        Asked(
            kind=kind,
            job_id=job_id,
            value=body,
            who=who,
            tenant=tenant,
            idempotency_key=check_key(idempotency_key),
        )
    )


async def _noted(request: Request, who: Principal, job_id: str, patch: dict[str, Any]) -> Response:
    said = object_of(await body_of(request) or b"{}")
    unknown = sorted(said.keys() - {"note"})
    if unknown:
        raise InvalidDefinition.of(f"/{unknown[0]}", 'is not a known field; only "note" is')
    patch = {**patch, **said}
    found = await patched(request, who, job_id_of(job_id), orjson.dumps(patch), patch)
    return json_response(found_job_view(found, who), 200, {"etag": f'"{found.etag}"'})
