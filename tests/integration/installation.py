"""The topics of one Noontide on a real broker, as a foreign service sees them: it writes requests and reads records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import confluent_kafka as ck
import orjson
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from noontide.adapters.kafka.topics import ensure_topics
from noontide.records.topics import Layout

FACT_TIMEOUT_S = 60.0  # a wait ends when the fact holds; a slow machine needs the time
ADMIN_TIMEOUT_S = 15.0
Document = Mapping[str, object] | bytes
Headers = Sequence[tuple[str, bytes | None]]


def eventually(holds: Callable[[], bool], *, within_s: float = FACT_TIMEOUT_S, what: str = "") -> None:
    """Wait until a fact holds; nothing announces it, so it is looked at again and again."""
    patience = Patience(within_s)
    while not holds():
        assert patience.lasts(), f"not within {within_s:.0f} s: {what or holds}"
        time.sleep(0.02)


class Patience:
    """How long somebody goes on waiting; a time in which the machine stood still counts as a second."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self._asked_s = time.monotonic()

    def lasts(self) -> bool:
        """Whether there is time left."""
        now_s = time.monotonic()
        self._left_s -= min(now_s - self._asked_s, 1.0)
        self._asked_s = now_s
        return self._left_s > 0


class Seen(NamedTuple):
    """A record as a consumer sees it; `at_ms` is the broker's append time."""

    topic: str
    partition: int
    offset: int
    at_ms: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]

    @property
    def document(self) -> dict[str, object]:
        """The value as a JSON object."""
        found = orjson.loads(self.value or b"{}")
        assert isinstance(found, dict)
        return found

    @property
    def run_id(self) -> str:
        """The run that wrote this record to a target topic."""
        return (self.headers["noontide-run"] or b"").decode()


class TopicLog:
    """Everything committed on a topic, read from its beginning as far as one looks."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.records: list[Seen] = []
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "log_level": 2,
            }
        )
        self._consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(partitions)])

    def look(self) -> list[Seen]:
        """Read what has come since the last look; returns everything so far."""
        for message in self._consumer.consume(5_000, 0.05):
            if message.error() is None:
                self.records.append(_seen(message))
        return self.records

    def until(
        self, holds: Callable[[list[Seen]], object], *, within_s: float = FACT_TIMEOUT_S, what: str = ""
    ) -> list[Seen]:
        """Read until the records satisfy a condition, if they do not yet; returns them."""
        patience = Patience(within_s)
        while not holds(self.records):
            self.look()
            tail = [(each.key, (each.value or b"")[:300]) for each in self.records[-5:]]
            assert patience.lasts(), (
                f"{self.topic}: not within {within_s:.0f} s: {what}; {len(self.records)} records, last {tail}"
            )
        return self.records

    def of_key(self, key: str, count: int = 1, *, within_s: float = FACT_TIMEOUT_S) -> list[Seen]:
        """At least so many records with a key."""
        raw = key.encode()
        found = self.until(
            lambda all_: sum(each.key == raw for each in all_) >= count,
            within_s=within_s,
            what=f"{count} records with key {key}",
        )
        return [each for each in found if each.key == raw]

    def count(self, key: str) -> int:
        """Records with a key now."""
        return sum(each.key == key.encode() for each in self.look())

    def latest(self, key: str) -> Seen | None:
        """The last record with a key, None when there is none or it is a tombstone."""
        found = [each for each in self.look() if each.key == key.encode()]
        return found[-1] if found and found[-1].value is not None else None

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


def owner_records(installation: Installation) -> list[Seen]:
    """What owners said of their slots; standbys speak under keys of their own."""
    return [each for each in installation.log("owners").look() if b"/" not in (each.key or b"")]


def _seen(message: ck.Message) -> Seen:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = dict(message.headers() or ())
    return Seen(topic, partition, offset, message.timestamp()[1], message.key(), message.value(), headers)  # type: ignore[arg-type]


@dataclass(slots=True, kw_only=True)
class Installation:
    """The topics of one Noontide on a broker; requests are written as a foreign service writes them."""

    bootstrap: str
    layout: Layout
    admin: AdminClient
    producer: ck.Producer
    logs: dict[str, TopicLog] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def create(
        cls, bootstrap: str, prefix: str, *, partitions: int = 8, slots: int = 2, domains: Sequence[str] = ()
    ) -> Iterator[Self]:
        """Create the topics; small numbers of partitions are as good and faster."""
        layout = Layout(prefix=prefix, partitions=partitions, slots=slots)
        ensure_topics(bootstrap, layout, domains=("api", "public", *domains), lanes=())
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 2}
        partitioner: dict[str, str | int | float | bool] = {
            "partitioner": "murmur2_random",
            "linger.ms": 0,
            "message.max.bytes": 20_000_000,
        }
        producer = ck.Producer({**settings, **partitioner})
        made = cls(bootstrap=bootstrap, layout=layout, admin=AdminClient(settings), producer=producer)
        try:
            yield made
        finally:
            for log in made.logs.values():
                log.close()

    def name(self, topic: str) -> str:
        """Full name of one of Noontide's topics, from its short one."""
        return self.layout.prefix + topic

    def foreign(self, name: str) -> str:
        """A name for a topic of somebody else that no other test uses."""
        return f"{self.layout.prefix.rstrip('.')}-{name}"

    def log(self, topic: str) -> TopicLog:
        """The log of a topic by its full name, or by its short one when it is Noontide's."""
        full = topic if topic.startswith(self.layout.prefix.rstrip(".")) else self.name(topic)
        if full not in self.logs:
            partitions = len(self.admin.list_topics(full, timeout=ADMIN_TIMEOUT_S).topics[full].partitions)
            self.logs[full] = TopicLog(self.bootstrap, full, partitions)
        return self.logs[full]

    def forget_log(self, topic: str) -> None:
        """The topic was deleted: a new one of its name is read from the beginning."""
        self.logs.pop(topic).close()

    # --- writing

    def produce(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Append a record; returns partition and offset. Without a partition, Java's default partitioner decides."""
        written: list[ck.Message] = []
        failed: list[ck.KafkaError] = []

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            failed.append(error) if error is not None else written.append(message)

        where: dict[str, int] = {} if partition is None else {"partition": partition}
        self.producer.produce(topic, value, key, headers=list(headers), on_delivery=delivered, **where)  # type: ignore[arg-type]
        assert self.producer.flush(ADMIN_TIMEOUT_S) == 0, f"{topic} does not answer"
        assert not failed, failed
        return written[0].partition() or 0, written[0].offset() or 0

    def request(
        self,
        job_id: str,
        document: Document | None,
        *,
        kind: str | None = None,
        domain: str = "public",
        headers: Headers = (),
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Append a request; returns partition and offset."""
        value = orjson.dumps(document) if isinstance(document, Mapping) else document
        kinds: Headers = () if kind is None else [("kind", kind.encode())]
        return self.produce(
            self.name(f"requests.{domain}"),
            key=job_id.encode(),
            value=value,
            headers=[*kinds, *headers],
            partition=partition,
        )

    def request_many(self, documents: Mapping[str, Document], *, domain: str = "public") -> None:
        """Append many definitions at once."""
        for job_id, document in documents.items():
            value = orjson.dumps(document) if isinstance(document, Mapping) else document
            self.producer.produce(self.name(f"requests.{domain}"), value, job_id.encode())
            self.producer.poll(0)
        assert self.producer.flush(ADMIN_TIMEOUT_S) == 0

    def configure(self, key: str, document: Document | None) -> None:
        """Append a configuration."""
        value = orjson.dumps(document) if isinstance(document, Mapping) else document
        self.produce(self.name("config"), key=key.encode(), value=value, partition=0)

    # --- topics

    def create_topic(
        self, name: str, *, partitions: int = 2, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic of somebody else; returns its full name."""
        full = self.foreign(name)
        settings = {"message.timestamp.type": "LogAppendTime", **(config or {})}
        new = NewTopic(full, num_partitions=partitions, replication_factor=replication, config=settings)
        self.admin.create_topics([new])[full].result(ADMIN_TIMEOUT_S)
        eventually(lambda: self._leaders(full) == partitions, what=f"leaders of {full}")
        return full

    def create_target(
        self, name: str, *, partitions: int = 2, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and register it as a target."""
        full = self.create_topic(name, partitions=partitions, replication=replication, config=config)
        self.configure(f"target/{name}", {"topic": full, "tenants": ["*"]})
        return full

    def delete_topic(self, full: str) -> None:
        """Delete a topic and wait until the broker lists it no more."""
        self.admin.delete_topics([full])[full].result(ADMIN_TIMEOUT_S)
        eventually(lambda: full not in self.admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics, what=f"no {full}")

    def alter_topic(self, full: str, setting: str, value: str) -> None:
        """Change one setting of a topic."""
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, full, incremental_configs=[entry])
        for answer in self.admin.incremental_alter_configs([resource]).values():
            answer.result(ADMIN_TIMEOUT_S)

    def grow_topic(self, full: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.admin.create_partitions([NewPartitions(full, partitions)])[full].result(ADMIN_TIMEOUT_S)
        eventually(lambda: self._leaders(full) == partitions, what=f"leaders of {full}")

    def _leaders(self, full: str) -> int:
        found = self.admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics.get(full)
        return 0 if found is None else sum(each.leader >= 0 for each in found.partitions.values())
