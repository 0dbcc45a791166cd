"""`GET /v1/jobs`: jobs by id, filtered, in pages that stay true while jobs come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import json_response
from noontide.apps.api.cursors import decode_cursor, encode_cursor, text_of
from noontide.apps.api.principal import Viewer
from noontide.apps.api.reading import tenants_seen
from noontide.apps.api.services import owners_of
from noontide.apps.api.views import found_job_view
from noontide.apps.port import wire
from noontide.core.cursor import JobState

router = APIRouter(prefix="/v1", tags=["jobs"])
PAGE_MAX = 1_000

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="Items on the page, at most.")]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before.")]
Tenant = Annotated[str | None, Query(description="Of this tenant only.", max_length=200)]


@router.get("/jobs", summary="List jobs")
async def list_jobs(
    request: Request,
    who: Viewer,
    tenant: Tenant = None,
    state: Annotated[JobState | None, Query(description="In this state only.")] = None,
    target: Annotated[str | None, Query(description="Whose target begins so, such as `kafka://orders`.")] = None,
    text: Annotated[str | None, Query(description="With this in id, target, note or labels.", max_length=200)] = None,
    label: Annotated[list[str] | None, Query(description="NAME or NAME=VALUE; all of them.", max_length=20)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """By id. A page may be shorter than `limit`, even empty; the list ends where `next_cursor` is null."""
    labels = tuple((name, value if equals else None) for name, equals, value in _parted(label or []))
    seen = tenants_seen(who, tenant)
    wanted = wire.JobFilter(
        tenants=None if seen is None else tuple(seen), state=state, target=target, text=text, labels=labels
    )
    after = text_of(decode_cursor("jobs", cursor), "after")
    owners = owners_of(request)
    answers = await owners.ask_all(
        range(owners.layout.slots),
        lambda slots: wire.JobPage(slots=slots, after=after, limit=limit, filter=wanted),
    )
    pages = [answer for answer in answers if isinstance(answer, wire.FoundJobs)]
    found = [(job.id, job) for page in pages for job in page.jobs if job is not None]
    jobs, last = merged(found, [page.reached for page in pages], limit)
    next_cursor = None if last is None else encode_cursor("jobs", {"after": last})
    return json_response({"items": [found_job_view(job) for job in jobs], "next_cursor": next_cursor})


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
