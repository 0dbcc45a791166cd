"""Commands over the HTTP API instead of Kafka: chosen by --server, or NOONTIDE_SERVER, where a command can do both.

A command that can is listed in `WAYS` with the function that carries it out; it takes the same options and a client.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from noontide.apps.cli.faults import NO_ANSWER, Fault
from noontide.core.errors import InvalidDefinition

if TYPE_CHECKING:
    from noontide.client import Client

TOKEN_VARIABLE: Final = "NOONTIDE_TOKEN"
SERVER_VARIABLE: Final = "NOONTIDE_SERVER"
_PACKAGE: Final = "noontide.apps.cli"
WAYS: Final = {
    **{
        f"{_PACKAGE}.jobs.{name}": f"{_PACKAGE}.remote_jobs:{name}"
        for name in ("put_command", "add", "get", "list_command", "delete", "pause", "resume", "trigger")
    },
    f"{_PACKAGE}.backfill.backfill": f"{_PACKAGE}.backfill:backfill_over_api",
    **{f"{_PACKAGE}.graph.{name}": f"{_PACKAGE}.graph:{name}_over_api" for name in ("graph", "rerun")},
    **{
        f"{_PACKAGE}.calendars.{name}": f"{_PACKAGE}.calendars:{way}_over_api"
        for name, way in (("diff", "diff"), ("put", "put"), ("list_command", "list"), ("show", "show"))
    },
    f"{_PACKAGE}.workers.workers": f"{_PACKAGE}.remote_cluster:workers",
    f"{_PACKAGE}.partitions.partitions": f"{_PACKAGE}.remote_cluster:partitions",
    f"{_PACKAGE}.tenants.share": f"{_PACKAGE}.remote_cluster:share",
    f"{_PACKAGE}.forecast.forecast": f"{_PACKAGE}.forecast:forecast_over_api",
    **{f"{_PACKAGE}.runs.{name}": f"{_PACKAGE}.remote_runs:{name}" for name in ("list_command", "watch")},
    f"{_PACKAGE}.runs_story.show": f"{_PACKAGE}.remote_runs:show",
    **{f"{_PACKAGE}.runs_changes.{name}": f"{_PACKAGE}.remote_runs:{name}" for name in ("cancel", "retry", "redrive")},
    **{
        f"{_PACKAGE}.config.{name}": f"{_PACKAGE}.remote_config:{name}"
        for name in ("put", "get", "list_command", "delete")
    },
}

server_option = click.option(
    "--server", envvar=SERVER_VARIABLE, show_envvar=True, metavar="URL",
    help=f"Ask this API instead of Kafka, with the token in {TOKEN_VARIABLE}.",
)  # fmt: skip


hidden_server_option = click.option("--server", hidden=True)
"""Of a command that needs Kafka, so that it can say so."""
PROCESSES: Final = frozenset({"scheduler", "worker", "api", "agents", "dev", "demo"})
"""Commands that may well find the address of an API in their environment."""


def refuse_server(command: str, server: str | None, bootstrap: str) -> None:
    """A command that needs Kafka: no address of an API is of use to it. Raises click.UsageError for `--server`."""
    if server is not None:
        raise click.UsageError("this command needs Kafka: leave --server out")
    if os.environ.get(SERVER_VARIABLE) and command not in PROCESSES:
        click.echo(f"{SERVER_VARIABLE} means nothing to this command, which asks Kafka at {bootstrap}", err=True)


def way_of(command: Callable[..., Any]) -> Callable[..., Any] | None:
    """What carries a command out over the API; None when it needs Kafka."""
    place = WAYS.get(f"{command.__module__}.{command.__name__}")
    if place is None:
        return None

    def run(server: str, **options: Any) -> Any:
        module, _, name = place.partition(":")
        options.pop("domain", None)  # the API has its own
        with _client(server) as client:
            return getattr(importlib.import_module(module), name)(client, **options)

    return run


@contextmanager
def _client(server: str) -> Iterator[Client]:
    """A client; what it raises becomes one line."""
    from noontide.client import ApiError, Client, NoAnswer, NotDecided, Unauthorised

    try:
        with Client(server, token=os.environ.get(TOKEN_VARIABLE)) as client:
            yield client
    except Unauthorised as refused:
        raise Fault(f"{server}: {refused} (the token is taken from {TOKEN_VARIABLE})") from refused
    except ApiError as refused:
        named = (f"{each.pointer}: {each.message}" if each.pointer else each.message for each in refused.problems)
        raise Fault("; ".join(named) or str(refused)) from refused
    except (NoAnswer, NotDecided) as error:
        raise Fault(f"{server}: {error}", exit_code=NO_ANSWER) from error
    except InvalidDefinition as error:  # of an option, before anything was asked
        raise Fault("; ".join(map(str, error.problems))) from error
