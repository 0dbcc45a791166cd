"""`/v1/stats` and `/v1/alerts`: what the agents count and say, as this node has read it."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from noontide.apps.agents_board import AgentsBoard, Alert, Usage, job_usage
from noontide.apps.api.bodies import json_response
from noontide.apps.api.job_lists import Limit, Tenant
from noontide.apps.api.principal import Viewer
from noontide.apps.api.problems import not_found
from noontide.apps.api.reading import find_job, tenants_seen
from noontide.apps.api.services import services_of
from noontide.core.durations import MINUTE_MS
from noontide.core.instants import format_instant
from noontide.core.policies import NotifyOn
from noontide.records.agents_state import COUNTS, WINDOWS, Window, minute_of, quantile_ms

router = APIRouter(prefix="/v1", tags=["agents"])
SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


class WindowName(StrEnum):
    """How far back; a window moves on by a pane: 1, 5 and 60 minutes."""

    FIVE_MINUTES = "5m"
    HOUR = "1h"
    DAY = "24h"


class Order(StrEnum):
    """What comes first."""

    DEAD = "dead"
    RUNS = "runs"
    LATE = "late"
    RAN = "ran"


WindowQuery = Annotated[WindowName, Query(description="Until now.")]


@router.get("/stats", summary="What tenants' runs came to of late")
async def stats(
    request: Request, who: Viewer, *, window: WindowQuery = WindowName.HOUR, tenant: Tenant = None
) -> Response:
    """By tenant: runs, how they ended, quantiles of lateness and duration; counted by the agents, a second behind.

    Quantiles are upper bounds of classes. `as_of` is null when no agents have written anything.
    """
    board, chosen, now_minute = _asked(request, window)
    found = board.usage.tenants(chosen, now_minute, tenants_seen(who, tenant))
    return json_response({**_span(board, chosen, now_minute), "items": [usage_view(each) for each in found]})


@router.get("/stats/jobs", summary="Jobs whose runs died, were late or took longest of late")
async def job_stats(
    request: Request,
    who: Viewer,
    *,
    window: WindowQuery = WindowName.HOUR,
    tenant: Tenant = None,
    by: Annotated[Order, Query(description="What comes first.")] = Order.DEAD,
    limit: Limit = 20,
) -> Response:
    """The first so many jobs, each as in `/v1/stats`."""
    board, chosen, now_minute = _asked(request, window)
    rows = board.usage.job_rows(chosen, now_minute)
    found = await asyncio.to_thread(job_usage, rows, tenants_seen(who, tenant))
    views = sorted((usage_view(each) for each in found), key=lambda view: (-_rank(view, by), view["job_id"]))
    return json_response({**_span(board, chosen, now_minute), "items": views[:limit]})


@router.get("/jobs/{job_id}/stats", summary="What a job's runs came to of late")
async def stats_of_job(request: Request, who: Viewer, job_id: str) -> Response:
    """In all windows; each as in `/v1/stats`."""
    found = await find_job(request, who, job_id)
    windows = []
    for window in WINDOWS:
        board, chosen, now_minute = _asked(request, window.name)
        rows = board.usage.job_rows(chosen, now_minute, job_id)
        usage = job_usage(rows, [found.tenant], job_id)
        view = usage_view(usage[0]) if usage else {"tenant": found.tenant, "job_id": job_id, "runs": 0}
        windows.append({**_span(board, chosen, now_minute), **view})
    return json_response({"windows": windows})


@router.get("/alerts", summary="The latest alerts")
async def alerts(
    request: Request,
    who: Viewer,
    *,
    tenant: Tenant = None,
    job: Annotated[str | None, Query(description="Of this job only.", max_length=200)] = None,
    kind: Annotated[NotifyOn | None, Query(description="Of this kind only.")] = None,
    limit: Limit = 100,
) -> Response:
    """From the newest on, of the latest 2,000. `told`: by channel null, or why it did not take the alert."""
    book, seen, found = _board(request).alerts, tenants_seen(who, tenant), list[dict[str, Any]]()
    for alert in book.latest():
        said = alert.said
        wanted = (job is None or said["job_id"] == job) and (kind is None or said["kind"] == kind)
        if wanted and (seen is None or said["tenant"] in seen):
            found.append({**_alert_view(alert), "told": book.told(alert.alert_id)})
        if len(found) == limit:
            break
    return json_response({"items": found})


def usage_view(usage: Usage) -> dict[str, Any]:
    """What clients see of usage; `decided` are occurrences that did not run."""
    counts = dict(zip(COUNTS, usage.tally.counts, strict=True))
    ended = counts["succeeded"] + counts["dead"]
    return {
        "tenant": usage.tenant,
        **({} if usage.job_id is None else {"job_id": usage.job_id}),
        "runs": ended + counts["cancelled"],
        **counts,
        "failure_rate": counts["dead"] / ended if ended else None,
        "late": {name: quantile_ms(usage.tally.late_ms, share) for name, share in SHARES.items()},
        "ran": {name: quantile_ms(usage.tally.ran_ms, share) for name, share in SHARES.items()},
    }


def _rank(view: dict[str, Any], by: Order) -> float:
    return float(view[by] if by in (Order.DEAD, Order.RUNS) else view[by]["p99_ms"] or 0)


def _alert_view(alert: Alert) -> dict[str, Any]:
    said = {name: value for name, value in alert.said.items() if not name.endswith("_ms") or name == "late_ms"}
    since = {"since": format_instant(alert.said["last_ms"])} if isinstance(alert.said.get("last_ms"), int) else {}
    return {**said, **since, "at": format_instant(alert.at_ms)}


def _span(board: AgentsBoard, window: Window, now_minute: int) -> dict[str, Any]:
    newest_ms = board.usage.newest_ms
    return {
        "window": window.name,
        "from": format_instant(window.first_pane(now_minute) * MINUTE_MS),
        "as_of": format_instant(newest_ms) if newest_ms else None,
    }


def _asked(request: Request, name: str) -> tuple[AgentsBoard, Window, int]:
    chosen = next(window for window in WINDOWS if window.name == name)
    return _board(request), chosen, minute_of(services_of(request).now_ms())


def _board(request: Request) -> AgentsBoard:
    board = services_of(request).agents
    if board is None:
        raise not_found("what the agents say")
    return board
