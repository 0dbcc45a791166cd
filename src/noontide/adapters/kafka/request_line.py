"""Requests from an event loop: many at once in few batches, each awaited until all in-sync replicas have it."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Final

import confluent_kafka as ck

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.requests import NotSent, producer_settings
from noontide.ports.record_log import Receipt, Record, TopicPartition

log = logging.getLogger(__name__)
POLL_S: Final = 0.1
LINGER_MS: Final = 2
CLOSE_S: Final = 5.0

_Answer = tuple[asyncio.Future[Receipt], ck.KafkaError | None, int, int]


class RequestLine:
    """An idempotent producer whose acknowledgements are futures of one event loop; close it at the end.

    timeout_s: how long a record may wait for its acknowledgement before it counts as not sent.
    """

    def __init__(self, connection: KafkaConnection, *, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._producer = ck.Producer(_settings(connection, timeout_s))
        self._answers: list[_Answer] = []
        self._told = False
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._poll, name="request-line", daemon=True)
        self._thread.start()

    def send(self, at: TopicPartition, record: Record) -> asyncio.Future[Receipt]:
        """Queue a record; the future gives where it is. Raises NotSent at once or in the future.

        After NotSent the record may be in the log or not, but never twice.
        """
        future: asyncio.Future[Receipt] = self._loop.create_future()

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            self._note((future, error, message.offset() or 0, message.timestamp()[1]))

        try:
            self._producer.produce(
                at.topic,
                record.value,
                record.key,
                partition=at.partition,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        except BufferError:
            raise NotSent("too many requests wait for the brokers", unreachable=True) from None
        return future

    async def close(self) -> None:
        """Wait for what is under way, at most CLOSE_S, and end."""
        await asyncio.to_thread(self._producer.flush, CLOSE_S)
        self._stopping = True
        await asyncio.to_thread(self._thread.join)
        self._resolve()

    def _poll(self) -> None:
        while not self._stopping:
            self._producer.poll(POLL_S)

    def _note(self, answer: _Answer) -> None:
        """In the polling thread: pass answers on, many in one call."""
        with self._lock:
            self._answers.append(answer)
            if self._told:
                return
            self._told = True
        self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        with self._lock:
            answers, self._answers, self._told = self._answers, [], False
        for future, error, offset, appended_ms in answers:
            if future.done():
                continue
            if error is None:
                future.set_result(Receipt(offset, offset + 1, appended_ms))
            else:
                unreachable = error.code() in (ck.KafkaError._MSG_TIMED_OUT, ck.KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001
                future.set_exception(NotSent(error.str(), unreachable=unreachable))


def _settings(connection: KafkaConnection, timeout_s: float) -> ConfluentSettings:
    return {**producer_settings(connection, timeout_s), "linger.ms": LINGER_MS}
