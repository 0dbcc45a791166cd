"""Reading committed records without an end, for standbys: what is there is taken, nothing is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import confluent_kafka as ck

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.messages import incoming
from noontide.ports.record_log import Doubt, Incoming, TopicPartition

PREFETCH_KIB: Final = 4_096


class KafkaFollower:
    """`Follower` on a confluent-kafka consumer, which fetches a little ahead in threads of its own."""

    def __init__(self, connection: KafkaConnection, positions: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(positions)
        self._consumer = ck.Consumer(_settings(connection))
        self._consumer.assign([ck.TopicPartition(*at, offset) for at, offset in positions.items()])

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """See `Follower.positions`; the client reports the end of what can be read with a position behind markers."""
        return self._positions

    def read(self, records_max: int) -> list[Incoming]:
        """See `Follower.read`."""
        records = []
        for message in self._consumer.consume(records_max, 0):
            error = message.error()
            if error is not None:
                self._note(message, error)
                continue
            record = incoming(message)
            self._positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
            records.append(record)
        return records

    def _note(self, message: ck.Message, error: ck.KafkaError) -> None:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if error.code() == ck.KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public name for it
            assert topic is not None
            assert number is not None
            assert offset is not None
            at = TopicPartition(topic, number)
            self._positions[at] = max(self._positions[at], offset)
        elif not error.retriable() and topic is not None:
            raise Doubt(f"following failed: {error.str()}")

    def lag(self) -> int | None:
        """See `Follower.lag`; the ends are those of the latest fetches."""
        behind = [self._behind(at, position) for at, position in self._positions.items()]
        return None if None in behind else sum(each or 0 for each in behind)

    def _behind(self, at: TopicPartition, position: int) -> int | None:
        try:
            _, end = self._consumer.get_watermark_offsets(ck.TopicPartition(*at), cached=True)
        except ck.KafkaException:
            return None
        return None if end < 0 else max(0, end - position)

    def close(self) -> None:
        """See `Follower.close`."""
        self._consumer.close()


def _settings(connection: KafkaConnection) -> ConfluentSettings:
    return {
        **connection.for_reader("standby"),
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 500,
        "queued.min.messages": 2_000,
        "queued.max.messages.kbytes": PREFETCH_KIB,
    }
