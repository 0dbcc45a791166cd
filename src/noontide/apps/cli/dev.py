"""`noontide dev`: a real broker, the topics and a scheduler on this machine, in one command."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noontide.apps.cli.common import DEFAULT_PREFIX, Cluster, Fault
from noontide.apps.cli.log_options import log_to_stderr
from noontide.apps.cli.scheduler import run_until_signal, setting_option
from noontide.core.errors import NoontideError

if TYPE_CHECKING:
    from noontide.adapters.kafka.embedded import EmbeddedKafka

DEV_SLOTS = 4
DEFAULT_PORT = 9092
API_PORT = 8480
WATCH_S = 1.0
AGENTS_END_S = 5.0

log = logging.getLogger("noontide.dev")


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".noontide") / "dev",
    show_default=True,
    help="Folder of the broker's records and the indexes; jobs survive restarts in it.",
)
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="Port of the broker; 0 takes any.")
@click.option("--api-port", type=int, help=f"Port of the API; {API_PORT} if it is free, else any.")
@click.option("--history", "with_history", is_flag=True, help="PostgreSQL and Kafka Connect as well: runs stay in SQL.")
@click.option("--agents", "with_agents", is_flag=True, help="Alerts and statistics as well.")
@setting_option
def dev(data: Path, port: int, assignments: tuple[str, ...], **more: Any) -> None:
    """Run everything on this machine: a real broker (no Docker, no Java needed), the topics, a scheduler, the API.

    The API is for this machine only and asks nobody who they are.

    Ctrl-C stops it. Whatever is killed, the next start goes on where the log ends.
    """
    log_to_stderr("info")
    from noontide.adapters.kafka.embedded import EmbeddedKafka

    try:
        with EmbeddedKafka(data / "kafka", port=port) as kafka:
            asyncio.run(_run(kafka, data, assignments, more))
    except (NoontideError, OSError) as error:
        raise Fault(str(error)) from error


async def _run(kafka: EmbeddedKafka, data: Path, assignments: tuple[str, ...], more: dict[str, Any]) -> None:
    from noontide.adapters.kafka.topics import ensure_topics
    from noontide.apps.api_wiring import ApiOptions, open_api
    from noontide.apps.port.server import PortOptions
    from noontide.apps.serving import LoopThread, free_port
    from noontide.apps.settings import api_settings
    from noontide.records.topics import Layout

    cluster = Cluster(bootstrap=kafka.bootstrap)
    layout = Layout(prefix=DEFAULT_PREFIX, slots=DEV_SLOTS)
    created = await asyncio.to_thread(ensure_topics, kafka.bootstrap, layout)
    secret = secrets.token_urlsafe()
    options = ApiOptions(
        connection=cluster.connection(),
        layout=layout,
        secret=secret,
        port=free_port(API_PORT) if more["api_port"] is None else more["api_port"],
        settings=api_settings(os.environ),
    )
    watch = asyncio.create_task(_keep_alive(kafka))
    try:
        async with AsyncExitStack() as stack:
            if more["with_history"]:
                url = await stack.enter_async_context(_history(data, kafka.bootstrap))
                options = replace(options, history_url=url)
            if more["with_agents"]:
                stack.enter_context(_agents(data, kafka.bootstrap))
            api = await stack.enter_async_context(LoopThread("api", lambda: open_api(options)))
            click.echo(_greeting(kafka.bootstrap, data, len(created), api.value))
            await run_until_signal(cluster, data / "scheduler", assignments, port=PortOptions(secret=secret))
    finally:
        watch.cancel()


@asynccontextmanager
async def _history(data: Path, bootstrap: str) -> AsyncIterator[str]:
    """PostgreSQL and Kafka Connect for as long as this lasts; gives the address of the database."""
    try:
        from noontide.apps.dev_history import DevHistory
    except ImportError as error:
        raise Fault(f"--history needs `pip install 'noontide[history]'` ({error})") from error

    history = DevHistory(data, bootstrap=bootstrap, prefix=DEFAULT_PREFIX)
    try:
        await asyncio.to_thread(history.start)
        click.echo(
            f"History is in PostgreSQL at {history.url} (table noontide.executions); Connect at {history.connect_url}."
        )
        watch = asyncio.create_task(history.watch())
        try:
            yield history.url
        finally:
            watch.cancel()
    finally:
        await asyncio.to_thread(history.stop)


@contextmanager
def _agents(data: Path, bootstrap: str) -> Iterator[None]:
    """`noontide agents` for as long as this lasts, with its log in the data folder."""
    from importlib.util import find_spec

    from noontide.adapters.tied_process import TiedProcess

    if find_spec("faust") is None:
        raise Fault("--agents needs `pip install 'noontide[agents]'`")
    command = [sys.executable, "-m", "noontide.apps.cli.main", "agents"]
    log_file = data / "agents.log"
    process = TiedProcess([*command, "--bootstrap", bootstrap, "--data", str(data / "agents")], log=log_file)
    click.echo(f"Agents tell of alerts and count runs; their log is {log_file}.")
    try:
        yield
    finally:
        process.signal(signal.SIGTERM)
        if not process.ended_within(AGENTS_END_S):
            process.signal(signal.SIGKILL)


def _greeting(bootstrap: str, data: Path, created: int, api: str) -> str:
    address = "" if bootstrap.endswith(f":{DEFAULT_PORT}") else f" --bootstrap {bootstrap}"
    return f"""
Kafka is at {bootstrap}; its data in {data} ({f"{created} topics created" if created else "topics as they were"}).
The dashboard is at {api}/, the API at {api}/v1, both for this machine only.
In another terminal:
    noontide jobs add --every 5s --topic hello --create-topic{address}
    noontide runs watch{address}
Handlers and HTTP targets need a worker; one with examples:
    noontide worker noontide.examples.handlers --allow-loopback{address}
Ctrl-C stops everything.
"""


async def _keep_alive(kafka: EmbeddedKafka) -> None:
    """A broker that dies is started again on its data; the scheduler waits for it meanwhile."""
    while True:
        await asyncio.sleep(WATCH_S)
        try:
            await asyncio.to_thread(kafka.check)
        except NoontideError as error:
            log.warning("%s; starting it again", error)
            await asyncio.to_thread(kafka.start_broker)
