"""The audit of requests that were accepted: one record per change, in the transaction that makes it."""

from __future__ import annotations

from noontide.actors.effects import Effects, Scene
from noontide.actors.request_input import Input
from noontide.core.ids import manual_run_id
from noontide.ports.record_log import Record
from noontide.records import rows
from noontide.records.audit import Action, Change, encode_change, shown_definition
from noontide.records.job_row import JobRow, decode_job_row
from noontide.records.requests import Backfill, Cancel, Define, Delete, Redrive, Request, Trigger


def note_change(request: Request, before: JobRow | None, item: Input, scene: Scene, *, partition: int) -> None:
    """Write down who asked for what, and how the job was and is.

    before: the job as the request found it. Called when the effects hold what became of it. A new job of nobody in
    particular is not written down: its event and its definition say it all, and services bring them by the million.
    """
    if before is None and request.terms.actor is None and isinstance(request, Define):
        return
    after = _row_after(partition, request.job_id, scene.effects)
    action, subject, note = _said(request, before, item)
    changes_job = isinstance(request, Define | Delete)
    change = Change(
        action=action,
        subject=subject,
        at_ms=item.appended_ms,
        tenant=_tenant(request, before, after),
        actor=request.terms.actor,
        origin=item.origin.text,
        before=_shown(before) if changes_job else None,
        after=_shown(after) if changes_job else None,
        note=note,
    )
    record = Record(request.job_id.encode(), encode_change(change))
    scene.effects.outputs[scene.effects.names.audit].append(record)


def _said(request: Request, before: JobRow | None, item: Input) -> tuple[Action, str, str]:
    """What was done, to what, and why."""
    job = f"job/{request.job_id}"
    match request:
        case Define():
            return (Action.CREATED if before is None else Action.UPDATED), job, ""
        case Delete():
            return Action.DELETED, job, ""
        case Trigger():
            run_id = manual_run_id(request.job_id, item.origin.offset, item.source_name)
            return Action.TRIGGERED, f"run/{run_id}", request.reason
        case Cancel():
            return Action.CANCELLED, _run_or(job, request.run_id), request.reason
        case Redrive():
            return Action.REDRIVEN, _run_or(job, request.run_id), ""
        case Backfill():
            return Action.BACKFILLED, job, ""


def _run_or(job: str, run_id: str | None) -> str:
    return job if run_id is None else f"run/{run_id}"


def _tenant(request: Request, before: JobRow | None, after: JobRow | None) -> str | None:
    row = after or before
    return request.terms.tenant if row is None else row.tenant


def _row_after(partition: int, job_id: str, effects: Effects) -> JobRow | None:
    row = effects.find(rows.job_key(partition, job_id.encode()))
    return None if row is None else decode_job_row(row)


def _shown(row: JobRow | None) -> bytes | None:
    return None if row is None else shown_definition(row.document)
