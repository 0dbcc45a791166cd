"""Invitations from a classic consumer group, where brokers have no share groups: a partition has one reader.

An offset is committed once the claims for everything before it are in the log. A member that can take nothing for a
while leaves the group, so that others get its partitions.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import confluent_kafka as ck

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.group_thread import ASIDE_AFTER_S, POLL_S, GroupThread
from noontide.ports.run_source import Delivered, Place

log = logging.getLogger(__name__)

BATCH_MAX_RECORDS: Final = 500
_ACCEPTED: Final = True
_RELEASED: Final = False


class Ledger:
    """What was delivered from each partition and not settled; tells the offset that may be committed."""

    def __init__(self) -> None:
        self._open: dict[int, OrderedDict[int, bool]] = {}  # partition -> offset -> settled, in the order of delivery

    def delivered(self, place: Place) -> None:
        """A record was handed out."""
        partition, offset = place
        self._open.setdefault(partition, OrderedDict())[offset] = False

    def settled(self, place: Place) -> int | None:
        """A record is done with; the offset to commit for its partition when that moves, else None."""
        partition, offset = place
        offsets = self._open.get(partition)
        if offsets is None or offset not in offsets:
            return None
        offsets[offset] = True
        through = None
        while offsets and offsets[first := next(iter(offsets))]:
            through = first + 1
            del offsets[first]
        return through

    def rewound(self, place: Place) -> bool:
        """Everything from a record on will be delivered again; False when that is the case already."""
        partition, offset = place
        offsets = self._open.get(partition)
        if offsets is None or offset not in offsets:
            return False
        self._open[partition] = OrderedDict((each, done) for each, done in offsets.items() if each < offset)
        return True

    def forget(self, partitions: Sequence[int]) -> None:
        """These partitions belong to somebody else now."""
        for partition in partitions:
            self._open.pop(partition, None)

    @property
    def open(self) -> int:
        """Records that are not settled."""
        return sum(not done for offsets in self._open.values() for done in offsets.values())


class ClassicGroupSource(GroupThread[bool]):
    """`RunSource` on one consumer in a thread."""

    def __init__(self, connection: KafkaConnection, *, topic: str, group: str) -> None:
        self._settings = _settings(connection, group)
        super().__init__(kind="group", topic=topic, group=group)

    def accept(self, places: Sequence[Place]) -> None:
        """See `RunSource.accept`."""
        self._say(places, _ACCEPTED)

    def release(self, places: Sequence[Place]) -> None:
        """See `RunSource.release`; the group can only read the partition again from there on."""
        self._say(sorted(places), _RELEASED)

    # --- in the thread

    def _be_member(self) -> None:
        consumer, ledger = ck.Consumer(self._settings), Ledger()

        def gone(_: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
            ledger.forget([each.partition for each in partitions])

        try:
            consumer.subscribe([self._topic], on_revoke=gone, on_lost=gone)
            self._read(consumer, ledger)
        finally:
            with contextlib.suppress(ck.KafkaException):
                consumer.commit(asynchronous=False)
            consumer.close()

    def _read(self, consumer: ck.Consumer, ledger: Ledger) -> None:
        """Read until nothing has been wanted for a while, or to the end."""
        paused, idle_s = False, 0.0
        while not self._stopping and idle_s <= ASIDE_AFTER_S:
            with self._changed:
                heard = self._changed.wait_for(lambda: self._wanted > 0 or self._words or self._stopping, POLL_S)
                words, self._words = self._words, []
            self._obey(consumer, ledger, words)
            wanted = self._wanted
            if wanted > 0:
                idle_s = 0.0
                if paused:
                    consumer.resume(consumer.assignment())
                    paused = False
                self._poll(consumer, ledger, wanted)
            elif not heard:  # the group has to be served all the same
                idle_s = 0.0 if ledger.open else idle_s + POLL_S
                consumer.pause(consumer.assignment())
                paused = True
                self._poll(consumer, ledger, 0)
        self._obey(consumer, ledger, self._words)

    def _poll(self, consumer: ck.Consumer, ledger: Ledger, wanted: int) -> None:
        first = consumer.poll(POLL_S if wanted else 0)
        if first is not None:  # may be one of a partition that came after the pause
            more = consumer.consume(min(wanted, BATCH_MAX_RECORDS) - 1, 0) if wanted > 1 else []
            self._deliver([first, *more], ledger)

    def _obey(self, consumer: ck.Consumer, ledger: Ledger, words: list[tuple[Place, bool]]) -> None:
        store: dict[int, int] = {}
        for place, accepted in words:
            if accepted:
                through = ledger.settled(place)
                if through is not None:
                    store[place[0]] = through
            elif not self._stopping and ledger.rewound(place):
                with contextlib.suppress(ck.KafkaException):  # the partition was taken away meanwhile
                    consumer.seek(ck.TopicPartition(self._topic, *place))
        if store:
            with contextlib.suppress(ck.KafkaException):
                consumer.store_offsets(offsets=[ck.TopicPartition(self._topic, *each) for each in store.items()])

    def _deliver(self, messages: list[ck.Message], ledger: Ledger) -> None:
        delivered = []
        for message in messages:
            error = message.error()
            if error is not None:
                if not error.retriable():
                    log.warning("group %s: %s", self._group, error.str())
                continue
            place = (message.partition() or 0, message.offset() or 0)
            ledger.delivered(place)
            delivered.append(Delivered(place, message.value() or b"", last=False))
        if delivered:
            self._wanted -= len(delivered)  # until the worker says it anew, having seen these
            self._hand_over(delivered)


def _settings(connection: KafkaConnection, group: str) -> ConfluentSettings:
    return {
        **connection.for_confluent("worker-group"),
        "group.id": group,
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 1_000,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6_000,  # the least that brokers allow by default
        "heartbeat.interval.ms": 1_000,
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 1_000,
    }
