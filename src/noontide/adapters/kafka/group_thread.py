"""What the two ways of taking invitations have in common: a thread that is a member of the group while it is wanted."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import confluent_kafka as ck

from noontide.ports.run_source import Delivered, DeliverySink, Place

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
ASIDE_AFTER_S: Final = 1.0
"""A member that can take nothing for this long leaves the group."""
RETRY_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 5.0

Word = TypeVar("Word")
"""What may be said about a record."""


class GroupThread(Generic[Word]):
    """`RunSource` but for `accept` and `release`; subclasses say how to be a member."""

    def __init__(self, *, kind: str, topic: str, group: str) -> None:
        self._kind = kind
        self._topic = topic
        self._group = group
        self._changed = threading.Condition()
        self._wanted = 0
        self._words: list[tuple[Place, Word]] = []
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sink: DeliverySink | None = None

    def start(self, sink: DeliverySink) -> None:
        """See `RunSource.start`."""
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._thread = threading.Thread(target=self._run, name=f"{self._kind}-{self._topic}", daemon=True)
        self._thread.start()

    def want(self, count: int) -> None:
        """See `RunSource.want`."""
        if (count > 0) != (self._wanted > 0):
            with self._changed:
                self._wanted = count
                self._changed.notify()
        self._wanted = count

    async def close(self) -> None:
        """See `RunSource.close`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT_S)

    def _say(self, places: Iterable[Place], word: Word) -> None:
        with self._changed:
            self._words += [(place, word) for place in places]
            self._changed.notify()

    # --- in the thread

    def _be_member(self) -> None:
        """Join, take records, and leave when nothing is wanted for a while, or at the end."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._stopping:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > 0 or self._stopping)
            if self._stopping:
                return
            try:
                self._be_member()
            except ck.KafkaException as error:
                log.warning("group %s: %s; joining again", self._group, error.args[0])
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, RETRY_S)
            except RuntimeError as error:  # the loop was closed under us
                log.debug("group %s: %s", self._group, error)
                return

    def _hand_over(self, delivered: list[Delivered]) -> None:
        """Give records to the worker, in its loop."""
        assert self._loop is not None
        assert self._sink is not None
        self._loop.call_soon_threadsafe(self._sink, delivered)
