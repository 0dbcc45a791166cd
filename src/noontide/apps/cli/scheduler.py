"""`noontide scheduler`: one scheduler process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noontide.apps.cli.common import SECRET_VARIABLE, Cluster, broker_options, security_variables, shared_secret
from noontide.apps.cli.log_options import log_level_option, log_to_stderr
from noontide.apps.cli.metrics_options import metrics_options
from noontide.apps.event_loop import run_on_loop

if TYPE_CHECKING:
    from noontide.apps.metrics.serving import MetricsOptions
    from noontide.apps.port.server import PortOptions

log = logging.getLogger("noontide.scheduler")

DEFAULT_DATA = Path(".noontide") / "scheduler"


setting_option = click.option(
    "--setting", "assignments", multiple=True, metavar="NAME=VALUE", help="Change a limit; docs/reference/settings.md."
)


@click.command()
@broker_options
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    envvar="NOONTIDE_DATA",
    show_envvar=True,
    help="Folder of the local indexes: a cache, rebuilt from the log when it is missing.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Scheduler processes on this machine: one uses one core. More than there are slots stand by only.",
)
@log_level_option
@setting_option
@click.option("--internal-host", default="0.0.0.0", show_default=True, help="Address of the port for API nodes.")
@click.option("--internal-port", default=0, show_default=True, help="That port; 0 takes any.")
@click.option("--internal-url", help="How API nodes reach it; by the name of this host when absent.")
@metrics_options
@click.option("--parent-fd", type=int, hidden=True)
def scheduler(
    cluster: Cluster,
    data: Path,
    assignments: tuple[str, ...],
    metrics: MetricsOptions | None,
    **options: Any,
) -> None:
    """Run a scheduler process: it takes its share of the slots, and all of them when it is alone.

    SIGTERM or Ctrl-C hands over cleanly, slot by slot. kill -9 loses nothing: another process, or the next start, goes
    on. With --processes a parent starts as many, each with a folder of its own, and passes signals on.
    """
    processes, parent_fd, log_level = options["processes"], options["parent_fd"], options["log_level"]
    log_to_stderr(log_level, with_process=processes > 1 or parent_fd is not None)
    if processes > 1:
        commands = [_command(cluster, data / f"process-{each}", log_level, assignments) for each in range(processes)]
        for number, command in enumerate(commands):
            command += _port_arguments(options, number)
            if metrics is not None:
                port = metrics.port and metrics.port + number  # each its own; 0 takes any
                command += ["--metrics-port", str(port), "--metrics-host", metrics.host]
        sys.exit(asyncio.run(_run_processes(cluster, commands)))
    run_on_loop(
        run_until_signal(cluster, data, assignments, parent_fd=parent_fd, metrics=metrics, port=_port_options(options))
    )


def _port_options(options: dict[str, Any]) -> PortOptions | None:
    """The port for API nodes; none without a secret."""
    from noontide.apps.port.server import PortOptions

    secret = shared_secret(os.environ, needed=False)
    if secret is None:
        log.info("no %s: API nodes cannot ask this process", SECRET_VARIABLE)
        return None
    host, number, url = options["internal_host"], options["internal_port"], options["internal_url"]
    return PortOptions(secret=secret, host=host, port=number, url=url)


def _port_arguments(options: dict[str, Any], number: int) -> list[str]:
    """The port of one of several processes, each its own; 0 takes any. The secret is in the environment."""
    port = options["internal_port"] and options["internal_port"] + number
    return ["--internal-host", options["internal_host"], "--internal-port", str(port)]


def _command(cluster: Cluster, data: Path, log_level: str, assignments: tuple[str, ...]) -> list[str]:
    """The command line of one process; security settings go through its environment, where nobody lists them."""
    command = [sys.executable, "-m", "noontide.apps.cli.main", "scheduler"]
    command += ["--bootstrap", cluster.bootstrap, "--prefix", cluster.prefix]
    command += ["--data", str(data), "--log-level", log_level]
    return command + [text for assignment in assignments for text in ("--setting", assignment)]


async def _run_processes(cluster: Cluster, commands: list[list[str]]) -> int:
    from noontide.apps.processes import Processes

    return await Processes(commands=commands, variables=security_variables(cluster.security)).run()


async def run_until_signal(
    cluster: Cluster,
    data: Path,
    assignments: tuple[str, ...],
    *,
    parent_fd: int | None = None,
    metrics: MetricsOptions | None = None,
    port: PortOptions | None = None,
) -> None:
    """Run a scheduler in this process until SIGTERM or SIGINT, or until the pipe from a parent is closed."""
    from noontide.apps.settings import scheduler_settings
    from noontide.apps.wiring import SchedulerOptions, run_scheduler

    settings = scheduler_settings(os.environ, assignments)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    if parent_fd is not None:
        loop.add_reader(parent_fd, _parent_is_gone, loop, parent_fd, stop)
    cluster.layout()
    options = SchedulerOptions(
        connection=cluster.connection(),
        prefix=cluster.prefix,
        data=data,
        settings=settings,
        metrics=metrics,
        port=port,
    )
    await run_scheduler(options, stop)


def _parent_is_gone(loop: asyncio.AbstractEventLoop, parent_fd: int, stop: asyncio.Event) -> None:
    loop.remove_reader(parent_fd)
    stop.set()
