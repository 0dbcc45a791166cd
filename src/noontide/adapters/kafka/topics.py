"""Compare the topic files to a cluster, create what is missing, and keep `config/meta`.

Uses confluent-kafka's AdminClient: it has IncrementalAlterConfigs, while the AlterConfigs of aiokafka's admin client
resets every setting it is not told about, those of operators included. Everything here blocks, bounded; coroutines
call it through `asyncio.to_thread`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from time import monotonic

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.topic_plan import (
    ConfigChange,
    Found,
    FoundTopic,
    LayoutMismatch,
    Meta,
    Plan,
    WantedTopic,
    compare,
    effective_config,
    layout_problems,
    same_value,
    wanted_topics,
)
from noontide.core.errors import NoontideError
from noontide.records.topics import DEFAULT_DOMAINS, DEFAULT_LANES, Layout, load_catalogue

TIMEOUT_S = 30.0
_POLL_S = 0.02
META_KEY = b"meta"


class ClusterError(NoontideError):
    """The cluster could not be asked, or refused something; the message says what."""


def plan_topics(
    cluster: str | KafkaConnection,
    layout: Layout,
    *,
    domains: Iterable[str] = DEFAULT_DOMAINS,
    lanes: Iterable[str] = DEFAULT_LANES,
    replication: int | None = None,
) -> Plan:
    """What `apply_plan` would do; changes nothing. Raises ClusterError."""
    wanted = wanted_topics(layout, domains=domains, lanes=lanes)
    with TopicSession(cluster, layout) as session:
        return compare(layout, wanted, found=session.found(with_config=True), replication=replication)


def apply_plan(cluster: str | KafkaConnection, layout: Layout, *, plan: Plan) -> None:
    """Create the missing topics, change the settings, write `config/meta` if there is none.

    Raises LayoutMismatch, having changed nothing, when the plan has problems; ClusterError otherwise.
    """
    if plan.problems:
        raise LayoutMismatch(plan.problems)
    with TopicSession(cluster, layout) as session:
        session.create(plan)
        session.change(plan)
        if plan.write_meta:
            session.write_meta(plan.meta)


def ensure_topics(
    cluster: str | KafkaConnection,
    layout: Layout,
    *,
    domains: Iterable[str] = DEFAULT_DOMAINS,
    lanes: Iterable[str] = DEFAULT_LANES,
    replication: int | None = None,
) -> tuple[str, ...]:
    """Create what is missing, in one call, and return the names; settings of existing topics are left as they are.

    When it returns every partition has a leader. Raises LayoutMismatch as `apply_plan` does, and ClusterError.
    """
    wanted = wanted_topics(layout, domains=domains, lanes=lanes)
    with TopicSession(cluster, layout) as session:
        plan = compare(layout, wanted, found=session.found(with_config=False), replication=replication)
        if plan.problems:
            raise LayoutMismatch(plan.problems)
        session.create(plan)
        if plan.write_meta:
            session.write_meta(plan.meta)
        return tuple(topic.name for topic in plan.missing)


def read_meta(cluster: str | KafkaConnection, layout: Layout) -> Meta | None:
    """What `config/meta` says; None when it has not been written. Only the prefix of `layout` matters."""
    with TopicSession(cluster, layout) as session:
        return session.found(with_config=False).meta


def check_layout(cluster: str | KafkaConnection, layout: Layout) -> None:
    """Raise LayoutMismatch unless topics, `config/meta` and this layout agree; what every process does at its start."""
    with TopicSession(cluster, layout) as session:
        if problems := layout_problems(layout, session.found(with_config=False)):
            raise LayoutMismatch(problems)


class TopicSession:
    """One admin client for one layout; turns the client's errors into ClusterError.

    patience_s: how long a change may take until all brokers know of it.
    """

    def __init__(self, cluster: str | KafkaConnection, layout: Layout, *, patience_s: float = TIMEOUT_S) -> None:
        self._patience_s = patience_s
        self._connection = KafkaConnection(cluster) if isinstance(cluster, str) else cluster
        self._layout = layout

    def __enter__(self) -> TopicSession:
        self._admin = AdminClient(dict(self._connection.for_confluent("topics")))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KafkaException):
            raise ClusterError(f"{self._connection.bootstrap}: {_text(error)}") from error

    def found(self, *, with_config: bool) -> Found:
        """What the cluster has under the prefix; Kafka's own `__*` are not looked at, even when the prefix is empty."""
        metadata = self._metadata()
        ours = (name for name in metadata.topics if name.startswith(self._layout.prefix) and not name.startswith("__"))
        named = {name: metadata.topics[name] for name in ours}
        configs = self._configs(named) if with_config else {}
        topics = {name: _found_topic(topic, configs.get(name, {})) for name, topic in named.items()}
        config = self._layout.name("config")
        meta = self._read_meta(config) if config in topics else None
        return Found(brokers=len(metadata.brokers), topics=topics, meta=meta)

    def create(self, plan: Plan) -> None:
        """Create all missing topics with one request and wait until each partition has a leader."""
        new = [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=plan.replication,
                config=effective_config(topic.file, replication=plan.replication),
            )
            for topic in plan.missing
        ]
        if new:
            answers = self._admin.create_topics(new, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
            _await_all(answers.values())
            counts = {topic.name: topic.partitions for topic in plan.missing}
            self._await_none(lambda: self._without_leaders(counts), what="no leaders")

    def remake(self, names: Sequence[str], layout: Layout) -> None:
        """Delete those of our topics that exist, and make all of them as the layout says, with as many replicas."""
        found = self.found(with_config=False)
        replication = found.topics[layout.name("jobs")].replication
        self.delete(names)
        wanted = []
        for name in names:
            file = load_catalogue().match(layout.short(name))
            assert file is not None, name
            wanted.append(WantedTopic(name=name, file=file, partitions=layout.topic_partitions(file.topic)))
        self.create(replace(compare(layout, (), found=found, replication=replication), missing=tuple(wanted)))

    def create_one(self, name: str, *, config: Mapping[str, str]) -> None:
        """A topic of one partition that no file describes, as safe as `jobs`."""
        replication = self.found(with_config=False).topics[self._layout.name("jobs")].replication
        in_sync = {"min.insync.replicas": str(max(1, replication - 1))}
        new = NewTopic(name, num_partitions=1, replication_factor=replication, config={**in_sync, **config})
        _await_all(self._admin.create_topics([new], operation_timeout=TIMEOUT_S).values())
        self._await_none(lambda: self._without_leaders({name: 1}), what="no leaders")

    def delete(self, names: Sequence[str]) -> None:
        """Delete those of the topics that exist, and wait until they are gone."""
        existing = [name for name in names if name in self._metadata().topics]
        if existing:
            answers = self._admin.delete_topics(existing, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
            for answer in answers.values():
                answer.result(TIMEOUT_S)
            self._await_none(lambda: [name for name in existing if name in self._metadata().topics], what="not deleted")

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic."""
        answers = self._admin.create_partitions([NewPartitions(name, partitions)], operation_timeout=TIMEOUT_S)
        _await_all(answers.values())
        self._await_none(lambda: self._without_leaders({name: partitions}), what="no leaders")

    def partitions(self, name: str) -> int:
        """How many partitions a topic has; 0 when it does not exist."""
        topics = self._metadata().topics
        return len(topics[name].partitions) if name in topics else 0

    def members(self, group: str) -> int:
        """How many members a consumer group has."""
        (answer,) = self._admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S).values()
        try:
            return len(answer.result(TIMEOUT_S).members)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            raise

    def change(self, plan: Plan) -> None:
        """Set the settings that differ, and only them, with one request, and wait until they are seen."""
        by_topic: dict[str, list[ConfigEntry]] = {}
        for change in plan.changes:
            entry = ConfigEntry(change.setting, change.new, incremental_operation=AlterConfigOpType.SET)
            by_topic.setdefault(change.topic, []).append(entry)
        resources = [
            ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name, entries in by_topic.items()
        ]
        if resources:
            _await_all(self._admin.incremental_alter_configs(resources, request_timeout=TIMEOUT_S).values())
            self._await_none(lambda: self._unchanged(plan.changes), what="not changed")

    def write_meta(self, meta: Meta) -> None:
        """Append `config/meta`, acknowledged by all in-sync replicas."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        value = _meta_record(meta)
        # No idempotence: a second copy is harmless. A broker that still makes the logs is asked again soon.
        settings: dict[str, str | int | bool] = {"acks": "all", "retry.backoff.ms": 20, "retry.backoff.max.ms": 100}
        producer = Producer({**self._connection.for_confluent("topics"), **settings})
        producer.produce(self._layout.name("config"), value, META_KEY, partition=0, on_delivery=delivered)
        if producer.flush(TIMEOUT_S) or failures:
            raise ClusterError(f"config/meta was not written: {failures[0].str() if failures else 'no answer'}")

    def _metadata(self) -> ClusterMetadata:
        return self._admin.list_topics(timeout=TIMEOUT_S)

    def _configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        answers: Mapping[ConfigResource, Future[Mapping[str, ConfigEntry]]]
        answers = self._admin.describe_configs(resources, request_timeout=TIMEOUT_S)
        return {
            resource.name: {name: str(entry.value) for name, entry in answer.result(TIMEOUT_S).items()}
            for resource, answer in answers.items()
        }

    def _await_none(self, remaining: Callable[[], list[str]], *, what: str) -> None:
        """Wait until nothing remains: the controller answers before every broker knows."""
        deadline = monotonic() + self._patience_s
        while names := remaining():
            if monotonic() > deadline:
                raise ClusterError(f"{what} after {self._patience_s:.0f} s: {', '.join(names)}")
            self._admin.poll(_POLL_S)

    def _unchanged(self, changes: Iterable[ConfigChange]) -> list[str]:
        configs = self._configs({change.topic for change in changes})
        return [
            f"{change.topic} {change.setting}"
            for change in changes
            if not same_value(configs[change.topic].get(change.setting), change.new)
        ]

    def _without_leaders(self, partitions: Mapping[str, int]) -> list[str]:
        found = self._metadata().topics
        return [name for name, count in partitions.items() if name not in found or _leaders(found[name]) != count]

    def _read_meta(self, topic: str) -> Meta | None:
        """The last `meta` record of `config`, read to the end as of now."""
        settings: dict[str, str | int | bool] = {"group.id": "unused", "enable.auto.commit": False}
        # An empty fetch at the end would be held back for half a second by default.
        ends: dict[str, str | int | bool] = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        with Consumer({**self._connection.for_confluent("topics"), **settings, **ends}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            return _last_meta(consumer)


def _last_meta(consumer: Consumer) -> Meta | None:
    value: bytes | None = None
    deadline = monotonic() + TIMEOUT_S
    while monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if (error := message.error()) is None:
            value = message.value() if message.key() == META_KEY else value
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # its public constant has an underscore
            return None if value is None else _parsed_meta(value)
        elif not error.retriable() and message.topic() is not None:  # one of no topic is about the group, unused here
            raise KafkaException(error)
    raise ClusterError(f"the end of config was not reached within {TIMEOUT_S:.0f} s")


def _meta_record(meta: Meta) -> bytes:
    fields: dict[str, object] = {"partitions": meta.partitions, "slots": meta.slots, "version": meta.version}
    if meta.former_slots:
        fields["former_slots"] = list(meta.former_slots)
    if meta.moving is not None:
        fields["moving"] = meta.moving
    return orjson.dumps(fields)


def _parsed_meta(value: bytes) -> Meta:
    try:
        fields = orjson.loads(value)
        return Meta(
            partitions=int(fields["partitions"]),
            slots=int(fields["slots"]),
            version=int(fields["version"]),
            former_slots=tuple(map(int, fields.get("former_slots", ()))),
            moving=fields.get("moving"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LayoutMismatch((f"config/meta cannot be read: {value[:200]!r}",)) from error


def _found_topic(topic: TopicMetadata, config: Mapping[str, str]) -> FoundTopic:
    replication = min((len(partition.replicas) for partition in topic.partitions.values()), default=0)
    return FoundTopic(partitions=len(topic.partitions), replication=replication, config=config)


def _leaders(topic: TopicMetadata) -> int:
    return sum(partition.leader >= 0 for partition in topic.partitions.values())


def _await_all(answers: Iterable[Future[None]]) -> None:
    """Wait for every answer; a topic that somebody else has just created is as good as ours."""
    for answer in answers:
        try:
            answer.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _text(error: KafkaException) -> str:
    first = error.args[0]
    return str(first.str() if isinstance(first, KafkaError) else first)
