"""Every endpoint as a value: what to send, how to read the answer, and whether it may be sent again.

Both clients have these functions as methods; see `endpoints`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, overload
from urllib.parse import quote

import msgspec
import orjson

from noontide.client.models import (
    Backfilled,
    BatchLine,
    Beaten,
    Completed,
    Job,
    Leased,
    LeasedRun,
    Page,
    Redriven,
    Run,
    Time,
    Times,
    Triggered,
    Workers,
)

A = TypeVar("A")
T = TypeVar("T")
Document = Mapping[str, Any]
LINES_TYPE: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request. repeatable: sending it twice does nothing twice. stored: where the result is read after a 202."""

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    stored: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages(Generic[T]):
    """A list that is read page by page."""

    path: str
    kind: type[T]
    params: Sequence[tuple[str, str]] = ()

    def page(self, *, limit: int, cursor: str | None) -> Call[Page[T]]:
        """The page behind a cursor."""
        params = [*self.params, *_params({"limit": limit, "cursor": cursor})]
        return Call(method="GET", path=self.path, params=params, read=_reader(Page[self.kind]))  # type: ignore[name-defined] # a value


# --- jobs


def create_job(definition: Document, *, idempotency_key: str | None = None) -> Call[Job]:
    """Create a job. Without a key one is made, so that it is created once, however often it is sent."""
    key = idempotency_key or definition.get("idempotency_key") or new_key()
    job_id = definition.get("id")
    return Call(
        method="POST",
        path="/v1/jobs",
        headers={"idempotency-key": str(key)},
        body=orjson.dumps(dict(definition)),
        read=_reader(Job),
        stored=None if job_id is None else _job(str(job_id)),
    )


def get_job(job_id: str) -> Call[Job]:
    """Read a job."""
    return Call(method="GET", path=_job(job_id), read=_reader(Job))


def replace_job(job_id: str, definition: Document, *, if_match: str | None = None) -> Call[Job]:
    """Create or replace a job. if_match: the ETag it must have, or "*"."""
    body = orjson.dumps(dict(definition))
    return Call(
        method="PUT", path=_job(job_id), body=body, headers=_match(if_match), read=_reader(Job), stored=_job(job_id),
        repeatable=if_match in (None, "*"),
    )  # fmt: skip


def change_job(job_id: str, patch: Document, *, if_match: str | None = None) -> Call[Job]:
    """Merge a patch into a job (RFC 7396): None removes a field, what is not named stays."""
    return Call(
        method="PATCH", path=_job(job_id), body=orjson.dumps(dict(patch)), headers=_match(if_match),
        read=_reader(Job), stored=_job(job_id), repeatable=if_match in (None, "*"),
    )  # fmt: skip


def delete_job(job_id: str, *, if_match: str | None = None) -> Call[None]:
    """Delete a job; its live runs are finished."""
    return Call(
        method="DELETE", path=_job(job_id), headers=_match(if_match), read=_nothing, repeatable=if_match is None
    )


def pause_job(job_id: str, *, note: str | None = None) -> Call[Job]:
    """Stop its schedule; times that pass are not missed."""
    return _noted(job_id, "pause", note)


def resume_job(job_id: str, *, note: str | None = None) -> Call[Job]:
    """Go on at its next time after now; an empty note removes the one there is."""
    return _noted(job_id, "resume", note)


def trigger_job(
    job_id: str, *, payload: object = None, reason: str | None = None, due: str | None = None,
    members: Iterable[str] = (), idempotency_key: str | None = None,
) -> Call[str]:  # fmt: skip
    """Run it now, besides its schedule; gives the run id. payload: None = the job's own.

    due: the logical time, RFC 3339; None = now. members: jobs downstream that run again after it, for that time.
    """
    return Call(
        method="POST", path=f"{_job(job_id)}/trigger", headers={"idempotency-key": idempotency_key or new_key()},
        body=_said(payload=payload, reason=reason, due=due, members=list(members) or None),
        read=_reader(Triggered, lambda found: found.run_id),
    )  # fmt: skip


def backfill_job(
    job_id: str, begin: str, end: str, *, idempotency_key: str | None = None, **more: Any
) -> Call[Backfilled]:
    """Make the runs of past occurrences with begin <= due < end (RFC 3339).

    more: overlap ("queue", "allow"), reprocess, dry_run, max; see docs/how-to/backfill.md.
    """
    said = {"from": begin, "to": end, **{name: value for name, value in more.items() if value}}
    return Call(
        method="POST",
        path=f"{_job(job_id)}/backfill",
        headers={"idempotency-key": idempotency_key or new_key()},
        body=orjson.dumps(said),
        read=_reader(Backfilled),
    )


def next_times(job_id: str, *, count: int = 10, after: str | None = None) -> Call[list[Time]]:
    """When it runs next. after: an instant, RFC 3339; None = now."""
    params = _params({"count": count, "after": after})
    return Call(
        method="GET", path=f"{_job(job_id)}/next", params=params, read=_reader(Times, lambda found: found.times)
    )


def preview(definition: Document, *, count: int = 10, after: str | None = None) -> Call[list[Time]]:
    """When a definition would run; stores nothing."""
    params, body = _params({"count": count, "after": after}), orjson.dumps(dict(definition))
    return Call(
        method="POST", path="/v1/preview", params=params, body=body, read=_reader(Times, lambda found: found.times)
    )


def put_jobs(lines: Sequence[bytes], *, mode: str) -> Call[list[BatchLine]]:
    """A batch. A create is not repeated: what the first attempt made would be a conflict of the second."""
    return Call(
        method="POST", path="/v1/jobs:batch", params=[("mode", mode)], headers={"content-type": LINES_TYPE},
        body=b"\n".join(lines), read=_batch_lines, repeatable=mode == "replace",
    )  # fmt: skip


# --- lists


def jobs(
    *,
    tenant: str | None = None,
    state: str | None = None,
    target: str | None = None,
    text: str | None = None,
    labels: Iterable[str] = (),
) -> Pages[Job]:
    """Jobs by id. labels: NAME or NAME=VALUE, all of them."""
    asked = {"tenant": tenant, "state": state, "target": target, "text": text, "label": list(labels)}
    return Pages(path="/v1/jobs", params=_params(asked), kind=Job)


def runs(*, state: Iterable[str] = (), tenant: str | None = None, job: str | None = None) -> Pages[Run]:
    """Live runs by id, closed ones, the newest first, then the history's. state: only these; "failed" means dead."""
    return Pages(path="/v1/runs", params=_params({"state": list(state), "tenant": tenant, "job": job}), kind=Run)


def dead_letters(*, tenant: str | None = None, job: str | None = None) -> Pages[Run]:
    """Runs that died and can be redriven, by id."""
    return Pages(path="/v1/dead-letters", params=_params({"tenant": tenant, "job": job}), kind=Run)


def executions(job_id: str) -> Pages[Run]:
    """What became of a job's occurrences, the latest nominal time first.

    Raises Unavailable behind the recent ones when older ones are kept in a history that does not answer now.
    """
    return Pages(path=f"{_job(job_id)}/executions", kind=Run)


# --- runs


def get_run(run_id: str) -> Call[Run]:
    """Read a run."""
    return Call(method="GET", path=_run(run_id), read=_reader(Run))


def cancel_run(run_id: str, *, reason: str | None = None) -> Call[Run]:
    """End a live run; a worker that has it is asked to stop."""
    path, body = f"{_run(run_id)}/cancel", _said(reason=reason)
    return Call(method="POST", path=path, body=body, read=_reader(Run), stored=_run(run_id))


def retry_run(run_id: str) -> Call[Run]:
    """Start a dead run again, or end the wait of one that waits; not sent twice: it may have died again in between."""
    return Call(method="POST", path=f"{_run(run_id)}/retry", read=_reader(Run), stored=_run(run_id), repeatable=False)


def redrive(
    *,
    run_ids: Iterable[str] = (),
    job: str | None = None,
    reason: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
) -> Call[Redriven]:
    """Start dead runs again: those named, or those of a job or with a reason."""
    body = _said(run_ids=list(run_ids) or None, job_id=job, reason=reason, limit=limit, dry_run=dry_run)
    return Call(method="POST", path="/v1/dead-letters/redrive", body=body, read=_reader(Redriven), repeatable=dry_run)


# --- what is


def forecast(**asked: Any) -> Call[dict[str, Any]]:
    """Runs of each minute to come. asked: minutes, by ("tenant", "lane", "target"), tenant, peaks."""
    return Call(method="GET", path="/v1/forecast", params=_params(asked), read=_reader(dict[str, Any]))


def job_graph(job_id: str, *, limit: int | None = None) -> Call[dict[str, Any]]:
    """The jobs that a job waits for, directly or not, and those that wait for it."""
    params = _params({"limit": limit})
    return Call(method="GET", path=f"{_job(job_id)}/graph", params=params, read=_reader(dict[str, Any]))


def calendar_diff(name: str, calendar: Document, *, days: int | None = None) -> Call[dict[str, Any]]:
    """Which fires of which jobs would move if a calendar became this; changes nothing."""
    return Call(
        method="POST", path=f"/v1/calendars/{_segment(name)}/diff", params=_params({"days": days}),
        body=orjson.dumps(dict(calendar)), read=_reader(dict[str, Any]),
    )  # fmt: skip


def workers() -> Call[Workers]:
    """Who holds runs, and what waits in each lane."""
    return Call(method="GET", path="/v1/workers", read=_reader(Workers))


def partitions() -> Call[list[dict[str, Any]]]:
    """Each slot: its partitions, its owner, and how far that is."""
    return Call(method="GET", path="/v1/partitions", read=_reader(Page[dict[str, Any]], lambda found: found.items))


def tenant_share(tenant: str) -> Call[dict[str, Any]]:
    """What a tenant has of each limit, and its runs in each lane."""
    return Call(method="GET", path=f"/v1/tenants/{_segment(tenant)}/share", read=_reader(dict[str, Any]))


# --- working on runs, for those who write no handlers


def lease(
    handlers: Iterable[str], *, lane: str = "default", count: int = 1, wait_ms: int = 20_000
) -> Call[tuple[str, list[LeasedRun]]]:
    """The worker that runs are leased to, and those runs, as soon as there are some; none after `wait_ms`.

    Not sent again: what the first answer would have brought is leased already.
    """
    body = _said(handlers=list(handlers), lane=lane, max=count, wait_ms=wait_ms)
    read = _reader(Leased, lambda found: (found.worker, found.runs))
    return Call(method="POST", path="/v1/workers/lease", body=body, read=read, repeatable=False)


def heartbeat(
    worker: str, runs: Iterable[LeasedRun], *, progress: float | None = None, note: str | None = None
) -> Call[dict[str, str]]:
    """Keep runs; gives what each is: running, cancel (stop) or lost (stop: it counts no more)."""
    more = {name: value for name, value in (("progress", progress), ("note", note)) if value is not None}
    held = [{"run_id": run.run_id, "token": run.token, **more} for run in runs]
    read = _reader(Beaten, lambda found: {each["run_id"]: each["state"] for each in found.runs})
    return Call(method="POST", path="/v1/workers/heartbeat", body=_said(worker=worker, runs=held), read=read)


def complete(worker: str, run: LeasedRun, outcome: str, **more: Any) -> Call[str]:
    """End a run; gives what it is now. Raises Conflict when it was not this worker's any more.

    outcome: succeeded, failed, cancelled or handed_back. more: result, error, permanent, retry_after_sec.
    """
    body = _said(worker=worker, run_id=run.run_id, token=run.token, outcome=outcome, **more)
    read = _reader(Completed, lambda found: found.state)
    return Call(method="POST", path="/v1/workers/complete", body=body, read=read)


# --- configuration


def configured(noun: str) -> Call[dict[str, Any]]:
    """All of a noun by name: targets, tenants, calendars, lanes, channels."""
    read = _reader(Page[dict[str, Any]], lambda found: {str(each["name"]): each["value"] for each in found.items})
    return Call(method="GET", path=f"/v1/{noun}", read=read)


def configure(noun: str, name: str, value: Document) -> Call[None]:
    """Set one."""
    body = orjson.dumps(dict(value))
    return Call(method="PUT", path=f"/v1/{noun}/{_segment(name)}", body=body, read=_nothing)


def unconfigure(noun: str, name: str) -> Call[None]:
    """Remove one."""
    return Call(method="DELETE", path=f"/v1/{noun}/{_segment(name)}", read=_nothing)


def new_key() -> str:
    """An idempotency key that nobody else makes."""
    return secrets.token_hex(16)


def _noted(job_id: str, verb: str, note: str | None) -> Call[Job]:
    body = orjson.dumps({} if note is None else {"note": note or None})
    return Call(method="POST", path=f"{_job(job_id)}/{verb}", body=body, read=_reader(Job), stored=_job(job_id))


def _job(job_id: str) -> str:
    return f"/v1/jobs/{_segment(job_id)}"


def _run(run_id: str) -> str:
    return f"/v1/runs/{_segment(run_id)}"


def _segment(text: str) -> str:
    """One segment of a path. Raises ValueError for what a client would fold away."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} names nothing")
    return quote(text, safe="")


def _match(if_match: str | None) -> dict[str, str]:
    if if_match is None:
        return {}
    return {"if-match": if_match if if_match == "*" else f'"{if_match}"'}


def _params(given: Mapping[str, object]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        several = value if isinstance(value, list | tuple) else [value]
        pairs += [(name, str(each)) for each in several if each is not None]
    return pairs


@overload
def _reader(kind: type[T]) -> Callable[[bytes], T]: ...
@overload
def _reader(kind: type[A], take: Callable[[A], T]) -> Callable[[bytes], T]: ...
def _reader(kind: type[Any], take: Callable[[Any], Any] | None = None) -> Callable[[bytes], Any]:
    """Reads an answer of some kind, and takes what is wanted of it."""
    decode = msgspec.json.Decoder(kind).decode
    return decode if take is None else lambda body: take(decode(body))


def _said(**members: object) -> bytes:
    """A body of the members that are there."""
    return orjson.dumps({name: value for name, value in members.items() if value is not None})


def _nothing(_body: bytes) -> None:
    return None


def _batch_lines(body: bytes) -> list[BatchLine]:
    return msgspec.json.Decoder(BatchLine).decode_lines(body)
