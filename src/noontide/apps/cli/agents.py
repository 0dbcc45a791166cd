"""`noontide agents`: one process of the agents."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noontide.apps.cli.common import Cluster, Fault, broker_options
from noontide.apps.cli.log_options import log_level_option, log_to_stderr
from noontide.apps.cli.metrics_options import metrics_options
from noontide.core.durations import parse_duration
from noontide.core.errors import InvalidDefinition

if TYPE_CHECKING:
    from noontide.apps.agents.wiring import AgentsOptions

DEFAULT_DATA = Path(".noontide") / "agents"
TELL_TIMEOUT_MAX_MS = 20_000
"""With most attempts and their pauses less than the 1,000 s after which a group takes a reader for dead."""


@click.command()
@broker_options
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_DATA, show_default=True,
    help="Folder of the tables: rebuilt from topics when it is missing.",
)  # fmt: skip
@click.option(
    "--streak", type=click.IntRange(2), default=3, show_default=True, help="Dead runs in a row that make one."
)
@click.option(
    "--late-after", metavar="DURATION", default="PT1M", show_default=True, help="A start is late after this time."
)
@click.option(
    "--tell-attempts", type=click.IntRange(1, 20), default=5, show_default=True,
    help="Attempts to tell a channel of one alert.",
)  # fmt: skip
@click.option(
    "--tell-timeout", metavar="DURATION", default="PT10S", show_default=True, help="An attempt without an answer ends."
)
@click.option("--smtp", metavar="HOST:PORT", default="127.0.0.1:25", show_default=True, help="Takes e-mail.")
@click.option("--smtp-from", default="noontide@localhost", show_default=True, help="Sender of e-mail.")
@click.option("--smtp-starttls", is_flag=True, help="Encrypt towards the mail server.")
@log_level_option
@metrics_options
def agents(cluster: Cluster, log_level: str, **given: Any) -> None:
    """Run a process of the agents: alerts that jobs ask for (`notify`), and usage per tenant.

    User and password of the mail server are NOONTIDE_SMTP_USER and NOONTIDE_SMTP_PASSWORD. kill -9 loses nothing: the
    next process goes on; an alert may then be told twice, under the same id.
    """
    log_to_stderr(log_level)
    try:
        asyncio.run(_run(cluster, given))
    except ImportError as error:
        raise Fault(f"the agents need `pip install 'noontide[agents]'` ({error})") from error


async def _run(cluster: Cluster, given: dict[str, Any]) -> None:
    from noontide.apps.agents.wiring import run_agents

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    await run_agents(await asyncio.to_thread(_options, cluster, given), stop)


def _length_ms(given: dict[str, Any], name: str) -> int:
    try:
        return parse_duration(given[name], pointer=f"--{name.replace('_', '-')}")
    except InvalidDefinition as error:
        raise Fault(str(error)) from None


def _options(cluster: Cluster, given: dict[str, Any]) -> AgentsOptions:
    from noontide.apps.agents.channels import MailSettings, TellSettings
    from noontide.apps.agents.rules import AlertSettings
    from noontide.apps.agents.wiring import AgentsOptions

    host, _, port = given["smtp"].rpartition(":")
    if not port.isdecimal():
        raise Fault(f"--smtp {given['smtp']}: not HOST:PORT")
    timeout_ms = _length_ms(given, "tell_timeout")
    if timeout_ms > TELL_TIMEOUT_MAX_MS:
        raise Fault(f"--tell-timeout {given['tell_timeout']}: at most PT{TELL_TIMEOUT_MAX_MS // 1000}S")
    mail = MailSettings(
        host=host,
        port=int(port),
        sender=given["smtp_from"],
        user=os.environ.get("NOONTIDE_SMTP_USER"),
        password=os.environ.get("NOONTIDE_SMTP_PASSWORD"),
        starttls=given["smtp_starttls"],
    )
    return AgentsOptions(
        connection=cluster.connection(),
        layout=cluster.layout(),
        data=given["data"],
        mail=mail,
        tell=TellSettings(attempts_max=given["tell_attempts"], timeout_ms=timeout_ms),
        settings=AlertSettings(streak=given["streak"], late_after_ms=_length_ms(given, "late_after")),
        metrics=given["metrics"],
    )
