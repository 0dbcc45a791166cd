"""`noontide dev`: a real broker, the topics and a scheduler on this machine, in one command."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noontide.apps.cli.common import DEFAULT_PREFIX, Cluster, Fault
from noontide.apps.cli.scheduler import log_to_stderr, run_until_signal, setting_option
from noontide.core.errors import NoontideError

if TYPE_CHECKING:
    from noontide.adapters.kafka.embedded import EmbeddedKafka

DEV_SLOTS = 4
DEFAULT_PORT = 9092
WATCH_S = 1.0

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
@click.option("--history", "with_history", is_flag=True, help="PostgreSQL and Kafka Connect as well: runs stay in SQL.")
@setting_option
def dev(data: Path, port: int, with_history: bool, assignments: tuple[str, ...]) -> None:  # noqa: FBT001
    """Run everything on this machine: a real broker (no Docker, no Java needed), the topics and a scheduler.

    Ctrl-C stops it. Whatever is killed, the next start goes on where the log ends.
    """
    log_to_stderr("info")
    from noontide.adapters.kafka.embedded import EmbeddedKafka

    try:
        with EmbeddedKafka(data / "kafka", port=port) as kafka:
            asyncio.run(_run(kafka, data, assignments, with_history=with_history))
    except NoontideError as error:
        raise Fault(str(error)) from error


async def _run(kafka: EmbeddedKafka, data: Path, assignments: tuple[str, ...], *, with_history: bool) -> None:
    from noontide.adapters.kafka.topics import ensure_topics
    from noontide.records.topics import Layout

    cluster = Cluster(bootstrap=kafka.bootstrap)
    layout = Layout(prefix=DEFAULT_PREFIX, slots=DEV_SLOTS)
    created = await asyncio.to_thread(ensure_topics, kafka.bootstrap, layout)
    click.echo(_greeting(kafka.bootstrap, data, len(created)))
    watch = asyncio.create_task(_keep_alive(kafka))
    try:
        async with AsyncExitStack() as stack:
            if with_history:
                await stack.enter_async_context(_history(data, kafka.bootstrap))
            await run_until_signal(cluster, data / "scheduler", assignments)
    finally:
        watch.cancel()


@asynccontextmanager
async def _history(data: Path, bootstrap: str) -> AsyncIterator[None]:
    """PostgreSQL and Kafka Connect for as long as this lasts; NOONTIDE_HISTORY_URL says where to read."""
    try:
        from noontide.apps.dev_history import DevHistory
    except ImportError as error:
        raise Fault(f"--history needs `pip install 'noontide[history]'` ({error})") from error

    history = DevHistory(data, bootstrap=bootstrap, prefix=DEFAULT_PREFIX)
    try:
        await asyncio.to_thread(history.start)
        os.environ["NOONTIDE_HISTORY_URL"] = history.url
        click.echo(
            f"History is in PostgreSQL at {history.url} (table noontide.executions); Connect at {history.connect_url}."
        )
        watch = asyncio.create_task(history.watch())
        try:
            yield
        finally:
            watch.cancel()
    finally:
        await asyncio.to_thread(history.stop)


def _greeting(bootstrap: str, data: Path, created: int) -> str:
    address = "" if bootstrap.endswith(f":{DEFAULT_PORT}") else f" --bootstrap {bootstrap}"
    return f"""
Kafka is at {bootstrap}; its data in {data} ({f"{created} topics created" if created else "topics as they were"}).
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
