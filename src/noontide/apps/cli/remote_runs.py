"""`noontide runs` over the HTTP API."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noontide.apps.cli.faults import REFUSED, Fault
from noontide.apps.cli.tables import note, plural, show_json, show_pairs, show_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from noontide.client import Client, Redriven, Run

HEADS = ("ended", "due", "state", "attempt", "worker", "run", "target", "reason")
LIVE = ("pending", "queued", "running", "retry_wait")
CLOSED = ("succeeded", "dead", "cancelled")


def list_command(client: Client, *, job_id: str | None, live: bool, limit: int, as_json: bool) -> None:
    """`runs list`; finished ones come the oldest first, as from Kafka. Decisions are with `--job` only."""
    if live or job_id is None:
        found = client.runs(state=LIVE if live else CLOSED, job=job_id)
    else:
        found = client.executions(job_id)
    runs = list(_reached(islice(found, limit)))
    _show(runs if live else runs[::-1], as_json=as_json, empty="no live runs" if live else "no runs")


def _reached(found: Iterable[Run]) -> Iterator[Run]:
    """As far as they can be read now."""
    from noontide.client import Unavailable

    some = False
    try:
        for run in found:
            some = True
            yield run
    except Unavailable as unavailable:
        if not some:
            raise
        note(str(unavailable))


def show(client: Client, run_id: str, *, as_json: bool) -> None:
    """`runs show`."""
    run = client.get_run(run_id)
    if as_json:
        show_json(msgspec.to_builtins(run))
        return
    shown = {name: str(value) for name, value in msgspec.to_builtins(run).items() if value not in (None, [], "")}
    shown.pop("attempts", None)
    shown.pop("ends", None)
    show_pairs(shown)
    if run.attempts:
        click.echo()
        heads = ("attempt", "token", "worker", "reason", "error")
        rows = ([str(each.get(head) or "") for head in heads] for each in run.attempts)
        show_table(heads, rows, empty="")


def cancel(client: Client, *, run_id: str | None, job_id: str | None, as_json: bool, **given: Any) -> None:
    """`runs cancel`."""
    if (run_id is None) == (job_id is None):
        raise click.UsageError("give a RUN_ID, or --job")
    ids = [run_id] if run_id is not None else [run.run_id for run in client.runs(state=LIVE, job=job_id)]
    if not ids:
        raise Fault(f"{job_id!r} has no live run")
    _show([client.cancel_run(str(each), reason=given["reason"]) for each in ids], as_json=as_json, empty="")


def retry(client: Client, run_ids: tuple[str, ...], *, as_json: bool, **_: Any) -> None:
    """`runs retry`."""
    _report(client.redrive(run_ids=run_ids), as_json=as_json)


def redrive(client: Client, run_ids: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """`runs redrive`."""
    if given["begin"] is not None or given["end"] is not None:
        raise click.UsageError("--from and --to need Kafka: leave --server out")
    job, reason = given["job_id"], given["reason"]
    if bool(run_ids) == (job is not None or reason is not None):
        raise click.UsageError("name the runs, or choose them with --job and --reason")
    done = client.redrive(run_ids=run_ids, job=job, reason=reason, limit=given["limit"], dry_run=given["dry_run"])
    if not given["dry_run"]:
        _report(done, as_json=as_json)
        return
    for run in done.runs:
        show_json(run) if as_json else click.echo(run["run_id"])


def _report(done: Redriven, *, as_json: bool) -> None:
    if as_json:
        show_json({"asked": len(done.started) + len(done.refused), "started": done.started, "refused": done.refused})
    else:
        for each in done.refused:
            note(f"{each['run_id']}: {each['problem']}")
        click.echo(f"{plural(len(done.started), 'run')} started again")
    if done.refused:
        raise SystemExit(REFUSED)


def _show(runs: Sequence[Run], *, as_json: bool, empty: str) -> None:
    if as_json:
        for run in runs:
            show_json({name: value for name, value in msgspec.to_builtins(run).items() if value not in (None, [])})
        return
    show_table(HEADS, _rows(runs), empty=empty)


def _rows(runs: Sequence[Run]) -> Iterable[tuple[str, ...]]:
    for run in runs:
        count = f" x {run.count}" if run.count > 1 else ""
        attempt = str(run.attempt) if run.attempt else ""
        known = (run.worker or "", run.run_id, run.target or "", run.reason or "")
        yield _second(run.ended_at), _second(run.due), run.state + count, attempt, *known


def _second(instant: datetime | None) -> str:
    return "" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"
