"""Past a record that nobody can write into the history: the sink fails at it for ever, and writes nothing behind it.

Kafka Connect sets records aside that it cannot read; one that the database refuses stops the task instead, together
with its whole batch. So that batch is done here, with the sink stopped: what can be written is written, the rest goes
to `sink-errors` with the reason, and the sink goes on behind it. A crash in between does all of it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from noontide.adapters.kafka.connect_rest import ConnectRest
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.foreign_topics import partition_counts
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.postgres.table import history_database, upsert_rows
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.history import row_of

BATCH_MAX: Final = 4_000
"""Records of a partition that are looked at: more than the sink takes at once (2,000)."""
REASON: Final = "noontide.reason"
log = logging.getLogger("noontide.history")


@dataclass(slots=True, kw_only=True)
class StepOver:
    """Gets one sink past what it cannot write. url: of the database."""

    connection: KafkaConnection
    prefix: str
    url: str

    def past(self, rest: ConnectRest, connector: str) -> int:
        """Stop the sink, do its batch, let it go on; returns how many records were set aside. Raises NoontideError."""
        rest.stop(connector)
        try:
            moved, aside = self._batch(rest.offsets(connector))
            if moved:
                rest.put_offsets(connector, moved)
        finally:
            rest.resume(connector)
        return aside

    def _batch(self, positions: dict[TopicPartition, int]) -> tuple[dict[TopicPartition, int], int]:
        """Do what lies ahead of the positions, up to the last record that cannot be written; where to go on."""
        replay, topic = KafkaReplay(self.connection), f"{self.prefix}executions"
        count = partition_counts(self.connection, [topic])[topic]
        places = [TopicPartition(topic, number) for number in range(count)]
        starts = {place: positions.get(place, 0) for place in places}
        ends = {place: min(end, starts[place] + BATCH_MAX) for place, end in replay.stable_offsets(places).items()}
        read: dict[TopicPartition, list[Incoming]] = {}
        for records in replay.read({place: starts[place] for place in ends}, ends):
            for record in records:
                read.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        moved, aside = {}, 0
        for place, records in read.items():
            refused = [record.offset for record in records if isinstance(row_of(record.value), str)]
            if refused:
                aside += self._do([record for record in records if record.offset <= refused[-1]])
                moved[place] = refused[-1] + 1
        return moved, aside

    def _do(self, records: Iterable[Incoming]) -> int:
        found = [(record, row_of(record.value)) for record in records if record.value is not None]
        with history_database(self.url) as database:
            upsert_rows(database, [row for _, row in found if not isinstance(row, str)])
        refused = [(record, reason) for record, reason in found if isinstance(reason, str)]
        self._set_aside(refused)
        return len(refused)

    def _set_aside(self, refused: list[tuple[Incoming, str]]) -> None:
        producer, at = RequestProducer(self.connection), TopicPartition(f"{self.prefix}sink-errors", 0)
        for record, reason in refused:
            log.warning("execution_set_aside partition=%d offset=%d: %s", record.partition, record.offset, reason)
            place = b"%b/%d/%d" % (record.topic.encode(), record.partition, record.offset)
            headers = [(REASON, reason.encode()), ("noontide.place", place)]
            producer.send(at, Record(record.key, record.value, headers), lambda _at, _offset: None)
        producer.flush()
