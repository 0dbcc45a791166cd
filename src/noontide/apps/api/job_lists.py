"""`GET /v1/jobs`: jobs by id, filtered, in pages that stay true while jobs come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.cursors import decode_cursor, encode_cursor, text_of
from noontide.apps.api.principal import Viewer
from noontide.apps.api.reading import tenants_seen
from noontide.apps.api.services import owners_of
from noontide.apps.api.views import found_job_view
from noontide.apps.port import wire
from noontide.core.cursor import JobState
from noontide.core.errors import InvalidDefinition

router = APIRouter(prefix="/v1", tags=["jobs"])
PAGE_MAX = 1_000

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="Items on the page, at most.")]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before.")]
Tenant = Annotated[str | None, Query(description="Of this tenant only.", max_length=200)]


@router.get("/jobs", summary="List jobs")
async def list_jobs(
    request: Request,
    who: Viewer,
    *,
    tenant: Tenant = None,
    state: Annotated[JobState | None, Query(description="In this state only.")] = None,
    target: Annotated[str | None, Query(description="Whose target begins so, such as `kafka://orders`.")] = None,
    text: Annotated[str | None, Query(description="With this in id, target, note or labels.", max_length=200)] = None,
    label: Annotated[list[str] | None, Query(description="NAME or NAME=VALUE; all of them.", max_length=20)] = None,
    prefix: Annotated[str, Query(description="Whose id begins so; found at once.", max_length=200)] = "",
    sort: Annotated[Literal["id", "due"], Query(description="`due`: those that start next first.")] = "id",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """By id, or by next start. A page may be shorter than `limit`, even empty, when it has looked at many jobs
    (`scanned`); the list ends where `next_cursor` is null.
    """
    labels = tuple((name, value if equals else None) for name, equals, value in _parted(label or []))
    seen = tenants_seen(who, tenant)
    wanted = wire.JobFilter(
        tenants=None if seen is None else tuple(seen), state=state, target=target, text=text, labels=labels
    )
    after = text_of(decode_cursor(f"jobs-{sort}", cursor), "after")
    if sort == "due":
        if prefix or not _is_place(after):
            raise InvalidDefinition.of("/query/sort", "by due goes with neither a prefix nor a cursor of another list")
        question: wire.JobPage | wire.DuePage = wire.DuePage(slots=[], after=after, limit=limit, filter=wanted)
    else:
        question = wire.JobPage(slots=[], after=after, limit=limit, filter=wanted, prefix=prefix)
    owners = owners_of(request)
    answers = await owners.ask_all(
        range(owners.layout.slots), lambda slots: msgspec.structs.replace(question, slots=slots)
    )
    pages = [answer for answer in answers if isinstance(answer, wire.FoundJobs)]
    found = [placed for page in pages for placed in _placed(page)]
    jobs, last = merged(found, [page.reached for page in pages], limit)
    next_cursor = None if last is None else encode_cursor(f"jobs-{sort}", {"after": last})
    scanned = sum(page.scanned for page in pages)
    items = [found_job_view(job, who) for job in jobs]
    return json_response({"items": items, "next_cursor": next_cursor, "scanned": scanned})


def _placed(page: wire.FoundJobs) -> Iterator[tuple[str, wire.FoundJob]]:
    """The jobs of a page with where they stand in its order."""
    jobs = [job for job in page.jobs if job is not None]
    return zip(page.places or [job.id for job in jobs], jobs, strict=True)


def _is_place(after: str) -> bool:
    return not after or after.partition(" ")[0].isdigit()


def _parted(labels: list[str]) -> Iterator[tuple[str, str, str]]:
    return (each.partition("=") for each in labels)


def merged(found: list[tuple[str, Any]], reached: list[str | None], limit: int) -> tuple[list[Any], str | None]:
    """One page from the pages of several owners, and the id after which the next page begins (None = no more).

    found: items with their ids; reached: how far each owner looked (None = to its end). Nothing beyond the owner that
    looked least far is shown yet, so that no id is passed over.
    """
    bounds = [each for each in reached if each is not None]
    bound = min(bounds, default=None)
    shown = sorted((each for each in found if bound is None or each[0] <= bound), key=lambda each: each[0])
    if len(shown) > limit:
        return [item for _, item in shown[:limit]], shown[limit - 1][0]
    return [item for _, item in shown], bound
