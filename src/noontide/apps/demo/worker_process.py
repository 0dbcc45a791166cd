"""The worker of the demo: what `noontide worker` runs, allowed to call HTTP targets on this machine."""

from __future__ import annotations

import asyncio
import signal
from argparse import ArgumentParser

from noontide.adapters.http.settings import HttpSettings
from noontide.apps.cli.common import Cluster
from noontide.apps.cli.scheduler import log_to_stderr
from noontide.apps.cli.worker import load_app
from noontide.apps.worker_http import HttpOptions
from noontide.apps.worker_wiring import WorkerOptions, run_worker
from noontide.worker.holding import DeskSettings
from noontide.worker.runtime import WorkerSettings

HANDLERS = "noontide.examples.handlers"
CONCURRENCY = 8
DRAIN_MS = 5_000


async def run(bootstrap: str, prefix: str) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    cluster = Cluster(bootstrap=bootstrap, prefix=prefix)
    desk = DeskSettings(concurrency=CONCURRENCY, prefetch=CONCURRENCY)
    options = WorkerOptions(
        connection=cluster.connection(),
        layout=cluster.layout(),
        settings=WorkerSettings(desk=desk, drain_ms=DRAIN_MS),
        http=HttpOptions(settings=HttpSettings(allow_loopback=True)),
    )
    await run_worker(load_app(HANDLERS), options, stop)


def main() -> None:
    """Run a worker on the brokers that are named."""
    parser = ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    given = parser.parse_args()
    log_to_stderr("info")
    asyncio.run(run(given.bootstrap, given.prefix))


if __name__ == "__main__":
    main()
