"""`noontide api`: one API process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import click

from noontide.apps.cli.access_options import access_of, access_options
from noontide.apps.cli.common import USAGE, Cluster, Fault, broker_options, shared_secret
from noontide.apps.cli.log_options import log_level_option, log_to_stderr
from noontide.apps.cli.metrics_options import metrics_options
from noontide.apps.cli.scheduler import setting_option

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8480
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@broker_options
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="Port to listen on; 0 takes any.")
@access_options
@click.option("--tls-cert", type=_FILE, help="PEM certificate (chain); the API then speaks TLS.")
@click.option("--tls-key", type=_FILE, help="PEM key of the certificate.")
@click.option(
    "--history-url",
    envvar="NOONTIDE_HISTORY_URL",
    show_envvar=True,
    metavar="URL",
    help="The database with older executions (noontide history): postgresql://user:password@host/name.",
)
@log_level_option
@setting_option
@metrics_options
def api(cluster: Cluster, log_level: str, **given: Any) -> None:
    """Run an API process; any number of them may run side by side.

    Whoever asks needs a token (noontide tokens create), unless --no-access is given. SIGTERM or Ctrl-C finishes the
    requests that are under way. kill -9 loses nothing that was acknowledged.
    """
    log_to_stderr(log_level)
    if (given["tls_cert"] is None) != (given["tls_key"] is None):
        raise Fault("--tls-cert and --tls-key belong together", exit_code=USAGE)
    import uvloop

    try:
        uvloop.run(_run(cluster, given))
    except ImportError as error:
        raise Fault(f"--history-url needs `pip install 'noontide[history]'` ({error})") from error
    except OSError as error:
        raise Fault(f"{given['host']}:{given['port']}: {error}") from error


async def _run(cluster: Cluster, given: dict[str, Any]) -> None:
    from noontide.apps.access.options import check_exposure
    from noontide.apps.api_wiring import ApiOptions, run_api
    from noontide.apps.settings import api_settings

    settings, access = api_settings(os.environ, given["assignments"]), access_of(given)
    check_exposure(given["host"], access)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    options = ApiOptions(
        connection=cluster.connection(),
        layout=await asyncio.to_thread(cluster.layout),
        secret=shared_secret(os.environ, needed=True) or "",
        host=given["host"],
        port=given["port"],
        settings=settings,
        access=access,
        history_url=given["history_url"],
        certificate=given["tls_cert"],
        private_key=given["tls_key"],
        metrics=given["metrics"],
    )
    await run_api(options, stop, on_url=lambda url: click.echo(f"API at {url}"))
