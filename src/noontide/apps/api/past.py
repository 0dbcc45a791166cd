"""Executions of a job as one list: the recent ones from its owner, older ones from the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import orjson
from fastapi import Request

from noontide.apps.api.archive import HistoryAway
from noontide.apps.api.services import owners_of, services_of
from noontide.apps.port import wire
from noontide.core.access import Principal
from noontide.ports.history import Execution, ExecutionFilter, Place, place_of


class Older(StrEnum):
    """What is known of executions that owners have forgotten."""

    HISTORY = "history"
    UNREACHABLE = "unreachable"
    NOT_KEPT = "not_kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPage:
    """Executions in the order of their places. more: there are others behind `last`, or may be; None = the begin."""

    items: Sequence[Execution]
    last: Place | None
    more: bool
    older: Older


def tenants_of(who: Principal) -> tuple[str, ...] | None:
    """Whose executions somebody sees; None = everybody's."""
    return None if who.everywhere else tuple(sorted(who.tenants))


async def past_page(
    request: Request, wanted: ExecutionFilter, *, limit: int, after: Place | None = None, first: bool = True
) -> PastPage:
    """Executions of one job (`wanted.job_id`). Raises ApiProblem (503) when the owner cannot be asked.

    Both sources have the same order, and the owner's line wins where both have one. So a page is the merger of theirs,
    and nothing is left out or comes twice where one ends, wherever that is by now. first: nothing was shown before.
    """
    recent, known_since_ms = await _recent(request, wanted, limit=limit + 1, after=after)
    archive = services_of(request).archive
    if archive is None:
        return _page(recent, (), limit=limit, older=Older.NOT_KEPT)
    if _suffices(recent, known_since_ms, limit=limit):
        return _page(recent, (), limit=limit, older=Older.HISTORY)
    try:
        past = await archive.page(wanted, limit=limit + 1, after=after)
    except HistoryAway:
        return _recent_only(recent, known_since_ms, limit=limit, after=after, first=first)
    return _page(recent, past, limit=limit, older=Older.HISTORY)


def _page(recent: Sequence[Execution], past: Sequence[Execution], *, limit: int, older: Older) -> PastPage:
    merged = {place_of(each): each for each in (*past, *recent)}
    places = sorted(merged, reverse=True)
    shown = places[:limit]
    last = shown[-1] if shown else None
    return PastPage(items=[merged[each] for each in shown], last=last, more=len(places) > limit, older=older)


def _recent_only(
    recent: Sequence[Execution], known_since_ms: int | None, *, limit: int, after: Place | None, first: bool
) -> PastPage:
    """Without the history. Only the first page has lines of times from which others may be missing, and the next one
    begins before these times, so that nothing is passed over once the history is there again."""
    known = [each for each in recent[:limit] if known_since_ms is not None and place_of(each).due_ms >= known_since_ms]
    items = recent[:limit] if first else known
    return PastPage(items=items, last=place_of(known[-1]) if known else after, more=True, older=Older.UNREACHABLE)


def _suffices(recent: Sequence[Execution], known_since_ms: int | None, *, limit: int) -> bool:
    """Whether the owner's lines fill a page of nominal times from when on it knows everything.

    No line was written before its nominal time: what the owner has forgotten was due earlier.
    """
    return len(recent) > limit and known_since_ms is not None and place_of(recent[limit - 1]).due_ms >= known_since_ms


async def _recent(
    request: Request, wanted: ExecutionFilter, *, limit: int, after: Place | None
) -> tuple[Sequence[Execution], int | None]:
    """What the owner knows, and from when on it knows everything."""
    assert wanted.job_id is not None
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(wanted.job_id))
    if wanted.until_ms is not None:
        bound = Place(wanted.until_ms, "")
        after = bound if after is None else min(bound, after)
    question = wire.Executions(
        slot=slot,
        job_id=wanted.job_id,
        limit=limit,
        after=after,
        since_ms=wanted.since_ms,
        tenants=None if wanted.tenants is None else list(wanted.tenants),
    )
    answer = await owners.ask(slot, question)
    assert isinstance(answer, wire.FoundExecutions)
    # The slots were others once: lines of the job may lie where its owner does not look.
    known_since_ms = None if owners.layout.former_slots else answer.complete_since_ms
    return [orjson.loads(bytes(line)) for line in answer.lines], known_since_ms
