"""`/v1/jobs/{id}/...`: run it now, pause and resume it, see when it runs next and what became of its occurrences."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import body_of, job_id_of, json_response, object_of
from noontide.apps.api.cursors import decode_cursor, encode_cursor, place_in
from noontide.apps.api.drafts import check_key
from noontide.apps.api.job_lists import Cursor, Limit
from noontide.apps.api.jobs import IdempotencyKey, patched
from noontide.apps.api.past import Older, past_page, tenants_of
from noontide.apps.api.preview import COUNT_MAX, times_of
from noontide.apps.api.principal import Operator, Viewer
from noontide.apps.api.problems import ApiProblem, unavailable
from noontide.apps.api.reading import find_job, loaded, tenant_meant, trace_of
from noontide.apps.api.services import services_of, settings_of, writer_of
from noontide.apps.api.views import execution_view, found_job_view
from noontide.apps.api.writing import Asked, Outcome
from noontide.core.access import Principal
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.ports.history import ExecutionFilter
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
    """By nominal time, the latest first: last ends of runs, and occurrences decided not to run, with the reason.

    Recent ones come from the job's owner, older ones from the history in PostgreSQL where one is configured. `older`
    says what is known beyond: `history` (they are in the list), `unreachable` (not just now), `not_kept`.
    """
    after = place_in(decode_cursor("executions", cursor))
    wanted = ExecutionFilter(job_id=job_id_of(job_id), tenants=tenants_of(who))
    page = await past_page(request, wanted, limit=limit, after=after, first=cursor is None)
    if not page.items and page.older is Older.UNREACHABLE and cursor is not None:
        wait_sec = settings_of(request).retry_after_sec
        raise unavailable("older executions cannot be read now: the history does not answer", retry_after_sec=wait_sec)
    if not page.items:
        await find_job(request, who, job_id)  # no job and no history of theirs: 404
    following = {} if page.last is None else {"due": page.last.due_ms, "run": page.last.run_id}
    next_cursor = encode_cursor("executions", following) if page.more else None
    items = [execution_view(each) for each in page.items]
    return json_response({"items": items, "next_cursor": next_cursor, "older": page.older})


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
            traceparent=trace_of(request),
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
