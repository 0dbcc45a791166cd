"""`/v1/workers/lease|heartbeat|complete`: the worker's contract over HTTP, for any language.

A lease is asked for with a long poll. Heartbeats and ends may go through any node: the state of the run at its owner is
the answer, so a worker learns there that a run is to stop, or is not its own any more.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from typing import Any, TypeVar

import msgspec
import orjson
from fastapi import APIRouter, Request, Response

from noontide.apps.api.bodies import body_of, json_response, object_of
from noontide.apps.api.leasing import Leased
from noontide.apps.api.principal import Worker
from noontide.apps.api.problems import ApiProblem, NotDecided
from noontide.apps.api.runs import job_of_run
from noontide.apps.api.services import leasing_of, owners_of, services_of, settings_of, writer_of
from noontide.apps.api.views import attempts_of, shown
from noontide.apps.port import wire
from noontide.core.errors import InvalidDefinition
from noontide.core.run import Run, RunState
from noontide.ports.record_log import Record
from noontide.records.leases import decode_lease
from noontide.records.topics import DEFAULT_LANES
from noontide.records.worker_events import (
    ERROR_MAX_CHARS,
    NO_RESULT,
    RESULT_MAX_BYTES,
    WORKER_MAX_CHARS,
    End,
    Frame,
    Outcome,
    encode_frame,
)
from noontide.worker.app import NAME_FORM, matches_name
from noontide.worker.errors import RETRY_AFTER_MAX_MS

router = APIRouter(prefix="/v1/workers", tags=["workers"])
HANDLERS_MAX = 100
WAIT_MS = 20_000
NOTE_MAX_CHARS = 500
LOST = frozenset(("lease_lost", "timeout"))
POLL_MIN_S, POLL_MAX_S = 0.005, 0.1
T = TypeVar("T", bound=msgspec.Struct)
_where = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL).match


class Lease(msgspec.Struct, forbid_unknown_fields=True):
    """handlers: names that the worker has. max: runs at most. wait_ms: how long to wait for the first;
    None = 20 s, or as long as one may.
    """

    handlers: list[str]
    lane: str = "default"
    max: int = 1
    wait_ms: int | None = None


class Held(msgspec.Struct, forbid_unknown_fields=True):
    """A run that a worker says it has; progress: 0 to 1."""

    run_id: str
    token: int
    progress: float | None = None
    note: str | None = None


class Heartbeat(msgspec.Struct, forbid_unknown_fields=True):
    """worker: as the lease said."""

    worker: str
    runs: list[Held]


class Completion(msgspec.Struct, forbid_unknown_fields=True):
    """How an attempt ended. permanent, retry_after_sec: of a failure."""

    worker: str
    run_id: str
    token: int
    outcome: Outcome
    result: msgspec.Raw = NO_RESULT
    error: str | None = None
    permanent: bool = False
    retry_after_sec: float | None = None
    duration_ms: int = 0


@router.post("/lease", summary="Take runs")
async def lease(request: Request, _who: Worker) -> Response:
    """Waits until there are runs for these handlers, at most `wait_ms`; `runs` is empty when none came.

    Say a heartbeat for each every `heartbeat_ms`, and its end before `timeout_ms` is over. All workers of a lane should
    have the same handlers: a run that is delivered to one without its handler goes back after some seconds.
    """
    asked = await _read(request, Lease)
    _check_lease(request, asked)
    line = await leasing_of(request).line(asked.lane, frozenset(asked.handlers))

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    wait_ms = min(WAIT_MS, settings_of(request).lease_wait_max_ms) if asked.wait_ms is None else asked.wait_ms
    leased = await line.lease(asked.max, wait_s=wait_ms / 1000, gone=gone)
    return json_response({"worker": line.worker_id, "runs": [_leased_view(each) for each in leased]})


@router.post("/heartbeat", summary="Keep runs")
async def heartbeat(request: Request, _who: Worker) -> Response:
    """Extends the leases; the answer says of each run: `running`, `cancel` (stop, with the reason) or `lost`.

    What comes of a run that is lost is ignored: somebody else may work on it.
    """
    said = await _read(request, Heartbeat)
    _check_worker(said.worker)
    if len(said.runs) > (most := settings_of(request).lease_runs_max):
        raise InvalidDefinition.of("/runs", f"has {len(said.runs)} runs; at most {most} go in one heartbeat")
    leases = await _leases(request, [each.run_id for each in said.runs])
    frames: dict[tuple[str, int], Frame] = {}
    views = []
    for number, each in enumerate(said.runs):
        if each.progress is not None and not 0 <= each.progress <= 1:
            raise InvalidDefinition.of(f"/runs/{number}/progress", "must be 0 to 1")
        run = leases.get(each.run_id)
        held = run if run is not None and _is_held(run, said.worker, each.token) else None
        views.append({"run_id": each.run_id, "token": each.token, **_held_view(held)})
        if held is not None:
            _beat(frames, _address(request, held), said.worker, each)
    await asyncio.gather(*(_say(request, address, frame) for address, frame in frames.items()))
    return json_response({"runs": views})


@router.post("/complete", summary="End a run")
async def complete(request: Request, _who: Worker) -> Response:
    """Accepted from whoever holds the lease with the current token; 409 when the run is not theirs any more.

    `outcome`: `succeeded` (with `result`), `failed` (tried again as the job says, unless `permanent`; not before
    `retry_after_sec`), `cancelled` (it stopped because it was asked to), `handed_back` (not started: costs no attempt).
    The same end said again gets the same answer.
    """
    said = await _read(request, Completion)
    _check_completion(said)
    run = (await _leases(request, [said.run_id])).get(said.run_id)
    if run is not None and _is_held(run, said.worker, said.token):
        await _say(request, _address(request, run), Frame(worker=said.worker, ends=[_end(said)]))
        await _until_decided(request, said)
    return json_response(await _judged(request, said))


def _check_lease(request: Request, asked: Lease) -> None:
    settings = settings_of(request)
    known = {*DEFAULT_LANES, *services_of(request).config().lanes}
    if asked.lane not in known:
        raise InvalidDefinition.of("/lane", f"{asked.lane[:64]!r} is not a lane; there are {', '.join(sorted(known))}")
    if not 1 <= len(asked.handlers) <= HANDLERS_MAX:
        raise InvalidDefinition.of("/handlers", f"must name 1 to {HANDLERS_MAX} handlers")
    for number, name in enumerate(asked.handlers):
        if matches_name(name) is None:
            raise InvalidDefinition.of(f"/handlers/{number}", f"{name[:64]!r} is not a handler's name: {NAME_FORM}")
    if not 1 <= asked.max <= settings.lease_runs_max:
        raise InvalidDefinition.of("/max", f"must be 1 to {settings.lease_runs_max}")
    if not 0 <= (asked.wait_ms or 0) <= settings.lease_wait_max_ms:
        raise InvalidDefinition.of("/wait_ms", f"must be 0 to {settings.lease_wait_max_ms}")


def _check_worker(worker: str) -> None:
    if not 1 <= len(worker) <= WORKER_MAX_CHARS:
        raise InvalidDefinition.of("/worker", "must be the worker that the lease named")


def _check_completion(said: Completion) -> None:
    _check_worker(said.worker)
    job_of_run(said.run_id)
    if said.outcome is Outcome.OPEN:
        raise InvalidDefinition.of("/outcome", "must be succeeded, failed, cancelled or handed_back")
    if len(bytes(said.result)) > RESULT_MAX_BYTES:
        raise ApiProblem(413, "too-large", f"a result has at most {RESULT_MAX_BYTES} bytes of JSON")
    if said.retry_after_sec is not None and not 0 <= said.retry_after_sec * 1000 <= RETRY_AFTER_MAX_MS:
        raise InvalidDefinition.of("/retry_after_sec", f"must be 0 to {RETRY_AFTER_MAX_MS // 1000}")


async def _read(request: Request, kind: type[T]) -> T:
    body = await body_of(request)
    object_of(body)  # strict JSON, which is an object
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = _where(str(error))
        message, path = ("is not as it should be", "") if found is None else (found[1], found[2] or "")
        pointer = path.replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")
        raise InvalidDefinition.of(pointer, message) from None


def _leased_view(leased: Leased) -> dict[str, Any]:
    run = leased.invitation
    return {
        "run_id": run.run_id,
        "token": leased.token,
        "job_id": run.job_id,
        "tenant": run.tenant,
        "handler": run.target.get("handler"),
        "payload": orjson.Fragment(run.payload),
        "due": shown(run.due_ms),
        "attempt": run.attempt,
        "max_attempts": run.max_attempts,
        "lane": leased.lane,
        "lease_ms": run.lease_ms,
        "heartbeat_ms": run.heartbeat_ms,
        "timeout_ms": run.timeout_ms,
    }


def _is_held(run: Run, worker: str, token: int) -> bool:
    return run.state is RunState.RUNNING and run.worker == worker and run.token == token


def _held_view(run: Run | None) -> dict[str, Any]:
    if run is None:
        return {"state": "lost", "reason": "the lease is somebody else's, or the run is over"}
    return {"state": "running"} if run.cancel is None else {"state": "cancel", "reason": run.cancel}


def _beat(frames: dict[tuple[str, int], Frame], address: tuple[str, int], worker: str, each: Held) -> None:
    frame = frames.get(address)
    if frame is None:
        frame = frames[address] = Frame(worker=worker, beats=[], progress=[])
    frame.beats.append((each.run_id, each.token))
    if each.progress is not None or each.note:
        frame.progress.append((each.run_id, each.token, each.progress, (each.note or "")[:NOTE_MAX_CHARS]))


def _end(said: Completion) -> End:
    failed = said.outcome in (Outcome.FAILED, Outcome.HANDED_BACK)
    retry_after_ms = None if said.retry_after_sec is None else round(said.retry_after_sec * 1000)
    return End(
        run_id=said.run_id,
        token=said.token,
        outcome=said.outcome,
        permanent=said.permanent and said.outcome is Outcome.FAILED,
        error=(said.error or "the worker said that it failed")[:ERROR_MAX_CHARS] if failed else None,
        retry_after_ms=retry_after_ms,
        result=msgspec.Raw(bytes(said.result)) if bytes(said.result) else NO_RESULT,
        duration_ms=max(0, said.duration_ms),
    )


def _address(request: Request, run: Run) -> tuple[str, int]:
    layout = services_of(request).layout
    return run.lane, layout.slot_of(layout.partition_of(run.job_id))


async def _say(request: Request, address: tuple[str, int], frame: Frame) -> None:
    record = Record(frame.worker.encode(), encode_frame(frame))
    await writer_of(request).say(*address, record)


async def _leases(request: Request, run_ids: list[str]) -> dict[str, Run]:
    """Those of the runs that are live, as their owners have them. Raises ApiProblem (404, 503)."""
    owners, by_slot = owners_of(request), defaultdict[int, list[str]](list)
    for run_id in run_ids:
        by_slot[owners.layout.slot_of(owners.layout.partition_of(job_of_run(run_id)))].append(run_id)
    asked = (owners.ask(slot, wire.Leases(slot=slot, run_ids=ids)) for slot, ids in by_slot.items())
    found: dict[str, Run] = {}
    for answer in await asyncio.gather(*asked):
        assert isinstance(answer, wire.FoundRuns)
        found.update((run.id, decode_lease(run.id.encode(), bytes(run.live))) for run in answer.runs)
    return found


async def _until_decided(request: Request, said: Completion) -> None:
    """Wait until the owner has read the end. Raises NotDecided."""
    loop, pause_s = asyncio.get_running_loop(), POLL_MIN_S
    until_s = loop.time() + settings_of(request).verdict_wait_ms / 1000
    while True:
        await asyncio.sleep(pause_s)
        run = (await _leases(request, [said.run_id])).get(said.run_id)
        if run is None or not _is_held(run, said.worker, said.token):
            return
        if loop.time() > until_s:
            raise NotDecided(said.run_id, location=f"/v1/runs/{said.run_id}")
        pause_s = min(pause_s * 2, POLL_MAX_S)


async def _judged(request: Request, said: Completion) -> dict[str, Any]:
    """What became of the run, if this was its end. Raises ApiProblem: 404, or 409 when it was not."""
    owners = owners_of(request)
    slot = owners.layout.slot_of(owners.layout.partition_of(job_of_run(said.run_id)))
    answer = await owners.ask(slot, wire.RunStory(slot=slot, run_id=said.run_id))
    assert isinstance(answer, wire.FoundRuns)
    if not answer.runs:
        raise ApiProblem(404, "not-found", f"there is no run {said.run_id!r}")
    state, ended = _how_it_ended(answer.runs[0], said)
    if ended == said.outcome or (ended is Outcome.CANCELLED and said.outcome is not Outcome.SUCCEEDED):
        return {"run_id": said.run_id, "token": said.token, "accepted": True, "state": state}
    raise ApiProblem(409, "conflict", f"the run was not this worker's any more with token {said.token}: it is {state}")


def _how_it_ended(found: wire.FoundRun, said: Completion) -> tuple[str, Outcome | None]:
    """The state of a run now, and how the attempt with this token ended; None = it was lost, or was never."""
    text = wire.text_of(found.live)
    live = None if text is None else decode_lease(found.id.encode(), text)
    lines = [orjson.loads(bytes(each)) for each in found.closed]
    state = str(live.state) if live is not None else str(lines[0]["state"]) if lines else str(RunState.DEAD)
    histories = [attempts_of(line.get("attempts") or "") for line in lines]
    if live is not None:
        histories.insert(0, attempts_of(live.history))
    for attempt in (each for history in histories for each in history):
        if attempt.get("token") == said.token and attempt.get("worker") == said.worker:
            return state, None if attempt.get("reason") in LOST else Outcome.FAILED
    for line in lines:
        if line.get("token") == said.token and line["state"] in (Outcome.SUCCEEDED, Outcome.CANCELLED):
            return state, Outcome(line["state"]) if line.get("worker") == said.worker else None
    if live is not None and live.token == said.token and live.worker is None:
        return state, Outcome.HANDED_BACK
    return state, None
