"""`/v1/dead-letters`: runs that died, and starting them again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import body_of, json_response, object_of
from noontide.apps.api.cursors import decode_cursor, encode_cursor, text_of
from noontide.apps.api.job_lists import Cursor, Limit, Tenant, merged
from noontide.apps.api.principal import Operator, Principal, Viewer
from noontide.apps.api.problems import ApiProblem
from noontide.apps.api.reading import tenants_seen
from noontide.apps.api.runs import job_of_run, tenant_of_run
from noontide.apps.api.services import owners_of, settings_of, writer_of
from noontide.apps.api.views import dead_view
from noontide.apps.api.writing import Asked
from noontide.apps.port import wire
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.fields import Findings, boolean, integer, members, text
from noontide.core.ids import parse_job_id
from noontide.core.limits import Limits
from noontide.records.requests import Kind

router = APIRouter(prefix="/v1", tags=["dead letters"])
REDRIVE_MAX = 1_000
AT_ONCE_MAX = 50
_FIELDS = ("run_id", "run_ids", "job_id", "reason", "limit", "dry_run")


@router.get("/dead-letters", summary="List runs that died")
async def list_dead(
    request: Request,
    who: Viewer,
    tenant: Tenant = None,
    job: Annotated[str | None, Query(description="Of this job only.", max_length=200)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """By id; each can be redriven for as long as it is listed."""
    after = text_of(decode_cursor("dead", cursor), "after")
    found, last = await _page(request, tenants_seen(who, tenant), job, after, limit)
    next_cursor = None if last is None else encode_cursor("dead", {"after": last})
    return json_response({"items": [dead_view(run) for run in found], "next_cursor": next_cursor})


@router.post("/dead-letters/redrive", summary="Start dead runs again")
async def redrive(request: Request, who: Operator) -> Response:
    """Body: `run_id`, `run_ids`, or what they have in common: `job_id`, `reason` (a part of it); `limit`, `dry_run`."""
    asked = _read(object_of(await body_of(request)), settings_of(request).definition)
    views = await _chosen(request, who, asked)
    if asked.dry_run:
        return json_response({"dry_run": True, "runs": views})
    gate = asyncio.Semaphore(AT_ONCE_MAX)
    outcomes = await asyncio.gather(*(_redriven(request, who, view, gate) for view in views))
    return json_response(
        {
            "started": [run_id for run_id, problem in outcomes if problem is None],
            "refused": [{"run_id": run_id, "problem": problem} for run_id, problem in outcomes if problem is not None],
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Redrive:
    run_ids: tuple[str, ...]
    job_id: str | None
    reason: str | None
    limit: int
    dry_run: bool


def _read(said: dict[str, Any], limits: Limits) -> _Redrive:
    """The body. Raises InvalidDefinition."""
    findings = Findings(limits)
    given = members(said, "", _FIELDS, findings)
    run_ids = given.get("run_ids", [given["run_id"]] if "run_id" in given else [])
    if not isinstance(run_ids, list) or not all(isinstance(each, str) for each in run_ids):
        findings.refuse("/run_ids", "must be a list of run ids")
        run_ids = []
    if len(run_ids) > REDRIVE_MAX:
        findings.refuse("/run_ids", f"must be a list of at most {REDRIVE_MAX} run ids")
    job_id = findings.read(parse_job_id, given["job_id"], "/job_id") if "job_id" in given else None
    reason = findings.read(text(200), given["reason"], "/reason") if "reason" in given else None
    limit = findings.read(integer(1, REDRIVE_MAX), given.get("limit", REDRIVE_MAX), "/limit") or 1
    dry_run = findings.read(boolean, given.get("dry_run", False), "/dry_run") or False
    if not run_ids and job_id is None and reason is None:
        findings.refuse("", 'must say which: "run_id", "run_ids", "job_id" or "reason"')
    problems: tuple[Problem, ...] = (*findings.problems, *findings.unknown)
    if problems:
        raise InvalidDefinition(problems)
    return _Redrive(run_ids=tuple(run_ids), job_id=job_id, reason=reason, limit=limit, dry_run=dry_run)


async def _chosen(request: Request, who: Principal, asked: _Redrive) -> list[dict[str, Any]]:
    """The dead runs that are meant; those that are named are taken at their word."""
    if asked.run_ids:
        return [{"run_id": run_id} for run_id in asked.run_ids[: asked.limit]]
    found: list[dict[str, Any]] = []
    after = ""
    while len(found) < asked.limit:
        page, last = await _page(request, tenants_seen(who), asked.job_id, after, REDRIVE_MAX)
        views = [dead_view(run) for run in page]
        found += [view for view in views if asked.reason is None or asked.reason in orjson.dumps(view).decode()]
        if last is None:
            break
        after = last
    return found[: asked.limit]


async def _redriven(
    request: Request, who: Principal, view: dict[str, Any], gate: asyncio.Semaphore
) -> tuple[str, str | None]:
    run_id = str(view["run_id"])
    try:
        job_id = job_of_run(run_id)
        tenant = view.get("tenant") or await tenant_of_run(request, who, run_id, job_id)
        value = orjson.dumps({"run_id": run_id})
        async with gate:
            await writer_of(request).ask(Asked(kind=Kind.REDRIVE, job_id=job_id, value=value, who=who, tenant=tenant))
    except ApiProblem as problem:
        return run_id, problem.detail
    return run_id, None


async def _page(
    request: Request, tenants: list[str] | None, job: str | None, after: str, limit: int
) -> tuple[list[wire.FoundRun], str | None]:
    owners = owners_of(request)
    layout = owners.layout
    slots = range(layout.slots) if job is None else [layout.slot_of(layout.partition_of(job))]
    answers = await owners.ask_all(
        slots, lambda asked: wire.DeadPage(slots=asked, after=after, limit=limit, tenants=tenants, job_id=job)
    )
    pages = [answer for answer in answers if isinstance(answer, wire.FoundRuns)]
    return merged([(run.id, run) for page in pages for run in page.runs], [page.reached for page in pages], limit)
