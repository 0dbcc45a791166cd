"""`noontide config`: tenants, domains, calendars, targets, lanes, channels and secrets, as every process keeps them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from noontide.apps.cli.common import Cluster, Fault, broker_options, json_option
from noontide.apps.cli.tables import note, show_json, show_table
from noontide.core.errors import InvalidDefinition
from noontide.records.config import KINDS, check_new_config

if TYPE_CHECKING:
    from noontide.apps.cli.configuring import Configuration
    from noontide.apps.cli.reading import Reader

_WRITABLE = [kind for kind in KINDS if kind != "token"]
KEY_HELP = "KEY is " + ", ".join(f"{kind}/NAME" for kind in _WRITABLE[:-1]) + f" or {_WRITABLE[-1]}/NAME."
REPLICATION_MIN = 3
MIN_ISR_MIN = 2


@click.group(help=f"Put, get, list and delete what operators decide. {KEY_HELP}")
def config() -> None:
    """Configuration; the help text is in the decorator, because it lists the kinds."""


@config.command()
@click.argument("key")
@click.argument("value")
@broker_options
def put(key: str, value: str, cluster: Cluster) -> None:
    """Set KEY to VALUE: JSON, the name of a file (JSON or YAML), or - for standard input."""
    text = text_of(value)
    try:
        document = check_new_config(_named(key), text)
    except InvalidDefinition as refused:
        raise Fault(f"{key}: {refused}") from refused
    configuration = _configuration(cluster)
    if key.startswith("target/") and document.get("topic") is not None:
        _check_target(configuration.reader, str(document["topic"]))
    configuration.put(key, orjson.dumps(document))
    click.echo(f"{key} is set")


@config.command()
@click.argument("key")
@broker_options
def get(key: str, cluster: Cluster) -> None:
    """Show the value of KEY, as JSON."""
    found = _configuration(cluster).reader.config().get(key)
    if found is None:
        raise Fault(f"there is no {key!r}")
    click.echo(_shown(key, found))


@config.command("list")
@click.argument("kind", required=False)
@json_option
@broker_options
def list_command(kind: str | None, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """List all keys, or those of one KIND."""
    from noontide.apps.cli.reading import readable_config

    if kind is not None and kind not in KINDS:
        raise click.UsageError(f"{kind!r} is not one of {', '.join(KINDS)}")
    found = _configuration(cluster).reader.config()
    chosen = {key: value for key, value in found.items() if kind is None or key.startswith(f"{kind}/")}
    if as_json:
        for key, value in chosen.items():
            show_json({"key": key, "value": readable_config(key, value)})
        return
    rows = ((key, _shown(key, value)) for key, value in chosen.items())
    show_table(("key", "value"), rows, empty="nothing is configured")


@config.command()
@click.argument("key")
@broker_options
def delete(key: str, cluster: Cluster) -> None:
    """Remove KEY."""
    configuration = _configuration(cluster)
    if _named(key) not in configuration.reader.config():
        raise Fault(f"there is no {key!r}")
    configuration.delete(key)
    click.echo(f"{key} is deleted")


def _named(key: str) -> str:
    """The key, unless it is one that another command writes."""
    if key == "meta":
        raise Fault("meta is the layout: it is written once, by `noontide topics apply`")
    if key.startswith("token/"):
        raise Fault("tokens are made and taken back by `noontide tokens`")
    return key


def _shown(key: str, value: bytes) -> str:
    """What was written, byte for byte; of a token what is no hash."""
    from noontide.apps.cli.reading import readable_config

    shown = orjson.dumps(readable_config(key, value)) if key.startswith("token/") else value
    return shown.decode("utf-8", "replace")


def text_of(value: str) -> bytes:
    """JSON text of a VALUE argument."""
    if value.lstrip().startswith("{"):
        return value.encode("utf-8", "surrogateescape")
    if value == "-":
        data, name = sys.stdin.buffer.read(), "stdin"
    else:
        try:
            data, name = Path(value).read_bytes(), value
        except OSError as error:
            raise Fault(f"{value}: {error.strerror}; VALUE is JSON, the name of a file, or -") from error
    from noontide.apps.cli.definitions import split

    sources = list(split(data, name=name))
    if len(sources) != 1:
        raise Fault(f"{name}: must hold one object, not {len(sources)}")
    return sources[0].text


def _check_target(reader: Reader, topic: str) -> None:
    """A registered topic must exist; one that may lose records is said so."""
    from noontide.adapters.kafka.foreign_topics import strength_of

    if topic.startswith((reader.layout.prefix, "__")):
        raise Fault(f"/topic: {topic!r} is one of Noontide's or Kafka's own topics")
    strength = strength_of(reader.connection, topic)
    if strength is None:
        raise Fault(f"/topic: the topic {topic!r} does not exist; create it first")
    if strength.replication < REPLICATION_MIN:
        replicas = f"{strength.replication} replica{'s' if strength.replication > 1 else ''}"
        note(f"warning: {topic} has {replicas}: a broker that is lost takes its records along, or stops its runs")
    elif strength.min_insync_replicas < MIN_ISR_MIN:
        note(f"warning: {topic} has min.insync.replicas {strength.min_insync_replicas}: a lost broker can lose records")


def _configuration(cluster: Cluster) -> Configuration:
    from noontide.apps.cli.configuring import Configuration

    return Configuration.of(cluster)
