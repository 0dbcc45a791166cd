"""`noontide scheduler`: one scheduler process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import click

from noontide.apps.cli.common import Cluster, broker_options

DEFAULT_DATA = Path(".noontide") / "scheduler"


log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged to standard error.",
)
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
@log_level_option
@setting_option
def scheduler(cluster: Cluster, data: Path, log_level: str, assignments: tuple[str, ...]) -> None:
    """Run a scheduler process: it takes its share of the slots, and all of them when it is alone.

    SIGTERM or Ctrl-C hands over cleanly. kill -9 loses nothing: another process, or the next start, goes on.
    """
    log_to_stderr(log_level)
    asyncio.run(run_until_signal(cluster, data, assignments))


def log_to_stderr(level: str) -> None:
    """Our own log lines; the client libraries only speak of errors."""
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s  %(message)s"
    )
    for library in ("aiokafka", "kafka"):
        logging.getLogger(library).setLevel(logging.CRITICAL if level != "debug" else logging.DEBUG)


async def run_until_signal(cluster: Cluster, data: Path, assignments: tuple[str, ...]) -> None:
    """Run a scheduler in this process until SIGTERM or SIGINT."""
    from noontide.apps.settings import scheduler_settings
    from noontide.apps.wiring import SchedulerOptions, run_scheduler

    settings = scheduler_settings(os.environ, assignments)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    cluster.layout()
    options = SchedulerOptions(connection=cluster.connection(), prefix=cluster.prefix, data=data, settings=settings)
    await run_scheduler(options, stop)
