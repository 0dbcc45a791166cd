"""`noontide worker`: one worker process."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noontide.apps.cli.common import USAGE, Cluster, Fault, broker_options
from noontide.apps.cli.log_options import log_level_option, log_to_stderr
from noontide.apps.cli.metrics_options import metrics_options
from noontide.apps.cli.spans import parse_span_ms
from noontide.apps.event_loop import run_on_loop
from noontide.core.errors import InvalidDefinition

if TYPE_CHECKING:
    from noontide.apps.worker_http import HttpOptions
    from noontide.apps.worker_wiring import WorkerOptions
    from noontide.worker.app import App

WORKER_LANES = ("express", "default")
"""Lanes of a worker that names none: where runs go by themselves."""


@click.command()
@click.argument("module", metavar="MODULE[:APP]")
@broker_options
@click.option("--lane", "lanes", multiple=True, default=WORKER_LANES, show_default=True, help="A lane to take runs of.")
@click.option("--group", default="workers", show_default=True, help="Workers of one group share the runs.")
@click.option("--concurrency", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Runs at once.")
@click.option("--prefetch", type=click.IntRange(0), help="Invitations held beyond that.  [default: concurrency]")
@click.option(
    "--ahead",
    type=click.IntRange(0),
    default=12_000,
    show_default=True,
    help="Most runs claimed ahead of free places while attempts are short.",
)
@click.option("--drain", default="30s", show_default=True, help="Time to finish what runs after SIGTERM.")
@click.option(
    "--group-protocol",
    type=click.Choice(["auto", "share", "classic"]),
    default="auto",
    show_default=True,
    help="How Kafka shares the runs out: auto takes a share group where there are some.",
)
@click.option("--http/--no-http", default=True, show_default=True, help="Carry out HTTP targets too.")
@click.option("--allow-loopback", is_flag=True, help="HTTP targets may be on this machine.")
@click.option("--allow-private", is_flag=True, help="HTTP targets may be in private networks.")
@click.option(
    "--allow-host", "allow_hosts", multiple=True, help="This host of HTTP targets is not checked; repeatable."
)
@click.option("--secrets", type=click.Path(file_okay=False, path_type=Path), help="Folder with a file per secret.")
@click.option(
    "--ca-file", type=click.Path(dir_okay=False, path_type=Path), help="Certificates trusted besides the usual."
)
@click.option("--callback-url", help="Where targets reach the completion endpoint, as they see it.")
@click.option("--callback-port", type=click.IntRange(1, 65_535), help="Serve the completion endpoint on this port.")
@log_level_option
@metrics_options
def worker(cluster: Cluster, module: str, log_level: str, **options: object) -> None:
    """Run a worker process: the handlers of APP (a noontide.worker.App, by default named "app") in MODULE.

    SIGTERM or Ctrl-C takes no more runs, finishes what runs or hands it back, and ends. kill -9 loses nothing: the
    leases end, and the runs start again elsewhere.
    """
    log_to_stderr(log_level)
    app = load_app(module)
    run_on_loop(_run_until_signal(app, cluster, options))


def load_app(name: str) -> App:
    """The App that MODULE[:APP] names; modules of the current folder are found. Raises Fault when there is none."""
    from noontide.worker.app import App

    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise Fault(f"no module {module_name!r} here or among the installed ones", exit_code=USAGE) from error
    except InvalidDefinition as error:
        raise Fault(f"{module_name}: {error}") from error
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise Fault(f"{module_name} has no noontide.worker.App named {attribute or 'app'!r}", exit_code=USAGE)
    return found


async def _run_until_signal(app: App, cluster: Cluster, options: dict[str, object]) -> None:
    from noontide.adapters.kafka.share_group import NoShareGroups
    from noontide.apps.worker_wiring import run_worker

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    try:
        await run_worker(app, _options(cluster, **options), stop)  # type: ignore[arg-type] # from click, by name
    except NoShareGroups as error:
        raise Fault(
            f"no share groups at {cluster.bootstrap}: {error}; --group-protocol classic does without"
        ) from error


def _options(
    cluster: Cluster, *, lanes: tuple[str, ...], concurrency: int, prefetch: int | None, **rest: object
) -> WorkerOptions:
    from noontide.apps.worker_wiring import GroupProtocol, WorkerOptions
    from noontide.worker.holding import DeskSettings
    from noontide.worker.runtime import WorkerSettings

    prefetch = concurrency if prefetch is None else prefetch
    desk = DeskSettings(concurrency=concurrency, prefetch=prefetch, ahead_max=int(str(rest["ahead"])))
    drain_ms = parse_span_ms(str(rest["drain"]), pointer="/drain")
    return WorkerOptions(
        connection=cluster.connection(),
        layout=cluster.layout(),
        lanes=tuple(dict.fromkeys(lanes)),
        group=str(rest["group"]),
        protocol=GroupProtocol(str(rest["group_protocol"])),
        settings=WorkerSettings(desk=desk, drain_ms=drain_ms),
        http=_http_options(rest) if rest["http"] else None,
        metrics=rest["metrics"],  # type: ignore[arg-type] # from click
    )


def _http_options(given: dict[str, object]) -> HttpOptions:
    from noontide.adapters.http.settings import HttpSettings
    from noontide.apps.worker_http import HttpOptions

    settings = HttpSettings(
        allow_loopback=bool(given["allow_loopback"]),
        allow_private=bool(given["allow_private"]),
        allow_hosts=frozenset(given["allow_hosts"]),  # type: ignore[call-overload] # strings, from click
        ca_file=given["ca_file"],  # type: ignore[arg-type]
        callback_url=given["callback_url"],  # type: ignore[arg-type]
    )
    secrets, port = given["secrets"], given["callback_port"]
    return HttpOptions(settings=settings, secrets=secrets, callback_port=port)  # type: ignore[arg-type]
