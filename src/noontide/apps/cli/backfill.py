"""`noontide jobs backfill`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import orjson

from noontide.apps.cli.common import Cluster, broker_options, json_option
from noontide.apps.cli.tables import plural, show_json

if TYPE_CHECKING:
    from noontide.client import Client


@click.command()
@click.argument("job_id")
@click.option("--from", "begin", required=True, help="First instant, RFC 3339 with offset.")
@click.option("--to", "end", required=True, help="End, exclusive; not in the future.")
@click.option("--dry-run", is_flag=True, help="Only say what would be made.")
@click.option(
    "--overlap", type=click.Choice(("queue", "allow")),
    help="Runs one after the other, or together; default: together if the job allows it.",
)  # fmt: skip
@click.option("--reprocess", is_flag=True, help="Run every occurrence, under new run ids, whatever ran before.")
@click.option("--max", "max_runs", type=click.IntRange(1), help="Refuse a range with more occurrences.")
@click.option("--domain", default="public", show_default=True, help="Request domain: the topic requests.DOMAIN.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1), default=30.0, show_default=True,
    help="Seconds without an answer until giving up with exit code 3.",
)  # fmt: skip
@json_option
@broker_options
def backfill(cluster: Cluster, job_id: str, **given: Any) -> None:
    """Make the runs of past occurrences, FROM <= due < TO."""
    from noontide.apps.cli.asking import Request, ask
    from noontide.core.ids import JOB_ID_FORM, is_job_id

    if not is_job_id(job_id):
        raise click.UsageError(f"{job_id!r} is not a job id: {JOB_ID_FORM}")
    said = {"from": given["begin"], "to": given["end"], **_more(given)}
    request = Request(job_id, orjson.dumps(said), kind="backfill")
    answers = ask(cluster.connection(), cluster.layout(), request, domain=given["domain"], timeout_s=given["timeout_s"])
    _show({"job_id": job_id, **answers.backfills[job_id]}, as_json=given["as_json"])


def backfill_over_api(client: Client, job_id: str, **given: Any) -> None:
    """The same over the HTTP API."""
    made = client.backfill_job(job_id, given["begin"], given["end"], **_more(given))
    bounds = {"from": _instant(made.begin), "to": _instant(made.end)}
    counts = {"runs": made.runs, "skipped": made.skipped, "dry_run": made.dry_run}
    _show({"job_id": job_id, **bounds, **counts}, as_json=given["as_json"])


def _more(given: Mapping[str, Any]) -> dict[str, Any]:
    asked = {name: given[name] for name in ("dry_run", "overlap", "reprocess")} | {"max": given["max_runs"]}
    return {name: value for name, value in asked.items() if value}


def _instant(at: Any) -> str:
    from noontide.core.instants import format_instant, ms_of

    return format_instant(ms_of(at))


def _show(made: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        show_json(dict(made))
        return
    will = "would be made" if made["dry_run"] else "will be made"
    skipped = f"; {plural(made['skipped'], 'occurrence')} skipped, dealt with before" if made["skipped"] else ""
    click.echo(f"{plural(made['runs'], 'run')} {will}, {made['from']} to {made['to']}{skipped}")
