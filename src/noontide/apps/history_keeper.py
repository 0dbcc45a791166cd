"""Keeps the history in order: partitions for the coming days, old days dropped, a failed sink started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

import httpx

from noontide.adapters.kafka.connect_rest import ConnectRest
from noontide.adapters.postgres.table import add_days, create_table, drop_days, history_database
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.sink_step_over import StepOver
from noontide.core.errors import NoontideError
from noontide.records.history import CONNECTOR_NAME

DAYS_AHEAD: Final = 7
DAYS_BEHIND: Final = 1
WATCH_S: Final = 2.0
TABLE_S: Final = 3_600.0
_RESTART_PAUSE_MAX_S: Final = 60.0

log = logging.getLogger("noontide.history")


def utc_today() -> date:
    """The day of this machine's clock, in UTC."""
    return datetime.fromtimestamp(wall_now_ms() / 1000, UTC).date()


@dataclass(slots=True, kw_only=True)
class HistoryKeeper:
    """Looks after one history. `run` goes on until it is cancelled, whatever is down.

    url: of the database.  connect_url: of Kafka Connect, None to leave the sink alone.
    keep_days: what was due longer ago is dropped, None keeps everything.
    step_over: gets a sink that goes on failing past what it cannot write; None leaves that to people.
    """

    url: str
    connect_url: str | None = None
    keep_days: int | None = None
    connector: str = CONNECTOR_NAME
    step_over: StepOver | None = None
    today: Callable[[], date] = utc_today
    _pause_s: float = field(default=WATCH_S, init=False)
    _restart_in_s: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Look at the sink every 2 s and at the table every hour; what fails is logged and tried again."""
        table_in_s = 0.0
        while True:
            if table_in_s <= 0:
                table_in_s = TABLE_S if await asyncio.to_thread(self._try, self.keep_table) else WATCH_S
            if self.connect_url is not None:
                await asyncio.to_thread(self._try, self.keep_sink)
            await asyncio.sleep(WATCH_S)
            table_in_s -= WATCH_S

    def keep_table(self) -> None:
        """Create what is missing, partitions for yesterday to a week from now, drop what is old."""
        today = self.today()
        with history_database(self.url) as connection:
            create_table(connection)
            added = add_days(connection, today - timedelta(days=DAYS_BEHIND), DAYS_BEHIND + 1 + DAYS_AHEAD)
        if added:
            log.info("history_days_added days=%d last=%s", len(added), added[-1])
        if self.keep_days is not None:
            self.prune(self.keep_days)

    def prune(self, keep_days: int) -> tuple[list[date], int]:
        """Drop what was due more than so many days ago: the days dropped, and rows of days without a partition."""
        with history_database(self.url) as connection:
            dropped, rows = drop_days(connection, self.today() - timedelta(days=keep_days))
        if dropped or rows:
            log.info("history_days_dropped days=%d rows_without_partition=%d", len(dropped), rows)
        return dropped, rows

    def keep_sink(self) -> None:
        """Start failed tasks again, after pauses that double while they keep failing."""
        assert self.connect_url is not None
        rest = ConnectRest(self.connect_url)
        state = rest.state(self.connector)
        if state is None or not state.failed:
            self._pause_s, self._restart_in_s = WATCH_S, 0.0
            return
        self._restart_in_s -= WATCH_S
        if self._restart_in_s <= 0:
            if self.step_over is not None and self._pause_s > WATCH_S and self.step_over.past(rest, self.connector):
                self._pause_s = WATCH_S
            else:
                log.warning("sink_restarted connector=%s because: %s", self.connector, state.trace)
                rest.restart_failed(self.connector)
            self._restart_in_s = self._pause_s
            self._pause_s = min(_RESTART_PAUSE_MAX_S, self._pause_s * 2)

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except (NoontideError, httpx.HTTPError) as error:
            log.warning("history_step_failed step=%s: %s", step.__name__, " ".join(str(error).split())[:300])
            return False
        return True
