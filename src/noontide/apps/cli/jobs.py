"""`noontide jobs`: put, get, list, delete, pause, resume, trigger, backfill, add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import orjson

from noontide.apps.cli.backfill import backfill
from noontide.apps.cli.common import REFUSED, Cluster, Fault, broker_options, json_option
from noontide.apps.cli.graph import graph
from noontide.apps.cli.tables import note, plural, show_json, show_pairs, show_table
from noontide.core.errors import InvalidDefinition

if TYPE_CHECKING:
    from noontide.apps.cli.put import Options
    from noontide.apps.cli.reading import Reader, StoredJob

_domain_option = click.option(
    "--domain", default="public", show_default=True, help="Request domain, which is a topic: requests.DOMAIN."
)
_timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1), default=30.0, show_default=True,
    help="Seconds without an answer until giving up with exit code 3.",
)  # fmt: skip
_wait_option = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is accepted.")

NEW_TOPIC_PARTITIONS = 4
"""Partitions of a topic that `jobs add --create-topic` makes."""


@click.group()
def jobs() -> None:
    """Put, look at and change jobs."""


jobs.add_command(graph)
jobs.add_command(backfill)


@jobs.command("put")
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True))
@_domain_option
@_wait_option
@click.option("--keep-going", is_flag=True, help="Send those that are valid even when others are not.")
@_timeout_option
@json_option
@broker_options
def put_command(files: tuple[str, ...], cluster: Cluster, **options: Any) -> None:
    """Put the definitions in FILES: YAML, JSON or JSON Lines; - is standard input.

    All are checked first; nothing is sent unless all are valid.
    """
    from noontide.apps.cli.definitions import read_sources
    from noontide.apps.cli.put import Options, put

    sources = [source for path in files for source in read_sources(path)]
    if not sources:
        raise Fault(f"no definitions in {', '.join(files)}")
    put(sources, cluster=cluster, options=Options(**options))


@jobs.command("add")
@click.option("--every", help="Interval: 5s, 2m, 1h30m, or ISO 8601.")
@click.option("--cron", help="Cron expression.")
@click.option("--at", help="One instant: RFC 3339, or local in the zone.")
@click.option("--in", "delay", help="Once, so long from now.")
@click.option("--topic", help="Topic that gets a record at each of these times.")
@click.option("--create-topic", is_flag=True, help="Create the topic if it does not exist.")
@click.option("--target", help="Another target: https://..., kafka://topic or handler:name.")
@click.option("--id", "job_id", help="Job id; made when absent.")
@click.option("--tenant", help="Whose job.")
@click.option("--key", help="Key of the record; the job id when absent.")
@click.option("--payload", help="JSON.")
@click.option("--timezone", help="IANA name; UTC when absent.")
@_domain_option
@_wait_option
@_timeout_option
@json_option
@broker_options
def add(cluster: Cluster, **given: Any) -> None:
    """Add one job without a file: a schedule and a target."""
    from noontide.apps.cli.definitions import Source
    from noontide.apps.cli.put import put

    options, create = _put_options(given), given.pop("create_topic")
    document = document_of(given)
    if given["topic"] is not None:
        _need_topic(cluster, given["topic"], create=create)
    put([Source(text=document, place="the job")], cluster=cluster, options=options)


def _need_topic(cluster: Cluster, topic: str, *, create: bool) -> None:
    """A topic that does not exist would make every run wait, so it is asked for first."""
    from noontide.adapters.kafka.foreign_topics import create_topics, partition_counts

    connection = cluster.connection()
    if topic in partition_counts(connection, [topic]):
        return
    if not create:
        raise Fault(f"topic {topic} does not exist; --create-topic creates it")
    create_topics(connection, {topic: NEW_TOPIC_PARTITIONS}, config={})
    click.echo(f"created topic {topic}", err=True)


@jobs.command()
@click.argument("job_id")
@json_option
@broker_options
def get(job_id: str, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Show a job: its definition, state, and when it is due next."""
    from noontide.apps.cli.job_views import as_json as json_of
    from noontide.apps.cli.job_views import pairs

    stored = _existing(_reader(cluster), job_id)
    if as_json:
        show_json(json_of(stored, whole=True))
    else:
        show_pairs(pairs(stored))


@jobs.command("list")
@click.option("--tenant", help="Of this tenant only.")
@click.option("--state", help="In this state only: active, paused, completed, quarantined, blocked.")
@click.option("--label", "labels", multiple=True, metavar="NAME[=VALUE]", help="With this label; repeatable.")
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@json_option
@broker_options
def list_command(
    tenant: str | None,
    state: str | None,
    labels: tuple[str, ...],
    limit: int | None,
    as_json: bool,  # noqa: FBT001 - an option of click
    cluster: Cluster,
) -> None:
    """List jobs by id. Reads the topics `jobs` and `state` to their ends."""
    from noontide.apps.cli import job_views

    chosen = _matching(tenant, state, labels)
    found = [stored for stored in _reader(cluster).jobs() if chosen(stored)]
    shown = found if limit is None else found[:limit]
    if as_json:
        for stored in shown:
            show_json(job_views.as_json(stored, whole=False))
        return
    show_table(job_views.HEADS, map(job_views.row, shown), empty="no jobs")
    if len(shown) < len(found):
        note(f"{len(shown):,} of {plural(len(found), 'job')} shown")


@jobs.command()
@click.argument("job_ids", nargs=-1, required=True)
@_domain_option
@_timeout_option
@broker_options
def delete(job_ids: tuple[str, ...], domain: str, timeout_s: float, cluster: Cluster) -> None:
    """Delete jobs; their live runs are finished."""
    from noontide.apps.cli.asking import Request, ask_all, sentence

    requests = [Request(job_id, None, kind="delete") for job_id in map(_checked_id, job_ids)]
    answers = ask_all(cluster.connection(), cluster.layout(), requests, domain=domain, timeout_s=timeout_s)
    for refused in answers.refused:
        note(f"{refused.request.job_id}: {sentence(refused.problems)}")
    click.echo(f"{plural(len(answers.accepted), 'job')} deleted")
    if answers.refused:
        raise SystemExit(REFUSED)


@jobs.command()
@click.argument("job_id")
@click.option("--note", "remark", help="Why, kept with the job.")
@_domain_option
@_timeout_option
@broker_options
def pause(job_id: str, remark: str | None, domain: str, timeout_s: float, cluster: Cluster) -> None:
    """Stop a job's schedule; times that pass are not missed."""
    patch: dict[str, object] = {"paused": True, **({} if remark is None else {"note": remark})}
    _change(job_id, patch, domain=domain, timeout_s=timeout_s, cluster=cluster)
    click.echo(f"{job_id} is paused")


@jobs.command()
@click.argument("job_id")
@click.option("--note", "remark", help="Replace the note; an empty one removes it.")
@_domain_option
@_timeout_option
@broker_options
def resume(job_id: str, remark: str | None, domain: str, timeout_s: float, cluster: Cluster) -> None:
    """Go on with a paused job, at its next time after now."""
    patch: dict[str, object] = {"paused": None, **({} if remark is None else {"note": remark or None})}
    _change(job_id, patch, domain=domain, timeout_s=timeout_s, cluster=cluster)
    click.echo(f"{job_id} is active")


@jobs.command()
@click.argument("job_id")
@click.option("--payload", help="JSON used in this run instead of the job's own.")
@click.option("--reason", help="Why, for the audit.")
@_domain_option
@_timeout_option
@json_option
@broker_options
def trigger(cluster: Cluster, job_id: str, **given: Any) -> None:
    """Run a job now, besides its schedule."""
    from noontide.apps.cli.asking import Request, ask
    from noontide.core.ids import manual_run_id

    body: dict[str, object] = {} if given["reason"] is None else {"reason": given["reason"]}
    if given["payload"] is not None:
        body["payload"] = orjson.Fragment(_json_text(given["payload"], option="--payload"))
    request = Request(_checked_id(job_id), orjson.dumps(body), kind="trigger")
    answers = ask(cluster.connection(), cluster.layout(), request, domain=given["domain"], timeout_s=given["timeout_s"])
    source = "" if given["domain"] == "api" else given["domain"]
    run_id = manual_run_id(job_id, answers.origins[0].offset, source)
    if given["as_json"]:
        show_json({"run_id": run_id})
    else:
        click.echo(f"triggered as {run_id}")


CHANGE_ATTEMPTS = 3


def _change(job_id: str, patch: dict[str, object], *, domain: str, timeout_s: float, cluster: Cluster) -> None:
    """Merge a patch into a job; when somebody else changes it in between, read it again."""
    from noontide.apps.cli.asking import Request, ask_all, sentence
    from noontide.core.patch import merge_patch

    reader = _reader(cluster)
    for attempt in range(1, CHANGE_ATTEMPTS + 1):
        stored = _existing(reader, job_id)
        request = Request(job_id, merge_patch(stored.document, patch), if_match=stored.etag)
        answers = ask_all(reader.connection, reader.layout, [request], domain=domain, timeout_s=timeout_s)
        if not answers.refused:
            return
        reason = sentence(answers.refused[0].problems)
        if "if-match" not in reason or attempt == CHANGE_ATTEMPTS:
            raise Fault(f"{job_id}: {reason}")


def _reader(cluster: Cluster) -> Reader:
    from noontide.apps.cli.reading import Reader

    return Reader(connection=cluster.connection(), layout=cluster.layout())


def _existing(reader: Reader, job_id: str) -> StoredJob:
    stored = reader.job(_checked_id(job_id))
    if stored is None:
        raise Fault(f"there is no job {job_id!r}")
    return stored


def _checked_id(job_id: str) -> str:
    from noontide.core.ids import JOB_ID_FORM, is_job_id

    if not is_job_id(job_id):
        raise click.UsageError(f"{job_id!r} is not a job id: {JOB_ID_FORM}")
    return job_id


def _matching(tenant: str | None, state: str | None, labels: tuple[str, ...]) -> Callable[[StoredJob], bool]:
    from noontide.apps.cli.job_views import state_of

    wanted = [label.partition("=") for label in labels]

    def matches(stored: StoredJob) -> bool:
        fields = stored.fields()
        has = fields.get("labels")
        own = has if isinstance(has, dict) else {}
        return (
            (tenant is None or fields.get("tenant") == tenant)
            and (state is None or state_of(stored) == state)
            and all(name in own and (not equals or own[name] == value) for name, equals, value in wanted)
        )

    return matches


def _put_options(given: dict[str, Any]) -> Options:
    from noontide.apps.cli.put import Options

    names = ("domain", "wait", "timeout_s", "as_json")
    return replace(Options(), **{name: given.pop(name) for name in names})


def document_of(given: dict[str, Any]) -> bytes:
    """The definition that the options of `add` make."""
    target: object = given["target"]
    if (given["topic"] is None) == (target is None):
        raise click.UsageError("give one of --topic and --target")
    if given["topic"] is not None:
        target = {"topic": {"name": given["topic"], **({} if given["key"] is None else {"key": given["key"]})}}
    elif given["key"] is not None:
        raise click.UsageError("--key belongs to --topic")
    fields = {"id": given["job_id"], "tenant": given["tenant"], **_schedule(given), "timezone": given["timezone"]}
    fields["target"] = target
    if given["payload"] is not None:
        fields["payload"] = orjson.Fragment(_json_text(given["payload"], option="--payload"))
    return orjson.dumps({name: value for name, value in fields.items() if value is not None})


def _schedule(given: dict[str, Any]) -> dict[str, object]:
    from noontide.adapters.system_clock import wall_now_ms
    from noontide.apps.cli.spans import iso_span, parse_span_ms
    from noontide.core.instants import format_instant

    ways = [name for name in ("every", "cron", "at", "delay") if given[name] is not None]
    if len(ways) != 1:
        raise click.UsageError("give one of --every, --cron, --at and --in")
    try:
        match ways[0]:
            case "every":
                return {"schedule": {"every": iso_span(given["every"], pointer="--every")}}
            case "cron":
                return {"schedule": {"cron": given["cron"]}}
            case "at":
                return {"schedule": {"at": given["at"]}}
            case _:
                at_ms = wall_now_ms() + parse_span_ms(given["delay"], pointer="--in")
                return {"schedule": {"at": format_instant(at_ms)}}
    except InvalidDefinition as refused:
        raise click.UsageError(str(refused)) from refused


def _json_text(text: str, *, option: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise click.UsageError(f"{option} is not JSON: {error}") from error
    return data
