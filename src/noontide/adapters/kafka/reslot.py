"""Change the number of slots while nothing runs: `config/meta` first, then a fence for every owner, then the records.

    config/meta: moving = copy ──▶ all transactional ids fenced ──▶ everything read into `<prefix>reslot`
                 moving = replace ──▶ topics of a slot's own deleted, made anew, and filled from there ──▶ moving gone

Before `replace` nothing is lost when it is interrupted: it begins again. From then on `<prefix>reslot` has everything,
and it goes on with that. No process starts meanwhile, because `config/meta` says that it is not finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import KafkaException, Producer

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.topic_plan import LayoutMismatch, Meta
from noontide.adapters.kafka.topics import ClusterError, TopicSession
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.leases import decode_lease
from noontide.records.moving import Moved, Moving
from noontide.records.runs import decode_invitation
from noontide.records.topics import Layout, load_catalogue

log = logging.getLogger(__name__)

STAGING: Final = "reslot"
TOPIC, PARTITION = "reslot-topic", "reslot-partition"
COPY, REPLACE = "copy", "replace"
FENCE_TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 600.0  # 64 slots are 4,096 partitions of `signals`, which small brokers take a while for
_REMADE: Final = ("state", "leases", "signals", "worker-events", "runs")
_STAGED_KEEP: Final = {"retention.ms": "-1", "cleanup.policy": "delete", "max.message.bytes": "2097152"}
_EXISTS: Final = -1
"""Partition of a record in the staging topic that only says that the topic has to be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reslotted:
    """What was done: how many records were moved."""

    old_slots: int
    new_slots: int
    records: int


def reslot(
    connection: KafkaConnection, prefix: str, slots: int, *, group: str, say: Callable[[str], None]
) -> Reslotted:
    """Change the number of slots, or go on with a change that was interrupted.

    group: full name of the schedulers' group, which must have no members. Raises LayoutMismatch (nothing to do, or
    something else is unfinished), ClusterError (schedulers are running, or the cluster refuses), Unmovable, Doubt.
    """
    with TopicSession(connection, Layout(prefix=prefix), patience_s=PATIENCE_S) as session:
        meta = session.found(with_config=False).meta
        _check(session, meta, slots, group)
        assert meta is not None
        old_slots = meta.slots if meta.moving is None else meta.former_slots[-1]
        former = meta.former_slots if meta.moving is not None else (*meta.former_slots, meta.slots)
        wanted = Meta(partitions=meta.partitions, slots=slots, former_slots=former, moving=meta.moving or COPY)
        moving = Moving(replace(meta, slots=old_slots).layout(prefix), wanted.layout(prefix))
        return _Reslot(connection, session, moving, say).run(wanted)


def _check(session: TopicSession, meta: Meta | None, slots: int, group: str) -> None:
    if meta is None:
        raise LayoutMismatch(("there are no topics; `noontide topics apply --slots` makes them",))
    if meta.moving is not None and meta.slots != slots:
        raise LayoutMismatch((f"a change to {meta.slots} slots is not finished; that has to be first",))
    if meta.moving is None and meta.slots == slots:
        raise LayoutMismatch((f"there are {slots} slots already",))
    Layout(partitions=meta.partitions, slots=slots)
    if members := session.members(group):
        raise ClusterError(f"{members} schedulers are running (group {group}): stop them first, and the workers")


class _Reslot:
    """One change."""

    def __init__(
        self, connection: KafkaConnection, session: TopicSession, moving: Moving, say: Callable[[str], None]
    ) -> None:
        self._connection = connection
        self._session = session
        self._moving = moving
        self._say = say
        self._replay = KafkaReplay(connection)
        self._staging = f"{moving.new.prefix}{STAGING}"

    def run(self, meta: Meta) -> Reslotted:
        if meta.moving == COPY:
            self._session.write_meta(meta)
            self._fence()
            self._stage()
            meta = replace(meta, moving=REPLACE)
            self._session.write_meta(meta)
        self._say("making the topics anew")
        self._remake()
        count = self._fill()
        self._forget_owners()
        self._session.write_meta(replace(meta, moving=None))
        self._session.delete([self._staging])
        return Reslotted(old_slots=self._moving.old.slots, new_slots=self._moving.new.slots, records=count)

    def _fence(self) -> None:
        """Every owner there may be loses its transactional id; what it left open is settled."""
        slots = max(self._moving.old.slots, self._moving.new.slots)
        self._say(f"fencing {slots} owners")
        for slot in range(slots):
            identity = f"{self._moving.new.prefix}slot-{slot}"
            try:
                settings = {**self._connection.for_confluent("reslot"), "transactional.id": identity}
                Producer(settings).init_transactions(FENCE_TIMEOUT_S)
            except KafkaException as error:
                raise ClusterError(f"{identity} could not be fenced: {error.args[0].str()}") from error

    # --- into the staging topic

    def _stage(self) -> None:
        """Everything that has to stay, each with the topic and partition it belongs to."""
        self._session.delete([self._staging])
        self._session.create_one(self._staging, config=_STAGED_KEEP)
        producer, count = RequestProducer(self._connection, timeout_s=120.0), 0
        at = TopicPartition(self._staging, 0)
        for moved in self._moved():
            marks = [(TOPIC, moved.topic.encode()), (PARTITION, b"%d" % moved.partition)]
            record = Record(moved.record.key, moved.record.value, [*moved.record.headers, *marks])
            producer.send(at, record, lambda _at, _offset: None)
            count += 1
            if count % 100_000 == 0:
                self._say(f"{count:,} records copied")
        producer.flush()
        found = self._replay.stable_offsets([at])[at]
        if found < count:
            raise ClusterError(f"{self._staging} has {found} records, not {count}; begin again")

    def _moved(self) -> Iterator[Moved]:
        for name in self._remade():
            yield Moved(name, _EXISTS, Record(b"", b""))
        yield from filter(None, map(self._moving.state, self._records("state")))
        yield from map(self._lease, self._records("leases"))
        yield from self._moving.anew()
        yield from filter(None, map(self._moving.signal, self._records("signals", unread=True)))
        for topic in self._instances("worker-events"):
            for record in self._records(topic, unread=True):
                for slot, frame in self._moving.frames(record):
                    yield Moved(topic, slot, Record(record.key, frame, record.headers))
        for topic in self._instances("runs"):
            yield from self._invitations(topic)

    def _lease(self, record: Incoming) -> Moved:
        run = None if record.value is None else decode_lease(record.key or b"", record.value)
        return self._moving.lease(record, run)

    def _invitations(self, topic: str) -> Iterator[Moved]:
        for record in self._records(topic):
            try:
                invitation = decode_invitation(record.value or b"")
            except ValueError:
                continue
            found = self._moving.invitation(record, invitation.run_id, invitation.attempt)
            if found is not None:
                slot, kept = found
                yield Moved(topic, self._moving.new.runs_partitions_of(slot)[0], kept)

    def _remade(self) -> list[str]:
        """Short names of all topics that are made anew."""
        return [name for topic in _REMADE for name in self._instances(topic)]

    def _instances(self, topic: str) -> list[str]:
        """Short names of the topics that a file describes."""
        file = load_catalogue()[topic]
        names = map(self._moving.old.short, self._session.found(with_config=False).topics)
        return sorted(name for name in names if load_catalogue().match(name) is file)

    def _records(self, topic: str, *, unread: bool = False) -> Iterator[Incoming]:
        name = f"{self._moving.old.prefix}{topic}"
        partitions = [TopicPartition(name, each) for each in range(self._session.partitions(name))]
        ends = self._replay.end_offsets(partitions)
        positions = {at: min(self._position(topic, at.partition), ends[at]) if unread else 0 for at in partitions}
        for chunk in self._replay.read(positions, ends):
            yield from chunk

    def _position(self, topic: str, partition: int) -> int:
        """Up to where the owner had read; `signals` have a partition for each pair of slots."""
        is_signals = topic == "signals"
        slot = partition // self._moving.old.slots if is_signals else partition
        name = f"{topic}/{partition}" if is_signals else topic
        return self._moving.mailboxes.get(slot, {}).get(name, 0)

    # --- and back

    def _remake(self) -> None:
        new = self._moving.new
        self._session.remake(sorted({f"{new.prefix}{moved.topic}" for moved in self._staged()}), new)
        for name, topic in self._session.found(with_config=False).topics.items():
            file = load_catalogue().match(new.short(name))
            if file is not None and topic.partitions < (wanted := new.topic_partitions(file.topic)):
                self._session.grow(name, wanted)

    def _staged(self) -> Iterator[Moved]:
        at = TopicPartition(self._staging, 0)
        ends = self._replay.end_offsets([at])
        for chunk in self._replay.read({at: 0}, ends):
            for record in chunk:
                headers = dict(record.headers)
                own = [(name, value) for name, value in record.headers if name not in (TOPIC, PARTITION)]
                where = headers[TOPIC].decode(), int(headers[PARTITION])
                yield Moved(*where, Record(record.key, record.value, own))

    def _fill(self) -> int:
        producer, count = RequestProducer(self._connection, timeout_s=120.0), 0
        for moved in self._staged():
            if moved.partition == _EXISTS:
                continue
            at = TopicPartition(f"{self._moving.new.prefix}{moved.topic}", moved.partition)
            producer.send(at, moved.record, lambda _at, _offset: None)
            count += 1
            if count % 100_000 == 0:
                self._say(f"{count:,} records in their new places")
        producer.flush()
        return count

    def _forget_owners(self) -> None:
        """Nobody owns anything now."""
        at = TopicPartition(self._moving.new.name("owners"), 0)
        ends = self._replay.end_offsets([at])
        keys = {
            record.key for chunk in self._replay.read({at: 0}, ends) for record in chunk if record.value is not None
        }
        producer = RequestProducer(self._connection)
        for key in keys:
            producer.send(at, Record(key, None), lambda _at, _offset: None)
        producer.flush()
