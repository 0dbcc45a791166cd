"""`noontide runs` over the HTTP API."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noontide.apps.cli.faults import REFUSED, Fault
from noontide.apps.cli.tables import note, plural, show_json, show_pairs, show_table
from noontide.core.instants import format_instant, ms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from noontide.client import Client, Redriven, Run

HEADS = ("ended", "due", "state", "attempt", "worker", "run", "target", "reason")
LIVE = ("pending", "queued", "running", "retry_wait")
CLOSED = ("succeeded", "dead", "cancelled")
WATCH_S, WATCH_MAX = 1.0, 5_000
"""How often new runs are asked for, in s, and how many at most are read each time."""
OVERLAP = timedelta(seconds=5)
NEVER_ENOUGH = 1 << 62
_BEGINNING = datetime.min.replace(tzinfo=UTC)


def list_command(client: Client, *, job_id: str | None, live: bool, limit: int, as_json: bool) -> None:
    """`runs list`; finished ones come the oldest first, as from Kafka. Decisions are with `--job` only."""
    if live or job_id is None:
        found = client.runs(state=LIVE if live else CLOSED, job=job_id)
    else:
        found = client.executions(job_id)
    runs = list(_reached(islice(found, limit)))
    _show(runs if live else runs[::-1], as_json=as_json, empty="no live runs" if live else "no runs")


def watch(client: Client, *, job_id: str | None, since: str | None, count: int | None, as_json: bool) -> None:
    """`runs watch`: asks every second. Decisions not to run an occurrence are with `runs list --job`."""
    from noontide.apps.cli.runs import line_of

    following = _Following(client, job_id)
    following.begin(since)
    left, pause = NEVER_ENOUGH if count is None else count, threading.Event()
    with suppress(KeyboardInterrupt):
        while left > 0:
            for run in following.new()[:left]:
                left -= 1
                if as_json:
                    show_json(_said(run))
                else:
                    click.echo(line_of(_as_execution(run)))
            if left > 0:
                pause.wait(WATCH_S)


class _Following:
    """What is closed from a time on, each once: what ended a little before the latest may still appear."""

    def __init__(self, client: Client, job_id: str | None) -> None:
        self._client = client
        self._job_id = job_id
        self._since = _BEGINNING
        self._seen: dict[tuple[str, str, datetime | None], datetime] = {}

    def begin(self, since: str | None) -> None:
        """Since: RFC 3339, or how long ago; None = from now on, by the newest run there is."""
        from noontide.adapters.system_clock import wall_now_ms
        from noontide.apps.cli.spans import parse_since_ms

        if since is None:
            for run in takewhile(lambda run: _at(run) >= self._since, islice(self._closed(), WATCH_MAX)):
                self._since = max(self._since, _at(run) - OVERLAP)
                self._note(run)
        else:
            since_ms = parse_since_ms(since, now_ms=wall_now_ms(), pointer="--since")
            self._since = datetime.fromtimestamp(since_ms / 1_000, UTC)

    def new(self) -> list[Run]:
        """The oldest first, `WATCH_MAX` at most; beyond that the oldest are left out, and it says so."""
        read = list(islice(takewhile(lambda run: _at(run) >= self._since, self._closed()), WATCH_MAX))
        if len(read) == WATCH_MAX:
            note(f"more than {WATCH_MAX:,} at a time: the oldest are left out")
        fresh = sorted((run for run in read if self._note(run)), key=_at)
        if fresh:
            self._since = max(_at(fresh[-1]) - OVERLAP, self._since)
            self._seen = {key: at for key, at in self._seen.items() if at >= self._since}
        return fresh

    def _closed(self) -> Iterator[Run]:
        return _reached(self._client.runs(state=CLOSED, job=self._job_id))

    def _note(self, run: Run) -> bool:
        """Whether this end was not seen before; from now on it was."""
        key = (run.run_id, run.state, run.ended_at)
        is_new = key not in self._seen
        self._seen[key] = _at(run)
        return is_new


def _at(run: Run) -> datetime:
    """When it was closed; its nominal time without that."""
    return run.ended_at or run.due or _BEGINNING


def _as_execution(run: Run) -> dict[str, object]:
    """As lines of the topic say it."""
    started, due = run.granted_at or run.ended_at, run.start_after or run.due
    late = {} if started is None or due is None else {"late_ms": max(0, ms_of(started) - ms_of(due))}
    return {**_said(run), **late}


def _said(run: Run) -> dict[str, object]:
    """Its fields that say something, instants spelled as in topics."""
    fields = msgspec.structs.asdict(run).items()
    said = {name: format_instant(ms_of(value)) if isinstance(value, datetime) else value for name, value in fields}
    return {name: value for name, value in said.items() if value not in (None, [])}


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
        show_json(_said(run))
        return
    shown = {name: str(value) for name, value in _said(run).items() if value != ""}
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
            show_json(_said(run))
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
