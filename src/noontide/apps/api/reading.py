"""Reading jobs from their owners, for somebody who may see only some of them."""

from __future__ import annotations

from fastapi import Request

from noontide.apps.api.problems import not_found
from noontide.apps.api.services import owners_of
from noontide.apps.port import wire
from noontide.core.access import Principal
from noontide.core.definition import load_definition
from noontide.core.errors import InvalidDefinition
from noontide.core.job import Job
from noontide.core.tracing import parse_traceparent


async def find_job(request: Request, who: Principal, job_id: str) -> wire.FoundJob:
    """A job. Raises ApiProblem: 404 when there is none for them, 503 when the owner cannot be asked."""
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(job_id))
    answer = await owners.ask(slot, wire.Jobs(slot=slot, ids=[job_id]))
    assert isinstance(answer, wire.FoundJobs)
    found = answer.jobs[0]
    if found is None or not who.sees(found.tenant):
        raise not_found(f"job {job_id!r}")
    return found


def trace_of(request: Request) -> str:
    """The trace context that a request came with, which its run goes on in; "" for none."""
    return parse_traceparent(request.headers.get("traceparent"))


async def tenant_meant(request: Request, who: Principal, job_id: str) -> str | None:
    """The tenant that a command about a job names; None for somebody who speaks for everybody."""
    if who.everywhere or who.tenant is not None:
        return who.tenant
    return (await find_job(request, who, job_id)).tenant


def loaded(found: wire.FoundJob) -> Job | None:
    """The typed job; None when it names what no longer exists (a time zone that was withdrawn)."""
    try:
        return load_definition(bytes(found.document))
    except InvalidDefinition:
        return None


def tenants_seen(who: Principal, asked: str | None = None) -> list[str] | None:
    """Whose things a list shows: those of one tenant if asked for, never more than somebody sees; None = all."""
    if asked is not None:
        return [asked] if who.sees(asked) else []
    return None if who.everywhere else sorted(who.tenants)
