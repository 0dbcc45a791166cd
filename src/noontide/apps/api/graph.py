"""`GET /v1/jobs/{id}/graph`: the jobs that a job waits for, directly or not, and those that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.bodies import job_id_of, json_response
from noontide.apps.api.owners import Owners
from noontide.apps.api.principal import Principal, Viewer
from noontide.apps.api.reading import find_job
from noontide.apps.api.services import owners_of
from noontide.apps.job_graph import JobGraph, Node, as_document, graph_of
from noontide.apps.port import wire

router = APIRouter(prefix="/v1", tags=["jobs"])
JOBS_MAX = 1_000
"""Jobs of one graph."""
IDS_MAX = 200
"""Jobs asked about in one question."""


@router.get("/jobs/{job_id}/graph", summary="What a job waits for, and what waits for it")
async def graph(
    request: Request,
    job_id: str,
    who: Viewer,
    *,
    limit: Annotated[int, Query(ge=1, le=JOBS_MAX, description="Jobs, at most; the nearest first.")] = JOBS_MAX,
) -> Response:
    """Everything up and down the line. An upstream that does not exist is in it with `exists: false`.

    `cycle` is a path that ends where it begins, if there is one; `truncated`: there are more than `limit` jobs.
    """
    found = await find_job(request, who, job_id_of(job_id))
    nodes, truncated = await _around(owners_of(request), who, found.id, limit)
    whole = graph_of(nodes)
    drawn = whole.around(found.id) if found.id in whole.nodes else _alone(nodes)
    return json_response({"job_id": found.id, **as_document(drawn), "truncated": truncated})


def _alone(nodes: Iterable[Node]) -> JobGraph:
    """A job without ties is a graph of its own."""
    return JobGraph(nodes={node.job_id: node for node in nodes})


async def _around(owners: Owners, who: Principal, job_id: str, limit: int) -> tuple[list[Node], bool]:
    """Jobs reached upwards from the job, and those reached downwards; who sees them."""
    known: dict[str, wire.Tied] = {}
    for upwards in (True, False):
        wanted, seen = [job_id], set[str]()
        while wanted:
            asked = [each for each in wanted if each not in known]
            if len(known) + len(asked) > limit:
                return [_node(each) for each in known.values()], True
            for tied in await _asked(owners, asked):
                if not tied.exists or who.sees(tied.tenant):
                    known[tied.id] = tied
            seen.update(wanted)
            reached = (each for name in wanted if name in known for each in _next(known[name], upwards=upwards))
            wanted = sorted({each for each in reached if each not in seen})
    return [_node(each) for each in known.values() if each.exists], False


def _next(tied: wire.Tied, *, upwards: bool) -> tuple[str, ...]:
    return tied.after if upwards else tied.dependants


async def _asked(owners: Owners, job_ids: list[str]) -> list[wire.Tied]:
    by_slot: dict[int, list[str]] = {}
    for job_id in job_ids:
        by_slot.setdefault(owners.layout.slot_of(owners.layout.partition_of(job_id)), []).append(job_id)
    questions = [
        (slot, wire.Ties(slot=slot, ids=ids[start : start + IDS_MAX]))
        for slot, ids in by_slot.items()
        for start in range(0, len(ids), IDS_MAX)
    ]
    answers = await asyncio.gather(*(owners.ask(slot, question) for slot, question in questions))
    return [tied for answer in answers if isinstance(answer, wire.FoundTies) for tied in answer.jobs]


def _node(tied: wire.Tied) -> Node:
    return Node(job_id=tied.id, after=tied.after, state=tied.state, reason=tied.reason)
