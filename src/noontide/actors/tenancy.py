"""What exists for the sender of a request: jobs and runs of the tenants it speaks for, and nothing else.

What belongs to others is refused in the words for what is not there, so that an answer gives nothing away.
"""

from __future__ import annotations

from typing import NoReturn

from noontide.actors.effects import Scene
from noontide.actors.request_input import Input
from noontide.core.errors import Conflict, InvalidDefinition, NotThere, StaleVersion
from noontide.records.job_row import JobRow
from noontide.records.requests import Cancel, Define, Redrive, Request


def speaks_for(tenant: str, request: Request, item: Input, scene: Scene) -> bool:
    """Whether what belongs to a tenant exists for the sender of a request."""
    domain = item.origin.topic.removeprefix("requests.")
    return request.terms.tenant in (None, tenant) and scene.world.config.may_speak_for(domain, tenant)


def refuse_as_unknown(request: Request) -> NoReturn:
    """What a request hears about the job of somebody else: the same as about one that is not there."""
    check_etag(request.if_match, None)
    match request:
        case Define():
            raise Conflict.of("/id", "this id is not available")
        case Cancel():
            raise not_live(request)
        case Redrive():
            raise not_dead(request)
        case _:
            raise no_job(request.job_id)


def no_job(job_id: str) -> InvalidDefinition:
    """No such job."""
    return NotThere.of("", f"there is no job {job_id!r}")


def not_live(request: Cancel) -> InvalidDefinition:
    """No such live run."""
    named = request.run_id or request.job_id
    return NotThere.of("/run_id", f"{named!r} is not live: finished, or never claimed")


def not_dead(request: Redrive) -> InvalidDefinition:
    """No such dead run."""
    return NotThere.of("/run_id", f"{request.run_id!r} is neither dead nor waiting for a retry")


def check_etag(if_match: str | None, row: JobRow | None) -> None:
    """Raises InvalidDefinition unless the job is in the version that was asked for."""
    if if_match is None or (if_match == "*" and row is not None):
        return
    current = None if row is None else row.etag
    if if_match.strip('"') != current:
        in_force = "none is in force" if current is None else f"the version in force is {current!r}"
        raise StaleVersion.of("", f"if-match {if_match!r} failed: {in_force}")
