"""`noontide topics`: compare the topic files to a cluster, create and change, describe, write the reference."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noontide.apps.cli.common import BROKER_OPTIONS, security_of
from noontide.core.errors import InvalidDefinition
from noontide.records.topic_file import TopicError, TopicFile
from noontide.records.topics import DEFAULT_DOMAINS, DEFAULT_LANES, Catalogue, Layout, load_catalogue

if TYPE_CHECKING:
    from noontide.adapters.kafka.connection import KafkaConnection
    from noontide.adapters.kafka.topic_plan import Plan

NOTHING_TO_DO, FAILED, PENDING = 0, 1, 2

_Command = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """What the shared options say; partitions and slots None = as `config/meta` says, or the defaults."""

    bootstrap: str
    security: dict[str, str]
    prefix: str
    partitions: int | None
    slots: int | None
    runs_per_slot: int
    domains: tuple[str, ...]
    lanes: tuple[str, ...]
    replication: int | None


@click.group()
def topics() -> None:
    """Noontide's topics: compare, create, describe.

    Every topic is described in a file of topics/: purpose, key, settings with their reasons, schema, examples.
    """


_CLUSTER_OPTIONS = (
    *BROKER_OPTIONS,
    click.option(
        "--partitions", type=click.IntRange(1),
        help="Partitions of jobs and requests; fixed at creation.  [default: as config/meta says, or 64]",
    ),
    click.option(
        "--slots", type=click.IntRange(1),
        help="Slots: as many processes can share the work.  [default: as config/meta says, or 8]",
    ),
    click.option(
        "--runs-per-slot", type=click.IntRange(1), default=1, show_default=True,
        help="Partitions of each lane's runs per slot.",
    ),
    click.option(
        "--domains", default="", metavar="A,B",
        help=f"Request domains besides {', '.join(DEFAULT_DOMAINS)}, comma-separated.",
    ),
    click.option(
        "--lanes", default="", metavar="A,B", help=f"Lanes besides {', '.join(DEFAULT_LANES)}, comma-separated."
    ),
    click.option(
        "--replication-factor", "replication", type=int, help="Replicas of new topics.  [default: min(3, brokers)]"
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables."),
)  # fmt: skip


def _cluster_options(command: _Command) -> _Command:
    return reduce(lambda inner, option: option(inner), reversed(_CLUSTER_OPTIONS), command)


@topics.command()
@_cluster_options
def plan(as_json: bool, **options: Any) -> None:  # noqa: FBT001
    """Show what apply would do. Exit code 0: nothing; 2: changes are pending; 1: an error."""
    sys.exit(_guarded(lambda: _plan(_cluster(options), as_json=as_json)))


@topics.command()
@_cluster_options
def apply(as_json: bool, **options: Any) -> None:  # noqa: FBT001
    """Create missing topics, change settings that differ, write config/meta once. Exit code 0: done; 1: an error.

    Partition counts are never changed and topics never deleted.
    """
    sys.exit(_guarded(lambda: _apply(_cluster(options), as_json=as_json)))


@topics.command("acls")
@click.option("--prefix", envvar="NOONTIDE_PREFIX", default="noontide.", show_default=True, help="Before every topic.")
@click.option("--domains", default="", metavar="A,B", help="Request domains besides public, comma-separated.")
@click.option("--lanes", default="", metavar="A,B", help="Lanes besides the usual ones, comma-separated.")
@click.option("--principal", default="User:noontide-{role}", show_default=True, help="How principals are named.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line instead of commands.")
def show_acls(prefix: str, domains: str, lanes: str, principal: str, as_json: bool) -> None:  # noqa: FBT001
    """List what each role may do: arguments for kafka-acls.sh, one line each. Changes nothing."""
    from dataclasses import asdict

    from noontide.apps.acls import acls, commands

    def names(text: str) -> list[str]:
        return [name for name in text.replace(" ", "").split(",") if name]

    found = acls(Layout(prefix=prefix), domains=["public", *names(domains)], lanes=[*DEFAULT_LANES, *names(lanes)])
    for line in (json.dumps(asdict(acl)) for acl in found) if as_json else commands(found, principal=principal):
        click.echo(line)


@topics.command()
@click.argument("topic", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the schema and everything else.")
def describe(topic: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Show all topics, or TOPIC in full: purpose, key, writers, readers, settings with reasons, schema."""
    sys.exit(_guarded(lambda: _describe(topic, as_json=as_json)))


@topics.command()
@click.option("--write", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
@click.option("--check", is_flag=True, help="Only say whether the file of --write is current; exit code 1 if not.")
def docs(path: Path | None, check: bool) -> None:  # noqa: FBT001
    """Write the reference of topics, as Markdown."""
    from noontide.apps.docs_topics import topics_page

    page = topics_page(load_catalogue())
    if path is None:
        if check:
            raise click.UsageError("--check needs --write, the file to compare")
        click.echo(page, nl=False)
    elif not check:
        path.write_text(page, "utf-8")
    elif not path.exists() or path.read_text("utf-8") != page:
        raise click.ClickException(f"{path} is not current: noontide topics docs --write {path}")


def _cluster(options: dict[str, Any]) -> _Cluster:
    extra = {name: tuple(filter(None, options.pop(name).replace(" ", "").split(","))) for name in ("domains", "lanes")}
    return _Cluster(
        security=security_of(options.pop("kafka_config")),
        domains=(*DEFAULT_DOMAINS, *extra["domains"]),
        lanes=(*DEFAULT_LANES, *extra["lanes"]),
        **options,
    )


def _guarded(command: Callable[[], int]) -> int:
    """Run a command; what people can put right is one line on standard error and exit code 1."""
    from noontide.adapters.kafka.topic_plan import LayoutMismatch
    from noontide.adapters.kafka.topics import ClusterError

    try:
        return command()
    except (ClusterError, InvalidDefinition, LayoutMismatch, TopicError) as error:
        click.echo(f"Error: {error}", err=True)
        return FAILED


def _plan(cluster: _Cluster, *, as_json: bool) -> int:
    from noontide.apps.cli import topics_output

    found_plan, _layout = _planned(cluster)
    topics_output.show_plan(found_plan, as_json=as_json)
    if found_plan.problems:
        return FAILED
    return PENDING if found_plan.pending else NOTHING_TO_DO


def _apply(cluster: _Cluster, *, as_json: bool) -> int:
    from noontide.adapters.kafka.topics import apply_plan
    from noontide.apps.cli import topics_output

    found_plan, layout = _planned(cluster)
    if not found_plan.problems:
        apply_plan(_connection(cluster), layout, plan=found_plan)
    topics_output.show_plan(found_plan, as_json=as_json, applied=not found_plan.problems)
    return FAILED if found_plan.problems else NOTHING_TO_DO


def _planned(cluster: _Cluster) -> tuple[Plan, Layout]:
    from noontide.adapters.kafka.topics import plan_topics

    layout = _layout(cluster)
    found_plan = plan_topics(
        _connection(cluster), layout, domains=cluster.domains, lanes=cluster.lanes, replication=cluster.replication
    )
    return found_plan, layout


def _layout(cluster: _Cluster) -> Layout:
    """What the options say, then what the cluster has, then the defaults."""
    from noontide.adapters.kafka.topics import read_meta

    partitions, slots = cluster.partitions, cluster.slots
    if partitions is None or slots is None:
        known = read_meta(_connection(cluster), Layout(prefix=cluster.prefix)) or Layout()
        partitions, slots = partitions or known.partitions, slots or known.slots
    return Layout(
        prefix=cluster.prefix,
        partitions=partitions,
        slots=slots,
        runs_per_slot=cluster.runs_per_slot,
    )


def _connection(cluster: _Cluster) -> KafkaConnection:
    from noontide.adapters.kafka.connection import KafkaConnection

    return KafkaConnection(cluster.bootstrap, security=cluster.security)


def _describe(topic: str | None, *, as_json: bool) -> int:
    from noontide.apps.cli import topics_output

    catalogue = load_catalogue()
    chosen = catalogue if topic is None else Catalogue(files={topic: _named(catalogue, topic)})
    if as_json:
        click.echo(json.dumps([topics_output.as_document(file) for file in chosen], indent=2))
    elif topic is None:
        topics_output.show_topics(catalogue)
    else:
        topics_output.show_topic(_named(catalogue, topic))
    return NOTHING_TO_DO


def _named(catalogue: Catalogue, topic: str) -> TopicFile:
    """A topic by its short name, its template, or a full name of it with the default prefix."""
    by_template = {file.template: file for file in catalogue}
    return by_template.get(topic) or catalogue.match(topic.removeprefix(Layout().prefix)) or catalogue[topic]
