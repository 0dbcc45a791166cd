"""`/v1/runs`: see, cancel and retry runs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from noontide.apps.api.archive import HistoryAway
from noontide.apps.api.bodies import body_of, json_response, object_of
from noontide.apps.api.cursors import decode_cursor, encode_cursor, instant_in, offsets_of, place_in, text_of
from noontide.apps.api.job_lists import Cursor, Limit, Tenant, merged
from noontide.apps.api.past import Older, tenants_of
from noontide.apps.api.past_runs import ended_since, past_runs, seam_ms
from noontide.apps.api.principal import Operator, Principal, Viewer
from noontide.apps.api.problems import ApiProblem, not_found, unavailable
from noontide.apps.api.reading import tenant_meant, tenants_seen
from noontide.apps.api.services import owners_of, services_of, settings_of, writer_of
from noontide.apps.api.views import execution_view, run_view
from noontide.apps.api.writing import Asked
from noontide.apps.port import wire
from noontide.core.errors import InvalidDefinition
from noontide.core.ids import RUN_ID_FORM, parse_run_id
from noontide.core.run import RunState
from noontide.ports.history import ExecutionFilter
from noontide.records.requests import Kind

router = APIRouter(prefix="/v1", tags=["runs"])
LIVE = frozenset((RunState.PENDING, RunState.QUEUED, RunState.RUNNING, RunState.RETRY_WAIT))
CLOSED = frozenset((RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED))
OTHER_WORDS = {"failed": RunState.DEAD}


@router.get("/runs", summary="List runs")
async def list_runs(
    request: Request,
    who: Viewer,
    state: Annotated[list[str] | None, Query(description="Only these; `failed` means dead.", max_length=10)] = None,
    tenant: Tenant = None,
    job: Annotated[str | None, Query(description="Of this job only.", max_length=200)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """First those that are live, by id; then those closed of late, newest first; then older ones of the history.

    `next_cursor` is null at the end. `older`: `history` (older ones are in the list), or `not_kept`.
    """
    states = _states(state)
    pages = _Pages(request, states, tenants_seen(who, tenant), job, limit)
    fields = decode_cursor("runs", cursor)
    if fields is not None and fields.get("part") == "past":
        items, following = await past_runs(request, pages.wanted(instant_in(fields, "until")), limit, place_in(fields))
    elif fields is not None and fields.get("part") == "closed":
        items, following = await pages.closed(offsets_of(fields, "before"), until_ms=instant_in(fields, "until"))
    elif states & LIVE:
        ends = None if fields is None else offsets_of(fields, "ends")
        items, following = await pages.live(text_of(fields, "after"), ends)
    else:
        items, following = await pages.closed({})
    next_cursor = following and encode_cursor("runs", following)
    older = Older.NOT_KEPT if services_of(request).archive is None else Older.HISTORY
    return json_response({"items": items, "next_cursor": next_cursor, "older": older})


class _Pages:
    """The pages of one list. A run is on one of them, also when it is closed while somebody turns them."""

    def __init__(
        self, request: Request, states: frozenset[RunState], tenants: list[str] | None, job: str | None, limit: int
    ) -> None:
        self._owners = owners_of(request)
        self._has_past = services_of(request).archive is not None
        self._now_ms = services_of(request).now_ms()
        self._states = states
        self._tenants = tenants
        self._job = job
        self._limit = limit
        layout = self._owners.layout
        self._slots = list(range(layout.slots)) if job is None else [layout.slot_of(layout.partition_of(job))]

    async def live(self, after: str, ends: dict[str, int] | None) -> tuple[list[Any], dict[str, Any] | None]:
        """Runs that are live, and those that were when the first page was read. ends: where history ended then."""
        every = self._states & CLOSED
        answers = await self._owners.ask_all(
            self._slots,
            lambda slots: wire.LivePage(
                slots=slots,
                after=after,
                limit=self._limit,
                states=sorted(self._states),
                tenants=self._tenants,
                job_id=self._job,
                also_closed_after=ends if every else None,
            ),
        )
        pages = [answer for answer in answers if isinstance(answer, wire.FoundRuns)]
        if ends is None:
            ends = {slot: end for page in pages for slot, end in page.ends.items()}
        found = [(run.id, run) for page in pages for run in page.runs]
        runs, last = merged(found, [page.reached for page in pages], self._limit)
        items = [run_view(run) for run in runs]
        if last is not None:
            return items, {"part": "live", "after": last, "ends": ends}
        goes_on = every and (self._has_past or any(ends.values()))
        return items, {"part": "closed", "before": ends} if goes_on else None

    def wanted(self, until_ms: int | None) -> ExecutionFilter:
        """What is looked for in the history."""
        return ExecutionFilter(
            tenants=None if self._tenants is None else tuple(self._tenants),
            job_id=self._job,
            states=tuple(sorted(self._states & CLOSED)),
            ended_before_ms=until_ms,
        )

    async def closed(
        self, before: dict[str, int], *, until_ms: int | None = None
    ) -> tuple[list[Any], dict[str, Any] | None]:
        """Runs that were closed of late, the newest first. until_ms: where the history takes over; None = find out."""
        slots = [slot for slot in self._slots if before.get(str(slot), 1) > 0]
        answers = await self._owners.ask_all(
            slots,
            lambda asked: wire.History(
                slots=asked,
                limit=self._limit,
                states=sorted(self._states & CLOSED),
                before={str(slot): before[str(slot)] for slot in asked if str(slot) in before} or None,
                tenants=self._tenants,
                job_id=self._job,
                since_ms=until_ms,
            ),
        )
        pages = [answer for answer in answers if isinstance(answer, wire.Lines)]
        kept = {slot: each for page in pages for slot, each in page.kept.items()}
        until_ms = seam_ms(kept, slots, self._now_ms, until_ms) if self._has_past else None
        more = {slot: offset for page in pages for slot, offset in page.more.items()}
        lines = _newest_first(line for page in pages for line in page.lines if ended_since(line, until_ms))
        # Beyond the oldest line of a slot that may have more, others may still come before.
        shown = lines[: self._limit]
        following = _before(slots, before, shown, lines, more)
        items = [execution_view(orjson.loads(bytes(line.execution))) for line in shown]
        seam = {} if until_ms is None else {"until": until_ms}
        if any(following.values()):
            return items, {"part": "closed", "before": following, **seam}
        return items, {"part": "past", **seam} if seam else None


def _before(
    slots: list[int],
    before: dict[str, int],
    shown: list[wire.Line],
    lines: list[wire.Line],
    more: dict[str, int],
) -> dict[str, int]:
    """Where each slot goes on; 0 = there is nothing more."""
    following = dict(before)
    for slot in slots:
        mine = [line.offset for line in lines if line.slot == slot]
        seen = [line.offset for line in shown if line.slot == slot]
        if len(seen) == len(mine):
            following[str(slot)] = more.get(str(slot), 0)
        elif seen:
            following[str(slot)] = min(seen)
        else:
            following[str(slot)] = before.get(str(slot), max(mine) + 1)
    return following


def _newest_first(lines: Iterable[wire.Line]) -> list[wire.Line]:
    """By append time, each slot's in the order of its log, as cursors go: a new leader's clock may be behind."""
    by_slot: dict[int, list[wire.Line]] = {}
    for line in lines:
        by_slot.setdefault(line.slot, []).append(line)
    return list(heapq.merge(*(by_slot[slot] for slot in sorted(by_slot)), key=lambda line: -line.appended_ms))


def _states(given: list[str] | None) -> frozenset[RunState]:
    if not given:
        return LIVE | CLOSED
    found = set()
    for word in (part for each in given for part in each.split(",")):
        state = OTHER_WORDS.get(word) or next((each for each in RunState if each == word), None)
        if state is None:
            known = ", ".join((*RunState, *OTHER_WORDS))
            raise InvalidDefinition.of("/query/state", f"{word[:50]!r} is not one of {known}")
        found.add(state)
    return frozenset(found)


@router.get("/runs/{run_id}", summary="Read a run")
async def read(request: Request, run_id: str, who: Viewer) -> Response:
    """Its state, attempts, worker and times; of one that was dead and redriven the latest end, and all in `ends`."""
    return json_response(await shown_run(request, who, run_id))


@router.post("/runs/{run_id}/cancel", summary="Cancel a live run")
async def cancel(request: Request, run_id: str, who: Operator) -> Response:
    """A worker that has it is asked to stop, and loses it after a grace. Body, optional: `reason`."""
    return await _asked_about(request, who, Kind.CANCEL, run_id, await _reason(request))


@router.post("/runs/{run_id}/retry", summary="Start a run again")
async def retry(request: Request, run_id: str, who: Operator) -> Response:
    """A dead run is redriven under its own id; one that waits for its next attempt waits no longer."""
    await _reason(request)
    return await _asked_about(request, who, Kind.REDRIVE, run_id, {})


async def shown_run(request: Request, who: Principal, run_id: str) -> dict[str, Any]:
    """What is known of a run. Raises ApiProblem (404)."""
    job_id = job_of_run(run_id)
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(job_id))
    answer = await owners.ask(slot, wire.RunStory(slot=slot, run_id=run_id))
    assert isinstance(answer, wire.FoundRuns)
    if not answer.runs:
        return await _run_of_history(request, who, run_id)
    run = answer.runs[0]
    view = run_view(run)
    if not who.sees(str(view.get("tenant"))):
        raise not_found(f"run {run_id!r}")
    return {**view, "ends": [execution_view(orjson.loads(bytes(each))) for each in run.closed]}


async def _run_of_history(request: Request, who: Principal, run_id: str) -> dict[str, Any]:
    """A run that its owner has forgotten. Raises ApiProblem: 404, or 503 when the history does not answer."""
    archive = services_of(request).archive
    try:
        execution = None if archive is None else await archive.find(run_id, tenants=tenants_of(who))
    except HistoryAway:
        detail = f"run {run_id!r} is not among the recent ones, and the history does not answer"
        raise unavailable(detail, retry_after_sec=settings_of(request).retry_after_sec) from None
    if execution is None:
        raise not_found(f"run {run_id!r}")
    view = execution_view(execution)
    return {**view, "ends": [view]}


def job_of_run(run_id: str) -> str:
    """The job of a run. What is no run id names no run: 404 with the legal form."""
    try:
        return parse_run_id(run_id, "/path/run_id").job_id
    except InvalidDefinition:
        raise ApiProblem(404, "not-found", f"no run can have this id: {RUN_ID_FORM}") from None


async def _reason(request: Request) -> dict[str, Any]:
    said = object_of(await body_of(request) or b"{}")
    unknown = sorted(said.keys() - {"reason"})
    if unknown:
        raise InvalidDefinition.of(f"/{unknown[0][:64]}", 'is not a known field; only "reason" is')
    return said


async def _asked_about(request: Request, who: Principal, kind: Kind, run_id: str, said: dict[str, Any]) -> Response:
    job_id = job_of_run(run_id)
    tenant = await tenant_of_run(request, who, run_id, job_id)
    value = orjson.dumps({**said, "run_id": run_id})
    try:
        await writer_of(request).ask(Asked(kind=kind, job_id=job_id, value=value, who=who, tenant=tenant))
    except ApiProblem as problem:
        if problem.status == 404:
            now = await shown_run(request, who, run_id)
            raise ApiProblem(409, "conflict", f"the run is {now['state']}", errors=problem.errors) from None
        raise
    return json_response(await shown_run(request, who, run_id))


async def tenant_of_run(request: Request, who: Principal, run_id: str, job_id: str) -> str | None:
    """Whose run it is, for somebody who speaks for several tenants; the job may be gone."""
    if who.everywhere or who.tenant is not None:
        return await tenant_meant(request, who, job_id)
    return str((await shown_run(request, who, run_id))["tenant"])
