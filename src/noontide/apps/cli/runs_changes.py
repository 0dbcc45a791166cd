"""`noontide runs cancel | retry | redrive`: ask the owners to end runs, or to start them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from noontide.apps.cli.common import REFUSED, Cluster, Fault, broker_options, json_option
from noontide.apps.cli.runs_story import state_in_words
from noontide.apps.cli.spans import parse_since_ms
from noontide.apps.cli.tables import note, plural, show_json, show_table, utc
from noontide.core.errors import InvalidDefinition

if TYPE_CHECKING:
    from noontide.apps.cli.asking import Request
    from noontide.apps.cli.reading import Reader
    from noontide.apps.cli.runs_records import DeadRun
    from noontide.core.run import Run

DEAD_HEADS: Final = ("ended (UTC)", "run", "attempts", "reason", "error")
CANCELLED_HEADS: Final = ("run", "was", "now")

_domain_option = click.option("--domain", default="public", show_default=True, help="Request domain.")
_timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1), default=30.0, show_default=True,
    help="Seconds without an answer until giving up with exit code 3.",
)  # fmt: skip


@click.command()
@click.argument("run_id", required=False)
@click.option("--job", "job_id", help="All live runs of this job.")
@click.option("--reason", help="Why, kept with the run.")
@_domain_option
@_timeout_option
@json_option
@broker_options
def cancel(cluster: Cluster, run_id: str | None, job_id: str | None, **given: Any) -> None:
    """Cancel a live run, or all live runs of a job. A worker that has one is asked to stop first."""
    from noontide.apps.cli.asking import Request, ask

    if (run_id is None) == (job_id is None):
        raise click.UsageError("give a RUN_ID, or --job")
    owner_id = _job_of(run_id) if run_id is not None else _checked(str(job_id))
    named = {"run_id": run_id, "reason": given["reason"]}
    request = Request(owner_id, _body(named), kind="cancel")
    reader = _reader(cluster)
    before = _live(reader, owner_id, run_id)
    ask(reader.connection, reader.layout, request, domain=given["domain"], timeout_s=given["timeout_s"])
    after = _live(reader, owner_id, run_id)
    _show_cancelled(run_id, before, after, as_json=given["as_json"])


@click.command()
@click.argument("run_ids", metavar="RUN_ID...", nargs=-1, required=True)
@_domain_option
@_timeout_option
@json_option
@broker_options
def retry(run_ids: tuple[str, ...], cluster: Cluster, **given: Any) -> None:
    """Start runs again now: those that wait for their next attempt, and dead ones."""
    _redrive(_reader(cluster), run_ids, given)


@click.command()
@click.argument("run_ids", metavar="[RUN_ID]...", nargs=-1)
@click.option("--job", "job_id", help="Dead runs of this job.")
@click.option("--reason", help="Whose reason or error contains this.")
@click.option("--from", "begin", help="That ended then or later: RFC 3339, or how long ago, such as 2h.")
@click.option("--to", "end", help="That ended before then.")
@click.option("--limit", type=click.IntRange(1), help="At most so many, the oldest first.")
@click.option("--dry-run", is_flag=True, help="Show them, and leave them as they are.")
@_domain_option
@_timeout_option
@json_option
@broker_options
def redrive(run_ids: tuple[str, ...], cluster: Cluster, **given: Any) -> None:
    """Start dead runs again, under their own ids: those named, or those that match all options.

    Runs that were redriven already are left out, whatever became of them.
    """
    chosen = [given[name] for name in ("job_id", "reason", "begin", "end")]
    if bool(run_ids) == any(value is not None for value in chosen):
        raise click.UsageError("name the runs, or choose them with --job, --reason, --from and --to")
    reader = _reader(cluster)
    if run_ids and not given["dry_run"]:
        _redrive(reader, run_ids[: given["limit"]], given)
        return
    found = _matching(reader, run_ids, given)
    if given["dry_run"]:
        _show_dead(found, as_json=given["as_json"])
    else:
        _redrive(reader, [dead.run_id for dead in found], given)


def _redrive(reader: Reader, run_ids: Sequence[str], given: Mapping[str, Any]) -> None:
    """One request per run; what became of each."""
    from noontide.apps.cli.asking import Request, ask_all, sentence

    requests = [
        Request(_job_of(run_id), _body({"run_id": run_id}), place=run_id, kind="redrive")
        for run_id in dict.fromkeys(run_ids)
    ]
    refused: dict[str, str] = {}
    if requests:
        domain, timeout_s = given["domain"], given["timeout_s"]
        answers = ask_all(reader.connection, reader.layout, requests, domain=domain, timeout_s=timeout_s)
        refused = {each.request.place: sentence(each.problems) for each in answers.refused}
    _show_redriven(requests, refused, as_json=given["as_json"])
    if refused:
        raise SystemExit(REFUSED)


def _show_redriven(requests: Sequence[Request], refused: Mapping[str, str], *, as_json: bool) -> None:
    started = [request.place for request in requests if request.place not in refused]
    if as_json:
        problems = [{"run_id": run_id, "problem": problem} for run_id, problem in refused.items()]
        show_json({"asked": len(requests), "started": started, "refused": problems})
        return
    for run_id, problem in refused.items():
        note(f"{run_id}: {problem}")
    if not requests:
        click.echo("no dead runs match")
        return
    click.echo(f"{plural(len(started), 'run')} started again" + (f", {len(refused)} refused" if refused else ""))


def _matching(reader: Reader, run_ids: Sequence[str], given: Mapping[str, Any]) -> list[DeadRun]:
    from noontide.apps.cli.runs_records import dead_runs

    job_id = None if given["job_id"] is None else _checked(given["job_id"])
    job_ids = [job_id] if job_id is not None else [_job_of(run_id) for run_id in run_ids]
    slots = sorted({_slot_of(reader, each) for each in job_ids}) or range(reader.layout.slots)
    from_ms, to_ms = (_instant_ms(given, name) for name in ("begin", "end"))

    def matches(dead: DeadRun) -> bool:
        return (
            (not run_ids or dead.run_id in run_ids)
            and job_id in (None, dead.job_id)
            and (given["reason"] or "") in f"{dead.reason}: {dead.error}"
            and (from_ms is None or dead.ended_ms >= from_ms)
            and (to_ms is None or dead.ended_ms < to_ms)
        )

    return list(filter(matches, dead_runs(reader, slots)))[: given["limit"]]


def _instant_ms(given: Mapping[str, Any], name: str) -> int | None:
    from noontide.adapters.system_clock import wall_now_ms

    if given[name] is None:
        return None
    option = {"begin": "--from", "end": "--to"}[name]
    try:
        return parse_since_ms(given[name], now_ms=wall_now_ms(), pointer=option)
    except InvalidDefinition as refused:
        raise click.UsageError(str(refused)) from refused


def _show_dead(found: Sequence[DeadRun], *, as_json: bool) -> None:
    if as_json:
        for dead in found:
            show_json(dead._asdict())
        return
    rows = ((utc(dead.ended_ms), dead.run_id, str(dead.attempt), dead.reason, dead.error) for dead in found)
    show_table(DEAD_HEADS, rows, empty="no dead runs match")
    if found:
        note(f"{plural(len(found), 'dead run')}; without --dry-run they are started again")


def _show_cancelled(run_id: str | None, before: Sequence[Run], after: Sequence[Run], *, as_json: bool) -> None:
    """What each run was and is. A run that was claimed and closed between two looks is not seen: it was cancelled."""
    live = {run.run_id: run for run in after}
    told = {run.run_id: state_in_words(run) for run in before}
    named = dict.fromkeys((*told, *(() if run_id is None else (run_id,))))
    rows = [
        (each, told.get(each, ""), "asked to stop" if each in live and live[each].cancel else "cancelled")
        for each in named
        if each not in live or live[each].cancel
    ]
    if as_json:
        for each, was, now in rows:
            show_json({"run_id": each, "was": was, "now": now})
    else:
        show_table(CANCELLED_HEADS, rows, empty="cancelled")


def _live(reader: Reader, job_id: str, run_id: str | None) -> list[Run]:
    runs = reader.leases([_slot_of(reader, job_id)])
    return [run for run in runs if run.job_id == job_id and run_id in (None, run.run_id)]


def _slot_of(reader: Reader, job_id: str) -> int:
    return reader.layout.slot_of(reader.layout.partition_of(job_id))


def _body(fields: Mapping[str, str | None]) -> bytes:
    return orjson.dumps({name: value for name, value in fields.items() if value is not None})


def _job_of(run_id: str) -> str:
    from noontide.core.ids import parse_run_id

    try:
        return parse_run_id(run_id, "").job_id
    except InvalidDefinition as refused:
        raise click.UsageError(f"{run_id!r} {refused.problems[0].message}") from refused


def _checked(job_id: str) -> str:
    from noontide.core.ids import is_job_id

    if not is_job_id(job_id):
        raise Fault(f"{job_id!r} is not a job id")
    return job_id


def _reader(cluster: Cluster) -> Reader:
    from noontide.apps.cli.reading import Reader

    return Reader(connection=cluster.connection(), layout=cluster.layout())
