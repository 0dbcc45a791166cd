# ruff: noqa: SLF001 - aiokafka has no public way to end a producer within a bounded time
"""An aiokafka producer that can be thrown away at any moment without leaving tasks, sockets or warnings behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.producer.transaction_manager import TransactionState

_SENDER_COROUTINES: Final = ("_send_produce_req", "_do_add_partitions_to_txn", "_do_txn_commit")


class _PendingBatches(set):  # type: ignore[type-arg]
    """aiokafka takes out a batch that failed while it waited for its second try, and is no longer in: a traceback."""

    remove = set.discard


class DisposableProducer(AIOKafkaProducer):  # type: ignore[misc]
    """`AIOKafkaProducer` whose `discard` is bounded.

    `stop()` waits for every queued batch and for the sender's requests, each of which may wait for ever when a topic
    was deleted or the brokers are gone; so the tasks of the sender are tracked here and cancelled.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._message_accumulator._pending_batches = _PendingBatches()
        self._requests: set[asyncio.Task[Any]] = set()
        for name in _SENDER_COROUTINES:
            setattr(self._sender, name, self._tracked(getattr(self._sender, name)))

    def _tracked(self, request: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def tracked(*args: Any) -> Any:
            task = asyncio.current_task()
            assert task is not None
            self._requests.add(task)
            try:
                return await request(*args)
            finally:
                self._requests.discard(task)

        return tracked

    async def know_topics(self, topics: set[str]) -> set[str]:
        """Return those of `topics` whose partitions are known, after one metadata request when some are not.

        Unbounded when no broker answers: put a time limit around it.
        """
        missing = {topic for topic in topics if not self.client.cluster.partitions_for_topic(topic)}
        if missing:
            self.client.set_topics(self.client._topics | missing)
            await self.client.force_metadata_update()
            missing = {topic for topic in missing if not self.client.cluster.partitions_for_topic(topic)}
            if missing:  # what does not exist is not asked for again with every refresh
                self.client._topics = self.client._topics - missing
        return topics - missing

    def tracks(self, topics: set[str]) -> bool:
        """Whether the metadata of all these topics is kept fresh."""
        return bool(topics <= self.client._topics)

    def topics_under_way(self) -> set[str]:
        """Topics with batches that were sent and not answered."""
        return {batch.tp.topic for batch in self._message_accumulator._pending_batches}

    def unauthorised_topics(self) -> set[str] | None:
        """Topics that the current transaction was forbidden to touch, None when that is not what ended it."""
        manager = self._txn_manager
        if manager.state is not TransactionState.ABORTABLE_ERROR:
            return None
        error = manager._transaction_waiter.exception()
        return set(error.args[0]) if error.args and isinstance(error.args[0], set) else set()

    async def refresh_topics(self) -> None:
        """Ask the brokers again about all topics in use; unbounded."""
        await self.client.force_metadata_update()

    def cause_of_death(self) -> BaseException | None:
        """What ended the sender, None while it runs."""
        task = self._sender.sender_task
        return None if task is None or not task.done() or task.cancelled() else task.exception()

    async def discard(self, *, timeout_ms: int = 1_000) -> None:
        """Drop everything unsent, cancel all tasks, close the sockets; never raises."""
        self._closed = True
        self._fail_queued()
        task = self._sender.sender_task
        doomed = {*self._requests, *([task] if task is not None else [])}
        for each in doomed:
            each.cancel()
        if doomed:
            await asyncio.wait(doomed, timeout=timeout_ms / 1000)
        self._retrieve_exceptions(doomed)
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            await asyncio.wait_for(self.client.close(), timeout_ms / 1000)

    def _fail_queued(self) -> None:
        accumulator = self._message_accumulator
        queued = [batch for batches in accumulator._batches.values() for batch in batches]
        futures = [batch.future for batch in (*queued, *accumulator._pending_batches)]
        accumulator.fail_all(KafkaConnectionError("the producer was discarded"))
        self._retrieve_exceptions(futures)
        for batch in queued:
            self._retrieve_exceptions([batch._drain_waiter])

    def _retrieve_exceptions(self, futures: Any) -> None:
        """Mark the exceptions as seen, else asyncio reports them when the futures are collected."""
        ended = self._txn_manager._transaction_waiter if self._txn_manager is not None else None
        for future in (*futures, ended):
            if future is not None and future.done() and not future.cancelled():
                future.exception()
