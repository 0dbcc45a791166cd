"""`noontide api`: one API process."""

from __future__ import annotations

import asyncio
import os
import signal

import click

from noontide.apps.cli.common import Cluster, Fault, broker_options
from noontide.apps.cli.scheduler import log_level_option, log_to_stderr, setting_option

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8480


@click.command()
@broker_options
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="Port to listen on; 0 takes any.")
@log_level_option
@setting_option
def api(cluster: Cluster, host: str, port: int, log_level: str, assignments: tuple[str, ...]) -> None:
    """Run an API process; any number of them may run side by side.

    SIGTERM or Ctrl-C finishes the requests that are under way. kill -9 loses nothing that was acknowledged.
    """
    log_to_stderr(log_level)
    import uvloop

    try:
        uvloop.run(_run(cluster, host, port, assignments))
    except OSError as error:
        raise Fault(f"{host}:{port}: {error}") from error


async def _run(cluster: Cluster, host: str, port: int, assignments: tuple[str, ...]) -> None:
    from noontide.apps.api_wiring import ApiOptions, run_api
    from noontide.apps.settings import api_settings

    settings = api_settings(os.environ, assignments)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    layout = await asyncio.to_thread(cluster.layout)
    options = ApiOptions(connection=cluster.connection(), layout=layout, host=host, port=port, settings=settings)
    await run_api(options, stop, on_url=lambda url: click.echo(f"API at {url}"))
