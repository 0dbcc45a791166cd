"""The history in PostgreSQL, asked for a bounded time: an answer does without it when it is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from noontide.apps.api.settings import ApiSettings
from noontide.core.errors import NoontideError
from noontide.ports.history import Execution, ExecutionFilter, ExecutionHistory, Place

T = TypeVar("T")
ENDING_MAX: Final = 32
"""Questions given up whose connections are still being ended; beyond, nothing new is asked."""
log = logging.getLogger("noontide.api")


class HistoryAway(NoontideError):
    """The history did not answer in time, or could not."""


class Archive:
    """A history that is left alone for a time once it did not answer, so that not everybody waits for it."""

    def __init__(self, history: ExecutionHistory, settings: ApiSettings) -> None:
        self._history = history
        self._wait_s = settings.history_wait_ms / 1000
        self._rest_s = settings.history_rest_ms / 1000
        self._resting_until_s = 0.0
        self._ending: set[asyncio.Task[Any]] = set()

    async def page(self, wanted: ExecutionFilter, *, limit: int, after: Place | None = None) -> Sequence[Execution]:
        """See `ExecutionHistory.page`. Raises HistoryAway."""
        return await self._answer(lambda: self._history.page(wanted, limit=limit, after=after))

    async def find(self, run_id: str, *, tenants: tuple[str, ...] | None) -> Execution | None:
        """See `ExecutionHistory.find`. Raises HistoryAway."""
        return await self._answer(lambda: self._history.find(run_id, tenants=tenants))

    async def _answer(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What is asked. A question that is given up ends by itself: even that may take long."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._resting_until_s or len(self._ending) >= ENDING_MAX:
            raise HistoryAway("the history did not answer a moment ago")
        asked = asyncio.create_task(ask())
        try:
            await asyncio.wait({asked}, timeout=self._wait_s)
        finally:
            if not asked.done():
                asked.cancel()
                self._ending.add(asked)
                asked.add_done_callback(self._ended)
        if asked.done() and asked.exception() is None:
            return asked.result()
        self._resting_until_s = loop.time() + self._rest_s
        failure = asked.exception() if asked.done() else f"no answer within {self._wait_s:g} s"
        if not isinstance(failure, NoontideError | str):
            assert failure is not None
            raise failure
        log.warning("history_not_reachable: %s", failure)
        raise HistoryAway(str(failure))

    def _ended(self, asked: asyncio.Task[Any]) -> None:
        self._ending.discard(asked)
        if not asked.cancelled():
            asked.exception()
