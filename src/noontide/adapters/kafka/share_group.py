"""Invitations from a share group (KIP-932): the broker hands each record to one member and waits for its word.

What the client (a preview) and the broker do, as measured, and what is made of it:

- `poll` is refused until every record of the last one is acknowledged. So a record is accepted as soon as the claim for
  it is in the log (the claim decides from there on), and nothing waits for an owner's answer.
- While there are fewer members than partitions each partition belongs to one member, and nobody else gets its records.
  So a member that can take nothing for a while leaves the group; joining takes 50 to 150 ms when the group's
  `share.assignment.interval.ms` is 0 (5 to 12 s with the default, the interval of heartbeats).
- `max.poll.records` is a wish: a transaction's records come together.
- A transaction's marker that comes without a record (the limit of a fetch fell between them) is never acknowledged by
  the client, which drops such an answer. The broker gives it again after each lock, up to the limit of deliveries (for
  150 s here), and hands out no more than 2,000 records beyond it meanwhile: the partition stands still. Leaving gives
  the marker back; it comes again with the records behind it, and is acknowledged with them. See `LoneMarkers`.
- A killed member keeps its partitions for `share.session.timeout.ms`; brokers allow no less than 45 s by default.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.group_thread import ASIDE_AFTER_S, POLL_S, GroupThread
from noontide.ports.run_source import Delivered, Place

log = logging.getLogger(__name__)

ADMIN_TIMEOUT_S: Final = 10.0
DELIVERIES_MAX: Final = 10

_NEEDED: Final = {
    "share.isolation.level": "read_committed",  # what an aborted cycle published was never published
    "share.auto.offset.reset": "earliest",  # what waits already is wanted
    "share.record.lock.duration.ms": "15000",  # the least there is: a killed worker's records come back sooner
}
_WISHED: Final = {
    "share.assignment.interval.ms": "0",
    "share.delivery.count.limit": str(DELIVERIES_MAX),
    "share.heartbeat.interval.ms": "1000",
    "share.session.timeout.ms": "6000",
}


class NoShareGroups(Exception):
    """The brokers have no share groups, or do not let us use them."""


def prepare_share_group(connection: KafkaConnection, group: str) -> None:
    """Set the group's configuration and become a member for a moment. Raises NoShareGroups with the reason.

    What the brokers do not allow of the wishes (a shorter session, for one) stays at their defaults.
    """
    admin = AdminClient(connection.for_confluent("share-admin"))
    try:
        _configure(admin, group, _NEEDED)
    except ck.KafkaException as error:
        raise NoShareGroups(str(error.args[0])) from error
    for name, value in _WISHED.items():
        try:
            _configure(admin, group, {name: value})
        except ck.KafkaException as error:
            log.debug("group %s keeps its %s: %s", group, name, error.args[0])


def _configure(admin: AdminClient, group: str, settings: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for answer in admin.incremental_alter_configs([resource], request_timeout=ADMIN_TIMEOUT_S).values():
        answer.result(ADMIN_TIMEOUT_S)


@dataclass(slots=True)
class Span:
    """What one partition has brought since the member joined: offsets. heard_s: when, in time spent with polling."""

    first: int
    last: int
    heard_s: float


class LoneMarkers:
    """Whether markers that came without a record hold up a partition, or are about to. For one membership; times in s.

    Nobody says in which partition a marker was, so the first to come near the limit counts. One that came in the same
    answer as records of other partitions is not noticed at all: what brought much and then nothing may stand still.
    """

    SPAN_MAX: Final = 1_500
    """Offsets of a partition, of the 2,000 that the broker hands out beyond a marker."""
    AGAIN_AFTER_S: Final = 20.0
    """One that has not come again for so long, more than its lock, was given up by the broker."""
    QUIET_S: Final = 1.0
    """A partition that brought `SPAN_MAX` and then nothing for so long is taken to stand still."""
    EARLY_S: Final = 0.95 * POLL_S
    """A poll that finds nothing lasts longer, unless it has met a marker."""

    def __init__(self) -> None:
        self.are_in_the_way = False
        """Time to leave the group and join again."""
        self._latest_s: float | None = None
        self._firsts: dict[int, int] = {}
        self._spans: dict[int, Span] = {}
        self._ended_s: float | None = None
        self._spent_s = 0.0

    def polled(self, places: Sequence[Place], *, began_s: float, ended_s: float) -> None:
        """A poll has returned with these records; one that returns early and empty has brought a marker alone."""
        self._stand_still(places, began_s=began_s, ended_s=ended_s)
        if self._latest_s is not None and ended_s - self._latest_s > self.AGAIN_AFTER_S:
            self._latest_s = None
            self._firsts.clear()
        if not places and ended_s - began_s < self.EARLY_S:
            self._latest_s = ended_s
        elif self._latest_s is not None:
            for partition, offset in places:
                if offset - self._firsts.setdefault(partition, offset) >= self.SPAN_MAX:
                    self.are_in_the_way = True

    def _stand_still(self, places: Sequence[Place], *, began_s: float, ended_s: float) -> None:
        # While the worker wants nothing it does not poll, and no partition can be heard.
        self._spent_s += ended_s - (began_s if self._ended_s is None else max(self._ended_s, began_s - POLL_S))
        self._ended_s = ended_s
        firsts = dict(reversed(places))
        for partition, last in dict(places).items():
            span = self._spans.setdefault(partition, Span(firsts[partition], last, self._spent_s))
            span.last, span.heard_s = last, self._spent_s
        for span in self._spans.values():
            if self._spent_s - span.heard_s >= self.QUIET_S and span.last - span.first >= self.SPAN_MAX:
                self.are_in_the_way = True


class ShareGroupSource(GroupThread[ck.AcknowledgeType]):
    """`RunSource` on one `ShareConsumer` in a thread. records_max: wished size of a delivery."""

    def __init__(self, connection: KafkaConnection, *, topic: str, group: str, records_max: int = 500) -> None:
        self._settings = _settings(connection, group, records_max)
        super().__init__(kind="share", topic=topic, group=group)

    def accept(self, places: Sequence[Place]) -> None:
        """See `RunSource.accept`."""
        self._say(places, ck.AcknowledgeType.ACCEPT)

    def release(self, places: Sequence[Place]) -> None:
        """See `RunSource.release`."""
        self._say(places, ck.AcknowledgeType.RELEASE)

    # --- in the thread

    def _be_member(self) -> None:
        """Join, take records, and leave when nothing is wanted for a while, or at the end."""
        consumer = ck.ShareConsumer(self._settings)
        open_places: set[Place] = set()
        markers = LoneMarkers()
        try:
            consumer.subscribe([self._topic])
            while self._may_poll(consumer, open_places) and not markers.are_in_the_way:
                began_s = time.monotonic()
                messages = consumer.poll(POLL_S)
                ended_s = time.monotonic()
                markers.polled(self._deliver(list(messages), open_places), began_s=began_s, ended_s=ended_s)
            if markers.are_in_the_way:
                log.debug("group %s: a marker may hold up a partition; joining again", self._group)
        finally:
            for place in open_places:
                self._acknowledge(consumer, place, ck.AcknowledgeType.RELEASE)
            with contextlib.suppress(ck.KafkaException):
                consumer.close()

    def _may_poll(self, consumer: ck.ShareConsumer, open_places: set[Place]) -> bool:
        """Pass on what is said about records until none is open and more are wanted; False to leave the group."""
        while True:
            with self._changed:
                ready = self._changed.wait_for(
                    lambda: self._words or self._stopping or (self._wanted > 0 and not open_places), ASIDE_AFTER_S
                )
                words, self._words = self._words, []
            for place, word in words:
                if place in open_places:
                    open_places.discard(place)
                    self._acknowledge(consumer, place, word)
            if self._stopping or (not ready and not open_places):
                return False
            if not open_places and self._wanted > 0:
                return True
            if words and not open_places:
                consumer.commit_async()  # else the next poll carries them

    def _deliver(self, messages: list[ck.Message], open_places: set[Place]) -> list[Place]:
        """Pass records on to the worker; returns where they stood."""
        delivered = []
        for message in messages:
            error = message.error()
            if error is not None:
                log.warning("group %s: %s", self._group, error.str())
                continue
            place = (message.partition() or 0, message.offset() or 0)
            last = (message.delivery_count() or 1) >= DELIVERIES_MAX
            delivered.append(Delivered(place, message.value() or b"", last))
        places = [each.place for each in delivered]
        open_places.update(places)
        if delivered:
            self._hand_over(delivered)
        return places

    def _acknowledge(self, consumer: ck.ShareConsumer, place: Place, word: ck.AcknowledgeType) -> None:
        try:
            consumer.acknowledge_offset(self._topic, *place, word)
        except (ck.KafkaException, RuntimeError) as error:  # its lock has expired: it comes again
            log.debug("group %s %s: %s", self._group, place, error)


def _settings(connection: KafkaConnection, group: str, records_max: int) -> ConfluentSettings:
    return {
        **connection.for_confluent("worker-share"),
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": records_max,
        "fetch.wait.max.ms": 100,
    }
