"""Every endpoint as a value: what to send, how to read the answer, and whether it may be sent again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
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
    Times,
    Triggered,
    Workers,
)

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


def list_jobs(**filters: object) -> Call[Page[Job]]:
    """Filters: tenant, state, target, text, label (several), limit, cursor."""
    return Call(method="GET", path="/v1/jobs", params=_params(filters), read=_reader(Page[Job]))


def get_job(job_id: str) -> Call[Job]:
    """One job."""
    return Call(method="GET", path=_job(job_id), read=_reader(Job))


def create_job(definition: Document, *, idempotency_key: str | None) -> Call[Job]:
    """A new job. Without a key one is made, so that the request can be sent again."""
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


def replace_job(job_id: str, definition: Document, *, if_match: str | None) -> Call[Job]:
    """The whole definition."""
    body = orjson.dumps(dict(definition))
    return Call(
        method="PUT", path=_job(job_id), body=body, headers=_match(if_match), read=_reader(Job), stored=_job(job_id),
        repeatable=if_match in (None, "*"),
    )  # fmt: skip


def change_job(job_id: str, patch: Document, *, if_match: str | None) -> Call[Job]:
    """A merge patch."""
    return Call(
        method="PATCH", path=_job(job_id), body=orjson.dumps(dict(patch)), headers=_match(if_match),
        read=_reader(Job), stored=_job(job_id), repeatable=if_match in (None, "*"),
    )  # fmt: skip


def delete_job(job_id: str, *, if_match: str | None) -> Call[None]:
    """The end of a job."""
    return Call(
        method="DELETE", path=_job(job_id), headers=_match(if_match), read=_nothing, repeatable=if_match is None
    )


def pause_job(job_id: str, *, note: str | None) -> Call[Job]:
    """Stop its schedule."""
    return _noted(job_id, "pause", note)


def resume_job(job_id: str, *, note: str | None) -> Call[Job]:
    """Go on with its schedule."""
    return _noted(job_id, "resume", note)


def trigger_job(job_id: str, said: Document, *, idempotency_key: str | None) -> Call[Triggered]:
    """Run it now. said: payload, reason."""
    headers = {"idempotency-key": idempotency_key or new_key()}
    return Call(
        method="POST", path=f"{_job(job_id)}/trigger", headers=headers, body=orjson.dumps(dict(said)),
        read=_reader(Triggered),
    )  # fmt: skip


def backfill_job(job_id: str, said: Document, *, idempotency_key: str | None) -> Call[Backfilled]:
    """Make the runs of past occurrences. said: from, to, overlap, reprocess, dry_run, max."""
    headers = {"idempotency-key": idempotency_key or new_key()}
    return Call(
        method="POST", path=f"{_job(job_id)}/backfill", headers=headers, body=orjson.dumps(dict(said)),
        read=_reader(Backfilled),
    )  # fmt: skip


def next_times(job_id: str, **asked: object) -> Call[Times]:
    """Asked: count, after."""
    return Call(method="GET", path=f"{_job(job_id)}/next", params=_params(asked), read=_reader(Times))


def executions(job_id: str, **asked: object) -> Call[Page[Run]]:
    """Asked: limit, cursor."""
    return Call(method="GET", path=f"{_job(job_id)}/executions", params=_params(asked), read=_reader(Page[Run]))


def preview(definition: Document, **asked: object) -> Call[Times]:
    """Asked: count, after."""
    body = orjson.dumps(dict(definition))
    return Call(method="POST", path="/v1/preview", params=_params(asked), body=body, read=_reader(Times))


def put_jobs(lines: Sequence[bytes], *, mode: str) -> Call[list[BatchLine]]:
    """A batch. A create is not repeated: what the first attempt made would be a conflict of the second."""
    return Call(
        method="POST",
        path="/v1/jobs:batch",
        params=[("mode", mode)],
        headers={"content-type": LINES_TYPE},
        body=b"\n".join(lines),
        read=_batch_lines,
        repeatable=mode == "replace",
    )


def list_runs(**filters: object) -> Call[Page[Run]]:
    """Filters: state (several), tenant, job, limit, cursor."""
    return Call(method="GET", path="/v1/runs", params=_params(filters), read=_reader(Page[Run]))


def get_run(run_id: str) -> Call[Run]:
    """One run."""
    return Call(method="GET", path=_run(run_id), read=_reader(Run))


def cancel_run(run_id: str, *, reason: str | None) -> Call[Run]:
    """End a live run."""
    body = orjson.dumps({} if reason is None else {"reason": reason})
    return Call(method="POST", path=f"{_run(run_id)}/cancel", body=body, read=_reader(Run), stored=_run(run_id))


def retry_run(run_id: str) -> Call[Run]:
    """Start it again: not sent twice, since it may have died again in between."""
    return Call(method="POST", path=f"{_run(run_id)}/retry", read=_reader(Run), stored=_run(run_id), repeatable=False)


def list_dead(**filters: object) -> Call[Page[Run]]:
    """Filters: tenant, job, limit, cursor."""
    return Call(method="GET", path="/v1/dead-letters", params=_params(filters), read=_reader(Page[Run]))


def redrive(said: Document) -> Call[Redriven]:
    """Said: run_id, run_ids, job_id, reason, limit, dry_run."""
    body = orjson.dumps({name: value for name, value in said.items() if value is not None})
    return Call(
        method="POST", path="/v1/dead-letters/redrive", body=body, read=_reader(Redriven),
        repeatable=bool(said.get("dry_run")),
    )  # fmt: skip


def forecast(**asked: object) -> Call[dict[str, Any]]:
    """Asked: minutes, by, tenant, peaks."""
    return Call(method="GET", path="/v1/forecast", params=_params(asked), read=_reader(dict[str, Any]))


def job_graph(job_id: str, **asked: object) -> Call[dict[str, Any]]:
    """Asked: limit."""
    return Call(method="GET", path=f"{_job(job_id)}/graph", params=_params(asked), read=_reader(dict[str, Any]))


def calendar_diff(name: str, calendar: Document, **asked: object) -> Call[dict[str, Any]]:
    """Asked: days."""
    return Call(
        method="POST", path=f"/v1/calendars/{_segment(name)}/diff", params=_params(asked),
        body=orjson.dumps(dict(calendar)), read=_reader(dict[str, Any]),
    )  # fmt: skip


def workers() -> Call[Workers]:
    """Who holds runs."""
    return Call(method="GET", path="/v1/workers", read=_reader(Workers))


def partitions() -> Call[Page[dict[str, Any]]]:
    """Who owns what."""
    return Call(method="GET", path="/v1/partitions", read=_reader(Page[dict[str, Any]]))


def tenant_share(tenant: str) -> Call[dict[str, Any]]:
    """What a tenant has of what is shared."""
    return Call(method="GET", path=f"/v1/tenants/{_segment(tenant)}/share", read=_reader(dict[str, Any]))


def lease(handlers: Sequence[str], **asked: object) -> Call[Leased]:
    """Asked: lane, max, wait_ms. Not sent again: what the first answer would have brought is leased already."""
    body = orjson.dumps({"handlers": list(handlers), **asked})
    return Call(method="POST", path="/v1/workers/lease", body=body, read=_reader(Leased), repeatable=False)


def heartbeat(worker: str, runs: Sequence[LeasedRun], said: Document) -> Call[Beaten]:
    """Said of each: progress, note."""
    more = {name: value for name, value in said.items() if value is not None}
    held = [{"run_id": run.run_id, "token": run.token, **more} for run in runs]
    body = orjson.dumps({"worker": worker, "runs": held})
    return Call(method="POST", path="/v1/workers/heartbeat", body=body, read=_reader(Beaten))


def complete(worker: str, run: LeasedRun, said: Document) -> Call[Completed]:
    """Said: outcome, result, error, permanent, retry_after_sec."""
    more = {name: value for name, value in said.items() if value is not None}
    body = orjson.dumps({"worker": worker, "run_id": run.run_id, "token": run.token, **more})
    return Call(method="POST", path="/v1/workers/complete", body=body, read=_reader(Completed))


def configured(noun: str) -> Call[Page[dict[str, Any]]]:
    """All of a noun: targets, tenants, calendars, lanes, channels."""
    return Call(method="GET", path=f"/v1/{noun}", read=_reader(Page[dict[str, Any]]))


def configure(noun: str, name: str, value: Document) -> Call[dict[str, Any]]:
    """Set one."""
    body = orjson.dumps(dict(value))
    return Call(method="PUT", path=f"/v1/{noun}/{_segment(name)}", body=body, read=_reader(dict[str, Any]))


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


def _reader(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(kind).decode


def _nothing(_body: bytes) -> None:
    return None


def _batch_lines(body: bytes) -> list[BatchLine]:
    return msgspec.json.Decoder(BatchLine).decode_lines(body)
