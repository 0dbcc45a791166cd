"""`noontide jobs` over the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import orjson

from noontide.apps.cli import job_views
from noontide.apps.cli.definitions import Source, read_sources
from noontide.apps.cli.faults import REFUSED, Fault
from noontide.apps.cli.put import DETAILS_MAX, checked
from noontide.apps.cli.reading import StoredJob
from noontide.apps.cli.spans import words
from noontide.apps.cli.tables import note, plural, show_json, show_pairs, show_table, utc
from noontide.client import NotFound
from noontide.core.cursor import Cursor, JobState
from noontide.core.instants import format_instant, ms_of

if TYPE_CHECKING:
    from datetime import datetime

    from noontide.client import BatchLine, Client, Job

_BREAKS = bytes.maketrans(b"\r\n", b"  ")
"""Line breaks of JSON are between its parts: a blank says the same."""


def put_command(client: Client, files: tuple[str, ...], **given: Any) -> None:
    """`jobs put`."""
    sources = [source for path in files for source in read_sources(path)]
    if not sources:
        raise Fault(f"no definitions in {', '.join(files)}")
    _put(client, sources, given)


def add(client: Client, **given: Any) -> None:
    """`jobs add`."""
    from noontide.apps.cli.jobs import document_of

    if given.pop("create_topic"):
        raise click.UsageError("--create-topic needs Kafka: leave --server out")
    options = {name: given.pop(name) for name in ("wait", "timeout_s", "as_json")}
    _put(client, [Source(text=document_of(given), place="the job")], {**options, "keep_going": False})


def _put(client: Client, sources: list[Source], given: dict[str, Any]) -> None:
    requests, faulty = checked(sources, prefix="")
    if faulty and (not given["keep_going"] or not requests):
        raise Fault(f"{plural(faulty, 'definition')} of {len(sources):,} cannot be accepted; nothing was sent")
    lines = [(request.value or b"").translate(_BREAKS) for request in requests]
    answers = list(client.put_jobs(lines, mode="replace"))
    refused = [(requests[line.line - 1].place, line) for line in answers if not line.accepted]
    for place, line in refused:
        note(f"{place or line.id}: refused: {_why(line)}")
    accepted = [str(line.id) for line in answers if line.accepted]
    jobs = [client.get_job(job_id) for job_id in accepted] if len(accepted) <= DETAILS_MAX else []
    if given["as_json"]:
        listed = [{"id": line.id, "place": place, "problem": _why(line)} for place, line in refused]
        shown = [{"id": job.id, "etag": job.etag, "state": job.state, "next_due": job.next_due} for job in jobs]
        show_json({"sent": len(lines), "accepted": len(accepted), "refused": listed, "jobs": shown})
    else:
        show_table(("id", "next due", "starts"), map(_next_row, jobs), empty="")
        click.echo(f"{plural(len(accepted), 'job')} accepted" + (f", {len(refused):,} refused" if refused else ""))
    if faulty or refused:
        raise SystemExit(REFUSED)


def _why(line: BatchLine) -> str:
    named = "; ".join(f"{each.pointer}: {each.message}" if each.pointer else each.message for each in line.errors)
    return named or line.detail or f"not decided yet ({line.status})"


def _next_row(job: Job) -> tuple[str, str, str]:
    due_ms, start_ms = _ms(job.next_due), _ms(job.start_after)
    if due_ms is None or start_ms is None:
        return job.id, "none", job.state
    return job.id, utc(due_ms), "on time" if start_ms == due_ms else f"+ {words(start_ms - due_ms)}"


def get(client: Client, job_id: str, *, as_json: bool) -> None:
    """`jobs get`."""
    stored = stored_of(client.get_job(job_id))
    if as_json:
        show_json(job_views.as_json(stored, whole=True))
    else:
        show_pairs(job_views.pairs(stored))


def list_command(client: Client, *, limit: int | None, as_json: bool, labels: tuple[str, ...], **filters: Any) -> None:
    """`jobs list`."""
    shown: list[StoredJob] = []
    more = False
    for job in client.jobs(labels=labels, **filters):
        if limit is not None and len(shown) == limit:
            more = True
            break
        shown.append(stored_of(job))
    if as_json:
        for stored in shown:
            show_json(job_views.as_json(stored, whole=False))
        return
    show_table(job_views.HEADS, map(job_views.row, shown), empty="no jobs")
    if more:
        note(f"the first {plural(len(shown), 'job')} shown; there are more")


def delete(client: Client, job_ids: tuple[str, ...], **_given: Any) -> None:
    """`jobs delete`."""
    deleted = 0
    for job_id in job_ids:
        try:
            client.delete_job(job_id)
            deleted += 1
        except NotFound as refused:
            note(f"{job_id}: {refused}")
    click.echo(f"{plural(deleted, 'job')} deleted")
    if deleted < len(job_ids):
        raise SystemExit(REFUSED)


def pause(client: Client, job_id: str, *, remark: str | None, **_given: Any) -> None:
    """`jobs pause`."""
    client.pause_job(job_id, note=remark)
    click.echo(f"{job_id} is paused")


def resume(client: Client, job_id: str, *, remark: str | None, **_given: Any) -> None:
    """`jobs resume`."""
    client.resume_job(job_id, note=remark)
    click.echo(f"{job_id} is active")


def trigger(client: Client, job_id: str, **given: Any) -> None:
    """`jobs trigger`."""
    payload = None
    if given["payload"] is not None:
        try:
            orjson.loads(given["payload"])
        except orjson.JSONDecodeError as error:
            raise click.UsageError(f"--payload is not JSON: {error}") from error
        payload = orjson.Fragment(given["payload"])
    run_id = client.trigger_job(job_id, payload=payload, reason=given["reason"])
    if given["as_json"]:
        show_json({"run_id": run_id})
    else:
        click.echo(f"triggered as {run_id}")


def stored_of(job: Job) -> StoredJob:
    """A job of the API as the views of the command line take it."""
    instants = {"created": _ms(job.created_at), "updated": _ms(job.updated_at)}
    cursor = Cursor(
        state=JobState(job.state),
        due_ms=_ms(job.next_due),
        start_ms=_ms(job.start_after),
        runs=job.runs,
        last_due_ms=_ms(job.last_due),
        reason=job.reason,
    )
    return StoredJob(
        job_id=job.id,
        etag=job.etag,
        document=orjson.dumps(job.definition),
        headers={name: format_instant(at_ms) for name, at_ms in instants.items() if at_ms is not None},
        cursor=None if job.state == "accepted" else cursor,
    )


def _ms(instant: datetime | None) -> int | None:
    return None if instant is None else ms_of(instant)
