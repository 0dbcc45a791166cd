"""Jobs as the command line shows them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from noontide.apps.cli.reading import StoredJob, why_later
from noontide.apps.cli.spans import words
from noontide.apps.cli.tables import utc, utc_second
from noontide.core.cursor import Cursor

HEADS = ("id", "tenant", "schedule", "zone", "state", "next due (UTC)", "starts", "target")


def schedule_text(fields: Mapping[str, object]) -> str:
    """A schedule in the words of the definition."""
    schedule = fields.get("schedule")
    if not isinstance(schedule, Mapping):
        after = fields.get("after")
        return f"after {', '.join(map(str, after))}" if isinstance(after, list) else ""
    match schedule:
        case {"cron": [*crons]}:
            return " | ".join(map(str, crons))
        case {"cron": cron}:
            return str(cron)
        case {"every": every}:
            return f"every {every}"
        case {"at": at}:
            return f"at {at}"
        case {"after_completion": pause}:
            return f"{pause} after the end"
    return ""


def target_text(fields: Mapping[str, object]) -> str:
    """A target as history names it."""
    match fields.get("target"):
        case {"topic": {"name": name}}:
            return f"kafka://{name}"
        case {"http": {"url": url}}:
            return str(url)
        case {"handler": {"name": name}} | {"handler": name}:
            return f"handler:{name}"
        case other:
            return str(other or "")


def start_text(cursor: Cursor | None) -> str:
    """The next start as a distance from the next due time."""
    if cursor is None or cursor.due_ms is None or cursor.start_ms is None:
        return ""
    later_ms = cursor.start_ms - cursor.due_ms
    return f"+ {words(later_ms)}" if later_ms else "on time"


def row(stored: StoredJob) -> tuple[str, ...]:
    """A line of the table."""
    fields, cursor = stored.fields(), stored.cursor
    return (
        stored.job_id,
        str(fields.get("tenant", "")),
        schedule_text(fields),
        str(fields.get("timezone", "UTC")),
        state_of(stored),
        utc_second(cursor.due_ms) if cursor else "",
        start_text(cursor),
        target_text(fields),
    )


def state_of(stored: StoredJob) -> str:
    """The state of the job; `accepted` in the moment before its cursor is seen."""
    return str(stored.cursor.state) if stored.cursor else "accepted"


def as_json(stored: StoredJob, *, whole: bool) -> dict[str, object]:
    """A job for programs; with `whole` its definition too."""
    fields, cursor = stored.fields(), stored.cursor
    shown: dict[str, object] = {
        "id": stored.job_id,
        "tenant": fields.get("tenant"),
        "schedule": fields.get("schedule"),
        "timezone": fields.get("timezone", "UTC"),
        "state": state_of(stored),
        "next_due": utc(cursor.due_ms) or None if cursor else None,
        "start_after": utc(cursor.start_ms) or None if cursor and cursor.due_ms is not None else None,
        "why_later": why_later(stored),
        "target": target_text(fields),
        "labels": fields.get("labels", {}),
        "etag": stored.etag,
    }
    if whole:
        shown |= {name: stored.headers.get(name) for name in ("created", "updated", "origin")}
        shown |= {"runs": cursor.runs if cursor else 0, "reason": cursor.reason if cursor else None}
        shown["definition"] = orjson.Fragment(stored.document)
    return shown


def pairs(stored: StoredJob) -> dict[str, str]:
    """Everything about one job, for people."""
    fields, cursor = stored.fields(), stored.cursor
    shown = dict(zip(HEADS, row(stored), strict=True))
    if cursor is not None and cursor.due_ms is not None:
        shown["next due (UTC)"] = utc(cursor.due_ms)
        shown["starts"] = f"{utc(cursor.start_ms)} ({start_text(cursor)})"
        if (why := why_later(stored)) is not None:
            shown["starts"] += f", {why}"
    if cursor is not None and cursor.last_due_ms is not None:
        shown["last due"] = utc(cursor.last_due_ms)
    if cursor is not None and cursor.reason:
        shown["reason"] = cursor.reason
    if note := fields.get("note"):
        shown["note"] = str(note)
    shown |= {
        "runs": str(cursor.runs if cursor else 0),
        "etag": stored.etag,
        "created": stored.headers.get("created", ""),
        "updated": stored.headers.get("updated", ""),
        "definition": stored.document.decode(),
    }
    return {name: value for name, value in shown.items() if value}
