"""`noontide dev --history`: PostgreSQL and Kafka Connect on this machine, kept alive."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, Self

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded.connect import EmbeddedConnect
from noontide.adapters.postgres.server import PASSWORD, USER, EmbeddedPostgres
from noontide.apps.history_keeper import HistoryKeeper
from noontide.apps.sink_step_over import StepOver
from noontide.core.errors import NoontideError
from noontide.records.history import CONNECTOR_NAME, connector_config

WATCH_S: Final = 1.0

log = logging.getLogger("noontide.history")


class DevHistory:
    """The history of one `noontide dev`. Methods block, `watch` does not. A context that stops both processes."""

    def __init__(self, data: Path, *, bootstrap: str, prefix: str) -> None:
        self.postgres = EmbeddedPostgres(data / "postgres")
        self._data = data
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._connect: EmbeddedConnect | None = None

    @property
    def url(self) -> str:
        """Of the database."""
        return self.postgres.url

    @property
    def connect_url(self) -> str:
        """Of Kafka Connect."""
        assert self._connect is not None
        return self._connect.url

    def start(self) -> Self:
        """Start the database, make the table, start the sink. Raises NoontideError with one line that says why."""
        self.postgres.start()
        HistoryKeeper(url=self.url).keep_table()
        self._connect = EmbeddedConnect(
            self._data / "connect",
            self._bootstrap,
            {CONNECTOR_NAME: connector_config(self._prefix)},
            {
                "NOONTIDE_HISTORY_JDBC_URL": f"{self.postgres.jdbc_url}?reWriteBatchedInserts=true",
                "NOONTIDE_HISTORY_USER": USER,
                "NOONTIDE_HISTORY_PASSWORD": PASSWORD,
            },
        ).start()
        return self

    async def watch(self) -> None:
        """Start again what ends by itself, and keep table and sink in order, until cancelled."""
        step_over = StepOver(connection=KafkaConnection(self._bootstrap), prefix=self._prefix, url=self.url)
        looking_after = HistoryKeeper(url=self.url, connect_url=self.connect_url, step_over=step_over)
        keeper = asyncio.create_task(looking_after.run())
        try:
            while True:
                await asyncio.sleep(WATCH_S)
                await asyncio.to_thread(self._revive)
        finally:
            keeper.cancel()

    def stop(self) -> None:
        """The sink first: it writes what it has read."""
        if self._connect is not None:
            self._connect.stop()
        self.postgres.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _revive(self) -> None:
        for name, process in (("PostgreSQL", self.postgres), ("Kafka Connect", self._connect)):
            if process is not None and not process.running:
                log.warning("history_process_started_again process=%s", name)
                try:
                    process.start()
                except NoontideError as error:
                    log.warning("history: %s", error)
