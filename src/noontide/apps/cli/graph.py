"""`noontide jobs graph`, `noontide runs rerun`: jobs that wait for others, and running a part of them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import orjson

from noontide.apps.cli.common import Cluster, Fault, broker_options, json_option
from noontide.apps.cli.tables import plural, show_json
from noontide.core.errors import InvalidDefinition

if TYPE_CHECKING:
    from noontide.apps.cli.reading import Reader, StoredJob
    from noontide.apps.job_graph import JobGraph
    from noontide.client import Client


@click.command()
@click.argument("job_id", required=False)
@click.option("--mermaid", is_flag=True, help="As a mermaid flowchart.")
@json_option
@broker_options
def graph(job_id: str | None, mermaid: bool, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - options of click
    """Show which jobs wait for which: all of them, or those that have to do with one job."""
    found = _graph(_reader(cluster))
    if job_id is not None:
        if job_id not in found.nodes:
            raise Fault(f"{job_id!r} waits for no job, and no job waits for it")
        found = found.around(job_id)
    _draw(found, mermaid=mermaid, as_json=as_json)


def graph_over_api(client: Client, job_id: str | None, mermaid: bool, as_json: bool) -> None:  # noqa: FBT001 - as above
    """The same over the HTTP API, for one job."""
    if job_id is None:
        raise click.UsageError("over the API the graph is that of one job: name it, or leave --server out")
    _draw(_graph_of_job(client, job_id), mermaid=mermaid, as_json=as_json)


def _graph_of_job(client: Client, job_id: str) -> JobGraph:
    from noontide.apps.job_graph import Node, graph_of

    nodes = [
        Node(job_id=each["id"], after=tuple(each["after"]), state=each["state"] or "", reason=each["reason"])
        for each in client.job_graph(job_id)["jobs"]
        if each["exists"]
    ]
    return graph_of(nodes)


def _draw(found: JobGraph, *, mermaid: bool, as_json: bool) -> None:
    from noontide.apps.job_graph import as_document, mermaid_lines, tree_lines

    if as_json:
        show_json(as_document(found))
        return
    for line in mermaid_lines(found) if mermaid else tree_lines(found):
        click.echo(line)
    if not found.nodes:
        click.echo("no job waits for another")
    elif (cycle := found.cycle()) is not None and not mermaid:
        raise Fault(f"a cycle: {' → '.join(cycle)}")


@click.command()
@click.argument("run_id")
@click.option("--subtree", is_flag=True, help="The jobs downstream run again after it.")
@click.option("--dry-run", is_flag=True, help="Only say which jobs would run.")
@click.option("--reason", help="Why, for the audit.")
@click.option("--domain", default="public", show_default=True, help="Request domain.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1), default=30.0, show_default=True,
              help="Seconds without an answer until giving up with exit code 3.")  # fmt: skip
@json_option
@broker_options
def rerun(run_id: str, cluster: Cluster, **given: Any) -> None:
    """Run the job of RUN_ID again, for the same logical time, and with --subtree what depends on it.

    The runs get ids of their own. Upstreams outside of the subtree are not waited for: they have run already.
    """
    from noontide.apps.cli.asking import Request, ask
    from noontide.core.ids import manual_run_id

    reader = _reader(cluster)
    job_id, due = _logical_time(run_id, partial(_recorded_due, reader))
    members = _graph(reader).below(job_id) if given["subtree"] else [job_id]
    if given["dry_run"]:
        _say(members, due, None, as_json=given["as_json"])
        return
    body = {"due": due, "reason": given["reason"], "members": members if given["subtree"] else None}
    value = orjson.dumps({name: each for name, each in body.items() if each is not None})
    answers = ask(
        reader.connection, reader.layout, Request(job_id, value, kind="trigger"),
        domain=given["domain"], timeout_s=given["timeout_s"],
    )  # fmt: skip
    source = "" if given["domain"] == "api" else given["domain"]
    begun = manual_run_id(job_id, answers.origins[0].offset, source)
    _say(members, due, begun, as_json=given["as_json"])


def rerun_over_api(client: Client, run_id: str, **given: Any) -> None:
    """The same over the HTTP API."""
    job_id, due = _logical_time(run_id, partial(_told_due, client))
    members = _graph_of_job(client, job_id).below(job_id) if given["subtree"] else [job_id]
    begun = None
    if not given["dry_run"]:
        wave = members if given["subtree"] else ()
        begun = client.trigger_job(job_id, reason=given["reason"], due=due, members=wave)
    _say(members, due, begun, as_json=given["as_json"])


def _say(members: list[str], due: str, run_id: str | None, *, as_json: bool) -> None:
    if as_json:
        show_json({"run_id": run_id, "due": due, "jobs": members})
        return
    what = f"{plural(len(members), 'job')} for {due}: {', '.join(members)}"
    click.echo(f"would run {what}" if run_id is None else f"{run_id} runs; {what}")


def _logical_time(run_id: str, due_of: Callable[[str, str], str]) -> tuple[str, str]:
    """The job of a run, and the time it was for; of a run by hand (job, run) somebody else knows it."""
    from noontide.core.ids import OccurrenceRunId, parse_run_id
    from noontide.core.instants import format_instant

    try:
        parsed = parse_run_id(run_id, "")
    except InvalidDefinition as refused:
        raise click.UsageError(f"{run_id!r} {refused.problems[0].message}") from refused
    if isinstance(parsed, OccurrenceRunId):
        return parsed.job_id, format_instant(parsed.due_ms)
    return parsed.job_id, due_of(parsed.job_id, run_id)


def _recorded_due(reader: Reader, job_id: str, run_id: str) -> str:
    slot = reader.layout.slot_of(reader.layout.partition_of(job_id))
    for line in reader.last_executions([slot], limit=1_000, job_id=job_id):
        if line.get("run_id") == run_id:
            return str(line["due"])
    raise Fault(f"there is no trace of {run_id!r} in the history")


def _told_due(client: Client, _job_id: str, run_id: str) -> str:
    from noontide.core.instants import format_instant, ms_of

    due = client.get_run(run_id).due
    if due is None:
        raise Fault(f"nothing says for which time {run_id!r} was")
    return format_instant(ms_of(due))


def _graph(reader: Reader) -> JobGraph:
    from noontide.apps.job_graph import graph_of

    return graph_of(_node(stored) for stored in reader.jobs())


def _node(stored: StoredJob) -> Any:
    from noontide.apps.job_graph import Node

    job, cursor = stored.job(), stored.cursor
    return Node(
        job_id=stored.job_id,
        after=() if job is None else job.after,
        state="" if cursor is None else cursor.state,
        reason=None if cursor is None else cursor.reason,
    )


def _reader(cluster: Cluster) -> Reader:
    from noontide.apps.cli.reading import Reader

    return Reader(connection=cluster.connection(), layout=cluster.layout())
