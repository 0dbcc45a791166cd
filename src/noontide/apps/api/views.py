"""Jobs and runs as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from noontide.apps.api.redaction import redacted
from noontide.apps.port import wire
from noontide.apps.timelines import shown_instant
from noontide.core.access import Principal, Role
from noontide.core.cursor import Cursor
from noontide.core.run import Run, RunState
from noontide.records.leases import decode_lease
from noontide.records.state import decode_cursor


def job_view(
    job_id: str, *, tenant: str, etag: str, created_ms: int, document: bytes, cursor: Cursor | None
) -> dict[str, Any]:
    """A job: where it stands, and its definition as it was accepted."""
    active = cursor is not None and cursor.due_ms is not None
    return {
        "id": job_id,
        "tenant": tenant,
        "state": "accepted" if cursor is None else cursor.state,
        "next_due": shown(cursor.due_ms if cursor else None),
        "start_after": shown(cursor.start_ms if cursor and active else None),
        "last_due": shown(cursor.last_due_ms if cursor else None),
        "runs": cursor.runs if cursor else 0,
        "reason": cursor.reason if cursor else None,
        "etag": etag,
        "created_at": shown(created_ms),
        "updated_at": shown(cursor.accepted_ms if cursor else created_ms),
        "definition": orjson.Fragment(document),
    }


def found_job_view(found: wire.FoundJob, who: Principal) -> dict[str, Any]:
    """A job as an owner told it. Who may only look does not see what looks like a secret in its definition."""
    document = bytes(found.document)
    return job_view(
        found.id,
        tenant=found.tenant,
        etag=found.etag,
        created_ms=found.created_ms,
        document=document if who.role.covers(Role.OPERATOR) else redacted(document)[0],
        cursor=cursor_of(found),
    )


def cursor_of(found: wire.FoundJob) -> Cursor | None:
    """Where the job stands."""
    text = wire.text_of(found.cursor)
    return None if text is None else decode_cursor(text)


def shown(instant_ms: int | None) -> str | None:
    """An instant, or nothing."""
    return None if instant_ms is None else shown_instant(instant_ms)


def live_view(run: Run) -> dict[str, Any]:
    """A run that is not closed."""
    return {
        "run_id": run.run_id,
        "job_id": run.job_id,
        "tenant": run.tenant,
        "state": run.state,
        "due": shown(run.due_ms),
        "start_after": shown(run.start_ms),
        "claimed_at": shown(run.claimed_ms),
        "queued_at": shown(run.queued_ms or None),
        "granted_at": shown(run.granted_ms or None),
        "ended_at": None,
        "not_before": shown(run.not_before_ms or None),
        "attempt": run.attempt,
        "token": run.token,
        "target": run.target,
        "lane": run.lane or None,
        "worker": run.worker,
        "reason": run.reason,
        "waits_for": run.waits_for,
        "cancel_requested": run.cancel,
        "etag": run.etag or None,
        "attempts": attempts_of(run.history),
    }


def execution_view(execution: Mapping[str, Any]) -> dict[str, Any]:
    """A line of history: the end of a run, or a decision about an occurrence. Its own fields stay as they are."""
    attempts = execution.get("attempts")
    return {
        **execution,
        "attempts": attempts_of(attempts if isinstance(attempts, str) else ""),
    }


def attempts_of(text: str) -> list[Any]:
    """Earlier attempts, which are kept as the members of a JSON list, or as a list."""
    try:
        found = orjson.loads(text if text.startswith("[") else f"[{text}]")
    except orjson.JSONDecodeError:
        return []
    return found if isinstance(found, list) else []


def run_view(found: wire.FoundRun) -> dict[str, Any]:
    """A run from what is known of it: live, dead or closed."""
    run_id = found.id.encode()
    live = wire.text_of(found.live)
    if live is not None:
        view = live_view(decode_lease(run_id, live))
        if found.lease is not None:
            view["lease"] = dict(zip(("heard_ago_ms", "left_ms"), found.lease, strict=True))
        return view
    if found.closed:
        return execution_view(orjson.loads(bytes(found.closed[0])))
    return dead_view(found)


def dead_view(found: wire.FoundRun) -> dict[str, Any]:
    """A run that can be redriven."""
    view = live_view(decode_lease(found.id.encode(), bytes(found.dead)))
    return {**view, "state": RunState.DEAD, "worker": None, "not_before": None}
