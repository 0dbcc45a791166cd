"""Which rows a question is about."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from noontide.apps.port import wire
from noontide.core.run import RunState
from noontide.records.dependencies import Upstreams
from noontide.records.job_row import JobRow
from noontide.records.state import decode_cursor

RUN_ENDS = frozenset((RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED))


def job_matches(job_id: str, row: JobRow, cursor: bytes | None, wanted: wire.JobFilter) -> bool:
    """Whether a job is wanted; what is cheap to know is looked at first."""
    if wanted.tenants is not None and row.tenant not in wanted.tenants:
        return False
    if wanted.target is not None and not row.target_text.startswith(wanted.target):
        return False
    if wanted.state is not None and (cursor is None or decode_cursor(cursor).state != wanted.state):
        return False
    if wanted.calendar is not None and not _uses(row, wanted.calendar):
        return False
    return _text_matches(job_id, row, wanted.text) and _labels_match(row, wanted.labels)


def _text_matches(job_id: str, row: JobRow, text: str | None) -> bool:
    if text is None:
        return True
    sought = text.lower()
    if sought in job_id.lower() or sought in row.target_text.lower():
        return True
    if b'"note"' not in row.document and b'"labels"' not in row.document:
        return False
    fields = orjson.loads(row.document)
    labels = fields.get("labels") or {}
    return any(sought in str(each).lower() for each in (fields.get("note") or "", *labels.keys(), *labels.values()))


def _uses(row: JobRow, calendar: str) -> bool:
    if not row.calendars:
        return False
    named = orjson.loads(row.document).get("calendar") or {}
    return calendar in (*(named.get("include") or ()), *(named.get("exclude") or ()))


def _labels_match(row: JobRow, labels: Sequence[tuple[str, str | None]]) -> bool:
    if not labels:
        return True
    if b'"labels"' not in row.document:
        return False
    own = orjson.loads(row.document).get("labels") or {}
    return all(name in own and value in (None, own[name]) for name, value in labels)


def live_matches(value: bytes, wanted: wire.LivePage | wire.DeadPage) -> bool:
    """Whether a live or dead run is wanted."""
    if wanted.tenants is None and not wanted.states:
        return True
    fields = orjson.loads(value)
    return _in(fields["tenant"], wanted.tenants) and (not wanted.states or fields["state"] in wanted.states)


def execution_matches(execution: bytes, wanted: wire.LivePage | wire.History) -> str | None:
    """The run id of a line of history that is the end of a run, if it is wanted. A decision is no run."""
    fields = orjson.loads(execution)
    state = fields.get("state")
    if state not in RUN_ENDS or not _in(fields.get("tenant"), wanted.tenants):
        return None
    if wanted.job_id is not None and fields.get("job_id") != wanted.job_id:
        return None
    if wanted.states and state not in wanted.states:
        return None
    return str(fields["run_id"])


def _in(value: object, allowed: Sequence[str] | None) -> bool:
    return allowed is None or value in allowed


def tied_of(
    job_id: str, found: wire.FoundJob | None, after: Upstreams | None, dependants: tuple[str, ...]
) -> wire.Tied:
    """A job with its ties. after: what is known of its upstreams, if it has any."""
    waiting = tuple(sorted(dependants))
    if found is None:
        return wire.Tied(job_id, False, dependants=waiting)  # noqa: FBT003 - of an array
    text = wire.text_of(found.cursor)
    cursor = None if text is None else decode_cursor(text)
    names, state = () if after is None else after.names, "" if cursor is None else str(cursor.state)
    reason = None if cursor is None else cursor.reason
    return wire.Tied(job_id, True, found.tenant, tuple(names), waiting, state, reason)  # noqa: FBT003 - of an array
