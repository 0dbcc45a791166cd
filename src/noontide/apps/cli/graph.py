"""`noontide jobs graph`, `noontide runs rerun`: jobs that wait for others, and running a part of them again."""

from __future__ import annotations

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
    from noontide.apps.job_graph import Node, graph_of

    if job_id is None:
        raise click.UsageError("over the API the graph is that of one job: name it, or leave --server out")
    nodes = [
        Node(job_id=each["id"], after=tuple(each["after"]), state=each["state"] or "", reason=each["reason"])
        for each in client.job_graph(job_id)["jobs"]
        if each["exists"]
    ]
    _draw(graph_of(nodes), mermaid=mermaid, as_json=as_json)


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
    from noontide.core.instants import format_instant

    reader = _reader(cluster)
    job_id, due_ms = _logical_time(reader, run_id)
    members = _graph(reader).below(job_id) if given["subtree"] else [job_id]
    if given["dry_run"]:
        _say(members, format_instant(due_ms), None, as_json=given["as_json"])
        return
    body = {"due": format_instant(due_ms), "reason": given["reason"], "members": members if given["subtree"] else None}
    value = orjson.dumps({name: each for name, each in body.items() if each is not None})
    answers = ask(
        reader.connection, reader.layout, Request(job_id, value, kind="trigger"),
        domain=given["domain"], timeout_s=given["timeout_s"],
    )  # fmt: skip
    source = "" if given["domain"] == "api" else given["domain"]
    begun = manual_run_id(job_id, answers.origins[0].offset, source)
    _say(members, format_instant(due_ms), begun, as_json=given["as_json"])


def _say(members: list[str], due: str, run_id: str | None, *, as_json: bool) -> None:
    if as_json:
        show_json({"run_id": run_id, "due": due, "jobs": members})
        return
    what = f"{plural(len(members), 'job')} for {due}: {', '.join(members)}"
    click.echo(f"would run {what}" if run_id is None else f"{run_id} runs; {what}")


def _logical_time(reader: Reader, run_id: str) -> tuple[str, int]:
    """The job of a run, and the time it was for; of a run by hand the history says it."""
    from noontide.core.ids import OccurrenceRunId, parse_run_id
    from noontide.core.instants import parse_instant

    try:
        parsed = parse_run_id(run_id, "")
    except InvalidDefinition as refused:
        raise click.UsageError(f"{run_id!r} {refused.problems[0].message}") from refused
    if isinstance(parsed, OccurrenceRunId):
        return parsed.job_id, parsed.due_ms
    slot = reader.layout.slot_of(reader.layout.partition_of(parsed.job_id))
    lines = reader.last_executions([slot], limit=1_000, job_id=parsed.job_id)
    for line in lines:
        if line.get("run_id") == run_id:
            return parsed.job_id, parse_instant(line["due"], zone=None, pointer="/due")
    raise Fault(f"there is no trace of {run_id!r} in the history")


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
