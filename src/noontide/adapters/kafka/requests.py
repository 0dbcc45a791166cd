"""Requests, and other single records, from outside of the slots: many at once, each acknowledged with its offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import confluent_kafka as ck

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.core.errors import NoontideError
from noontide.ports.record_log import Record, TopicPartition

Acknowledged = Callable[[TopicPartition, int], None]
"""Called with the partition and the offset of a record that the brokers have."""

_POLL_EVERY: Final = 500  # records between two looks at the answers
_FULL_QUEUE_POLL_S: Final = 0.05


class NotSent(NoontideError):
    """Records that the brokers did not take; the message says how many and the first reason.

    unreachable: no broker answered in time, as opposed to an answer that refused.
    """

    def __init__(self, message: str, *, unreachable: bool) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class RequestProducer:
    """Sends records with explicit partitions, idempotently, in the order given; for one thread.

    timeout_s: how long a record may wait for its acknowledgement before it counts as not sent.
    """

    def __init__(self, connection: KafkaConnection, *, timeout_s: float = 30.0) -> None:
        self._producer = ck.Producer(producer_settings(connection, timeout_s))
        self._timeout_s = timeout_s
        self._failures: list[ck.KafkaError] = []
        self._sent = 0

    def send(self, at: TopicPartition, record: Record, on_acknowledged: Acknowledged) -> None:
        """Queue a record; waits while the queue of the client is full. Failures are told by `flush`."""
        failures = self._failures

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is not None:
                failures.append(error)
                return
            offset = message.offset()
            assert offset is not None
            on_acknowledged(at, offset)

        headers = list(record.headers)
        while True:
            try:
                self._producer.produce(
                    at.topic,
                    record.value,
                    record.key,
                    partition=at.partition,
                    headers=headers,  # type: ignore[arg-type] # the stubs know fewer forms than the client
                    on_delivery=delivered,
                )
                break
            except BufferError:
                self._producer.poll(_FULL_QUEUE_POLL_S)
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)

    def poll(self) -> None:
        """Look at the answers that are there; does not wait."""
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until every record is acknowledged. Raises NotSent."""
        left = self._producer.flush(self._timeout_s + 1)
        if self._failures:
            first = self._failures[0]
            unreachable = first.code() in (ck.KafkaError._MSG_TIMED_OUT, ck.KafkaError._ALL_BROKERS_DOWN)  # noqa: SLF001
            raise NotSent(f"{len(self._failures)} not sent: {first.str()}", unreachable=unreachable)
        if left:
            raise NotSent(f"{left} not acknowledged within {self._timeout_s:.0f} s", unreachable=True)


def producer_settings(connection: KafkaConnection, timeout_s: float) -> ConfluentSettings:
    """Of a producer of requests: idempotent, acknowledged by all in-sync replicas, in batches."""
    return {
        **connection.for_confluent("requests"),
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 2,
        "batch.size": 262_144,
        "compression.type": "lz4",
        "message.max.bytes": 1_048_576,
        "queue.buffering.max.messages": 200_000,
        "message.timeout.ms": int(timeout_s * 1000),
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 200,
    }
