"""Threads for plain functions: as many as needed, up to a number, and none that keeps the process from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Work = Callable[[], None]


class Crew:
    """Daemon threads that are started when all others are at work. `size_max` jobs run at once, further ones wait.

    (The executor of the standard library joins its threads when the interpreter ends: a handler that never returns
    would keep a stopped worker alive.)
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._size = 0

    def submit(self, work: Work) -> None:
        """Have it done; it must not raise. For one thread."""
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._size < self._size_max:
            self._size += 1
            threading.Thread(target=self._run, name=f"handler-{self._size}", daemon=True).start()

    def close(self) -> None:
        """Let the threads end once they are idle; returns at once."""
        for _ in range(self._size):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            self._idle.release()
