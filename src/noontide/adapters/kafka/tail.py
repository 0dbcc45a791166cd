"""Following committed records as they come, in the caller's thread: what command lines and tests look through.

Owners use `KafkaFeed`; this is for processes that have no event loop and nothing to restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.messages import incoming
from noontide.ports.record_log import Doubt, Incoming, TopicPartition

BATCH_MAX_RECORDS: Final = 1_000
REQUEST_TIMEOUT_S: Final = 10.0


class Tail:
    """Committed records of some partitions from given offsets on; a context that closes its consumer."""

    def __init__(self, connection: KafkaConnection, positions: Mapping[TopicPartition, int]) -> None:
        self._consumer = ck.Consumer(_settings(connection))
        self._consumer.assign([ck.TopicPartition(*at, offset) for at, offset in positions.items()])

    def poll(self, timeout_s: float) -> list[Incoming]:
        """The records that are there, or the first to come; empty after `timeout_s`. Raises Doubt for fatal errors."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(BATCH_MAX_RECORDS - 1, 0)]
        return [incoming(message) for message in messages if _is_record(message)]

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def offsets_since(
    connection: KafkaConnection, partitions: Sequence[TopicPartition], *, since_ms: int
) -> dict[TopicPartition, int]:
    """The first offset of each partition whose record was appended at `since_ms` or later; the end when there is none.

    Raises Doubt when the brokers do not answer.
    """
    at_time = _offsets(connection, partitions, OffsetSpec.for_timestamp(since_ms))
    unknown = [partition for partition, offset in at_time.items() if offset < 0]
    return at_time | _offsets(connection, unknown, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def _offsets(
    connection: KafkaConnection, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    wanted = {ck.TopicPartition(*partition): spec for partition in partitions}
    if not wanted:
        return {}
    admin = AdminClient(connection.for_confluent("tail-admin"))
    try:
        answers = admin.list_offsets(
            wanted, isolation_level=ck.IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_TIMEOUT_S
        )
        return {
            TopicPartition(asked.topic, asked.partition): future.result(REQUEST_TIMEOUT_S + 1).offset
            for asked, future in answers.items()
        }
    except (ck.KafkaException, TimeoutError) as error:
        raise Doubt(f"the offsets of partitions are unknown: {error}") from error


def _is_record(message: ck.Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.retriable() or not error.fatal():
        return False
    raise Doubt(f"reading failed: {error.str()}")


def _settings(connection: KafkaConnection) -> ConfluentSettings:
    return {
        **connection.for_reader("tail"),
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 32_768,
    }
