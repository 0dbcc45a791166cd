"""An event loop on a thread of its own, for code that may block it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

JOIN_S: Final = 1.0
T = TypeVar("T")
Last = Callable[[], Coroutine[Any, Any, None]]


class SideLoop:
    """An event loop on a daemon thread, from construction to `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._last: Last | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[T], None], argument: T) -> None:
        """Have a function called on the loop; from any thread."""
        self._loop.call_soon_threadsafe(function, argument)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task on the loop, for the loop's thread. Keep it: the loop does not."""
        return self._loop.create_task(coroutine)

    def close(self, *, last: Last | None = None) -> None:
        """Cancel what runs, do the last thing and end the loop; one that is blocked is left behind after a second."""
        self._last = last
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        if self._last is not None:
            self._loop.run_until_complete(self._last())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
