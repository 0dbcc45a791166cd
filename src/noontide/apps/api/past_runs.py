"""Where `GET /v1/runs` goes over from the owners' recent executions to the history, and its pages behind that.

The seam is an instant, found with the first page of closed runs and kept in the cursor. An end then or later is the
owners', any earlier one is the history's, so that each is on one page, whatever owners forget meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import orjson
from fastapi import Request

from noontide.apps.api.archive import HistoryAway
from noontide.apps.api.problems import unavailable
from noontide.apps.api.services import services_of, settings_of
from noontide.apps.api.views import execution_view
from noontide.apps.port import wire
from noontide.core.errors import InvalidDefinition
from noontide.ports.history import ENDED_SKEW_MS, ExecutionFilter, Place, ended_ms_of, place_of

TURNING_MS: Final = 3_600_000
"""So long a list may be read after its first page of closed runs, while owners forget what is old."""


def seam_ms(kept: Mapping[str, wire.Kept], slots: Collection[int], now_ms: int, given: int | None) -> int | None:
    """The instant from which on owners have every end; None = they do not say. given: of the cursor.

    Raises InvalidDefinition for a cursor so old that some of it was forgotten.
    """
    if given is not None:
        if any(given < now_ms - each.retention_ms for each in kept.values()):
            raise InvalidDefinition.of("/query/cursor", "is too old: some of what it goes on with was forgotten")
        return given
    if len(kept) < len(slots):  # schedulers of an earlier version
        return None
    firsts, cuts = list[int](), list[int]()
    for each in kept.values():
        soon_ms = now_ms - each.retention_ms + min(TURNING_MS, each.retention_ms // 8)
        skew_ms = min(ENDED_SKEW_MS, each.retention_ms // 16)
        if not each.whole or (each.since_ms is not None and each.since_ms < soon_ms):
            cuts.append(max(soon_ms, (each.since_ms or 0) + skew_ms))
        elif each.since_ms is not None:
            firsts.append(each.since_ms - skew_ms)
    return max(cuts) if cuts else min(firsts, default=now_ms)


def ended_since(line: wire.Line, since_ms: int | None) -> bool:
    """Whether it ended then or later."""
    return since_ms is None or ended_ms_of(orjson.loads(bytes(line.execution))) >= since_ms


async def past_runs(
    request: Request, wanted: ExecutionFilter, limit: int, after: Place | None
) -> tuple[list[Any], dict[str, Any] | None]:
    """Runs of the history, by nominal time, the latest first. Raises ApiProblem (503) when it does not answer."""
    archive = services_of(request).archive
    try:
        if archive is None:
            raise HistoryAway("this node has none")
        found = await archive.page(wanted, limit=limit + 1, after=after)
    except HistoryAway:
        detail = "older runs cannot be read now: the history does not answer"
        raise unavailable(detail, retry_after_sec=settings_of(request).retry_after_sec) from None
    items = [execution_view(each) for each in found[:limit]]
    if len(found) <= limit:
        return items, None
    last = place_of(found[limit - 1])
    return items, {"part": "past", "until": wanted.ended_before_ms, "due": last.due_ms, "run": last.run_id}
