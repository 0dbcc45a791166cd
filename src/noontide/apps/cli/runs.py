"""`noontide runs`: watch and list; show, cancel, retry and redrive are in modules of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
import orjson

from noontide.apps.cli.common import Cluster, Fault, broker_options, json_option
from noontide.apps.cli.graph import rerun
from noontide.apps.cli.runs_changes import cancel, redrive, retry
from noontide.apps.cli.runs_story import show, since_ms
from noontide.apps.cli.spans import parse_since_ms, words
from noontide.apps.cli.tables import show_json, show_table, utc

if TYPE_CHECKING:
    from noontide.apps.cli.reading import Reader
    from noontide.core.run import Run

HEADS = ("ended", "due", "starts", "late", "state", "job", "target", "reason")
LIVE_HEADS = ("due", "starts", "state", "for", "attempt", "worker", "run", "target", "why it waits")
POLL_S = 0.2


@click.group()
def runs() -> None:
    """Watch, list and show runs; cancel them, or start them again."""


@runs.command()
@click.option("--job", "job_id", help="Of this job only.")
@click.option("--since", help="Begin there: RFC 3339, or how long ago, such as 10m.  [default: from now on]")
@click.option("--count", type=click.IntRange(1), help="End after so many.")
@json_option
@broker_options
def watch(job_id: str | None, since: str | None, count: int | None, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Follow runs and decisions as they are recorded, one a line; Ctrl-C ends it."""
    try:
        for number, execution in enumerate(_followed(cluster, job_id, since), start=1):
            if as_json:
                show_json(execution)
            else:
                click.echo(line_of(execution))
            if number == count:
                return
    except KeyboardInterrupt:
        return


@runs.command("list")
@click.option("--job", "job_id", help="Of this job only.")
@click.option("--live", is_flag=True, help="Those that are not finished, with the reason why they wait.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many, the newest.")
@json_option
@broker_options
def list_command(job_id: str | None, live: bool, limit: int, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - options of click
    """List the latest finished runs and decisions, or the live ones."""
    reader = _reader(cluster)
    slots = _slots(reader, job_id)
    if live:
        found = [run for run in reader.leases(slots) if job_id is None or run.job_id == job_id]
        _show_live(found[-limit:], as_json=as_json)
        return
    executions = reader.last_executions(_history(reader, job_id), limit=limit, job_id=job_id)
    if as_json:
        for execution in executions:
            show_json(execution)
    else:
        show_table(HEADS, map(_row, executions), empty="no runs")


for _command in (show, cancel, retry, redrive, rerun):
    runs.add_command(_command)


def _followed(cluster: Cluster, job_id: str | None, since: str | None) -> Iterator[dict[str, object]]:
    from noontide.adapters.kafka.replay import KafkaReplay
    from noontide.adapters.kafka.tail import Tail, offsets_since
    from noontide.adapters.system_clock import wall_now_ms
    from noontide.ports.record_log import TopicPartition

    reader = _reader(cluster)
    name = reader.layout.name("executions")
    partitions = [TopicPartition(name, each) for each in _history(reader, job_id)]
    if since is None:
        positions = KafkaReplay(reader.connection).end_offsets(partitions)
    else:
        since_ms = parse_since_ms(since, now_ms=wall_now_ms(), pointer="--since")
        positions = offsets_since(reader.connection, partitions, since_ms=since_ms)
    with Tail(reader.connection, positions) as tail:
        while True:
            for record in sorted(tail.poll(POLL_S), key=lambda record: (record.appended_ms, record.offset)):
                execution = orjson.loads(record.value or b"{}")
                if job_id is None or execution.get("job_id") == job_id:
                    yield execution


def line_of(execution: dict[str, object]) -> str:
    """One run or decision in one line."""
    ended, due, starts, late, state, job, target, reason = _row(execution)
    parts = [ended, f"due {due}", f"starts {starts}" if starts else "", f"late {late}" if late else ""]
    return "  ".join(filter(None, (*parts, state, job, target, reason)))


def _row(execution: dict[str, object]) -> tuple[str, ...]:
    late = execution.get("late_ms")
    count = f" x {execution['count']}" if "count" in execution else ""
    return (
        _text(execution, "ended_at"),
        _text(execution, "due"),
        _text(execution, "start_after"),
        words(late) if isinstance(late, int) else "",
        _text(execution, "state") + count,
        _text(execution, "job_id"),
        _text(execution, "target"),
        _text(execution, "reason"),
    )


def _text(execution: dict[str, object], field: str) -> str:
    return str(execution.get(field, "")).replace(".000Z", "Z")


def _show_live(found: Iterable[Run], *, as_json: bool) -> None:
    from noontide.adapters.system_clock import wall_now_ms

    if as_json:
        for run in found:
            show_json({name: value for name, value in run._asdict().items() if value is not None})
        return
    now_ms = wall_now_ms()
    rows = (
        (
            utc(run.due_ms),
            utc(run.start_ms) if run.start_ms != run.due_ms else "on time",
            str(run.state),
            words(max(now_ms - since_ms(run), 0)),
            str(run.attempt) if run.attempt else "",
            run.worker or "",
            run.run_id,
            run.target,
            f"asked to stop: {run.cancel}" if run.cancel else run.reason or "",
        )
        for run in found
    )
    show_table(LIVE_HEADS, rows, empty="no live runs")


def _slots(reader: Reader, job_id: str | None) -> range | list[int]:
    """The slots whose records are needed: all, or that of the job."""
    from noontide.core.ids import is_job_id

    layout = reader.layout
    if job_id is None:
        return range(layout.slots)
    if not is_job_id(job_id):
        raise Fault(f"{job_id!r} is not a job id")
    return [layout.slot_of(layout.partition_of(job_id))]


def _history(reader: Reader, job_id: str | None) -> range | list[int]:
    """The partitions of `executions` that are needed: all, or those where the job's lines may be."""
    from noontide.records.moving import history_partitions

    layout = reader.layout
    if job_id is None:
        return range(layout.topic_partitions("executions"))
    _slots(reader, job_id)
    return history_partitions(layout, layout.partition_of(job_id))


def _reader(cluster: Cluster) -> Reader:
    from noontide.apps.cli.reading import Reader

    return Reader(connection=cluster.connection(), layout=cluster.layout())
