"""`/v1/jobs`: create, read, replace, change and delete one job."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from noontide.apps.api.bodies import PATCH_TYPES, body_of, job_id_of, json_response, object_of
from noontide.apps.api.drafts import Draft, Drafter, check_key, read_patched, read_whole
from noontide.apps.api.principal import Operator, Principal, Viewer
from noontide.apps.api.problems import ApiProblem
from noontide.apps.api.reading import find_job, loaded, tenant_meant, trace_of
from noontide.apps.api.services import writer_of
from noontide.apps.api.views import found_job_view, job_view
from noontide.apps.api.writing import Asked, Outcome
from noontide.apps.port import wire
from noontide.core.patch import merge_patch
from noontide.records.requests import Kind

router = APIRouter(prefix="/v1", tags=["jobs"])
PATCH_ATTEMPTS = 5

IdempotencyKey = Annotated[str | None, Header(description="The same request under the same key happens once.")]
IfMatch = Annotated[str | None, Header(description="ETag that the job must have, or `*`.")]
IfNoneMatch = Annotated[str | None, Header(description="`*`: there must be no such job yet.")]


@router.post("/jobs", status_code=201, summary="Create a job")
async def create(request: Request, who: Operator, idempotency_key: IdempotencyKey = None) -> Response:
    """Accepted means stored and read-your-writes: the job can be read at once. An id that is taken is a conflict."""
    text = await body_of(request)
    draft = Drafter.of(request, who).new(text, idempotency_key)
    outcome = await writer_of(request).ask(
        Asked(
            kind=Kind.DEFINE,
            job_id=draft.job.id,
            value=text,
            who=who,
            tenant=None if who.everywhere else draft.job.tenant,
            must_be_new=True,
            idempotency_key=draft.idempotency_key,
            traceparent=trace_of(request),
        )
    )
    headers = {"location": f"/v1/jobs/{draft.job.id}", "etag": f'"{outcome.etag}"'}
    if outcome.repeated:
        return await _repeated(request, who, draft, headers)
    return json_response(_created_view(draft, outcome), 201, headers)


def _created_view(draft: Draft, outcome: Outcome) -> dict[str, Any]:
    appended_ms = outcome.place.appended_ms
    return job_view(
        draft.job.id,
        tenant=draft.job.tenant,
        etag=outcome.etag,
        created_ms=appended_ms,
        document=draft.document_at(appended_ms),
        cursor=outcome.cursor,
    )


async def _repeated(request: Request, who: Principal, draft: Draft, headers: dict[str, str]) -> Response:
    """The job as it is now; when it is gone, what it was."""
    headers = {**headers, "idempotency-replayed": "true"}
    try:
        found = await find_job(request, who, draft.job.id)
    except ApiProblem as problem:
        if problem.status != 404:
            raise
        return json_response({"id": draft.job.id, "tenant": draft.job.tenant, "state": "deleted"}, 200, headers)
    return _answer(found, who, extra=headers)


@router.get("/jobs/{job_id}", summary="Read a job")
async def read(request: Request, job_id: str, who: Viewer, if_none_match: IfNoneMatch = None) -> Response:
    """Where it stands and its definition, from the owner of its partition."""
    found = await find_job(request, who, job_id_of(job_id))
    if if_none_match is not None and if_none_match.strip() == f'"{found.etag}"':
        return Response(status_code=304, headers={"etag": f'"{found.etag}"'})
    return _answer(found, who)


@router.put("/jobs/{job_id}", summary="Create or replace a job")
async def replace(
    request: Request,
    job_id: str,
    who: Operator,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """The body becomes the whole definition; what it does not name has its default."""
    if if_none_match not in (None, "*"):
        raise ApiProblem(422, "invalid", "If-None-Match of a PUT is * or left out")
    text = await body_of(request)
    draft = read_whole(request, who, text, job_id_of(job_id))
    await writer_of(request).ask(
        Asked(
            kind=Kind.DEFINE,
            job_id=job_id,
            value=text,
            who=who,
            tenant=None if who.everywhere else draft.job.tenant,
            if_match=if_match,
            must_be_new=if_none_match is not None,
            idempotency_key=check_key(idempotency_key),
            traceparent=trace_of(request),
        )
    )
    return _answer(await find_job(request, who, job_id), who)


@router.patch("/jobs/{job_id}", summary="Change some fields of a job")
async def change(request: Request, job_id: str, who: Operator, if_match: IfMatch = None) -> Response:
    """A JSON merge patch (RFC 7396) on the definition; null removes a field, what is not named stays as it is."""
    text = await body_of(request, PATCH_TYPES)
    patch = object_of(text)
    found = await patched(request, who, job_id_of(job_id), text, patch, if_match=if_match)
    return _answer(found, who)


@router.delete("/jobs/{job_id}", status_code=204, summary="Delete a job")
async def delete(request: Request, job_id: str, who: Operator, if_match: IfMatch = None) -> Response:
    """Live runs are finished, no new one is claimed. Executions stay."""
    job_id = job_id_of(job_id)
    tenant = await tenant_meant(request, who, job_id)
    await writer_of(request).ask(
        Asked(kind=Kind.DELETE, job_id=job_id, value=None, who=who, tenant=tenant, if_match=if_match)
    )
    return Response(status_code=204)


async def patched(
    request: Request, who: Principal, job_id: str, text: bytes, patch: dict[str, Any], *, if_match: str | None = None
) -> wire.FoundJob:
    """The job after a merge patch; a change by somebody else in between is taken into account."""
    for attempt in range(1, PATCH_ATTEMPTS + 1):
        found = await find_job(request, who, job_id)
        if if_match is not None and if_match.strip() not in ("*", f'"{found.etag}"', found.etag):
            raise ApiProblem(412, "stale-version", f'the version in force is "{found.etag}"')
        merged = merge_patch(bytes(found.document), text)
        read_patched(request, merged, patch, loaded(found), job_id)
        asked = Asked(kind=Kind.DEFINE, job_id=job_id, value=merged, who=who, tenant=found.tenant, if_match=found.etag)
        try:
            await writer_of(request).ask(asked)
        except ApiProblem as problem:
            if problem.status != 412 or if_match not in (None, "*") or attempt == PATCH_ATTEMPTS:
                raise
            continue
        break
    return await find_job(request, who, job_id)


def _answer(found: wire.FoundJob, who: Principal, *, extra: dict[str, str] | None = None) -> Response:
    return json_response(found_job_view(found, who), 200, {"etag": f'"{found.etag}"', **(extra or {})})
