"""`noontide config` over the HTTP API: targets, tenants, calendars, lanes and channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from noontide.apps.cli.config import text_of
from noontide.apps.cli.faults import Fault
from noontide.apps.cli.tables import show_json, show_table

if TYPE_CHECKING:
    from noontide.client import Client

NOUNS = ("targets", "tenants", "calendars", "lanes", "channels")


def put(client: Client, key: str, value: str) -> None:
    """`config put`."""
    noun, name = _parted(key)
    client.configure(noun, name, orjson.loads(text_of(value)))
    click.echo(f"{key} is set")


def get(client: Client, key: str) -> None:
    """`config get`."""
    noun, name = _parted(key)
    found = client.configured(noun).get(name)
    if found is None:
        raise Fault(f"there is no {key!r}")
    click.echo(orjson.dumps(found).decode())


def list_command(client: Client, kind: str | None, *, as_json: bool) -> None:
    """`config list`."""
    nouns = NOUNS if kind is None else (_noun(kind),)
    found = {f"{noun[:-1]}/{name}": value for noun in nouns for name, value in client.configured(noun).items()}
    if as_json:
        for key, value in found.items():
            show_json({"key": key, "value": value})
        return
    rows = ((key, orjson.dumps(value).decode()) for key, value in found.items())
    show_table(("key", "value"), rows, empty="nothing is configured")


def delete(client: Client, key: str) -> None:
    """`config delete`."""
    client.unconfigure(*_parted(key))
    click.echo(f"{key} is deleted")


def _parted(key: str) -> tuple[str, str]:
    kind, _, name = key.partition("/")
    return _noun(kind), name


def _noun(kind: str) -> str:
    if f"{kind}s" not in NOUNS:
        known = ", ".join(noun[:-1] for noun in NOUNS)
        raise click.UsageError(f"over the API there are {known}; {kind!r} needs Kafka: leave --server out")
    return f"{kind}s"
