"""Topics that are not ours, and whether the cluster answers at all: what command lines ask before they begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic, ResourceType

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.core.errors import NoontideError

REACH_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 15.0
_REFUSALS: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)  # noqa: SLF001 - the names of its own errors


class Unreachable(NoontideError):
    """No broker answered in time."""


class Refused(NoontideError):
    """The brokers are there, and do not take these credentials or certificates."""


class Strength(NamedTuple):
    """How a topic is kept: partitions, replicas of each, and how many must have a record before it counts."""

    partitions: int
    replication: int
    min_insync_replicas: int


class Replicas(NamedTuple):
    """How a cluster is. brokers: alive; in_sync: every partition has all its replicas; leader: of the one asked for."""

    brokers: int
    in_sync: bool
    leader: int | None


def replicas_of(connection: KafkaConnection, topic: str, *, timeout_s: float) -> Replicas | None:
    """The state of the cluster and the leader of partition 0 of a topic; None when no broker answers."""
    try:
        found = AdminClient(connection.for_confluent("admin")).list_topics(timeout=timeout_s)
    except KafkaException:
        return None
    partitions = [each for one in found.topics.values() for each in one.partitions.values()]
    first = found.topics[topic].partitions.get(0) if topic in found.topics else None
    return Replicas(
        brokers=len(found.brokers),
        in_sync=all(len(each.isrs) == len(each.replicas) for each in partitions),
        leader=first.leader if first is not None and first.leader >= 0 else None,
    )


def check_reachable(connection: KafkaConnection, *, timeout_s: float = REACH_TIMEOUT_S) -> None:
    """Return when a broker answers. Raises Unreachable, or Refused, after `timeout_s`."""
    partition_counts(connection, (), timeout_s=timeout_s)


def partition_counts(
    connection: KafkaConnection, topics: Sequence[str], *, timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[str, int]:
    """Partitions of those topics that exist. Raises Unreachable, or Refused with what the brokers say."""
    refusals: list[str] = []

    def noted(error: KafkaError) -> None:
        if error.code() in _REFUSALS:
            refusals.append(error.str())

    admin = AdminClient({**connection.for_confluent("admin"), "error_cb": noted})  # type: ignore[dict-item] # the stubs
    try:
        known = admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        admin.poll(0)
        if refusals:
            raise Refused(f"{connection.bootstrap} lets nobody in with these settings: {refusals[0]}") from error
        raise Unreachable(f"no Kafka broker answers at {connection.bootstrap}") from error
    return {name: len(known.topics[name].partitions) for name in topics if name in known.topics}


def strength_of(connection: KafkaConnection, topic: str) -> Strength | None:
    """How a topic is kept; None when it does not exist. Raises Unreachable."""
    admin = AdminClient(connection.for_confluent("admin"))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.get(topic)
        if found is None:
            return None
        answers: Mapping[ConfigResource, Future[Mapping[str, ConfigEntry]]]
        answers = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        (settings,) = (answer.result(REQUEST_TIMEOUT_S) for answer in answers.values())
    except KafkaException as error:
        raise Unreachable(f"{connection.bootstrap}: {_text(error)}") from error
    replication = min((len(each.replicas) for each in found.partitions.values()), default=0)
    return Strength(len(found.partitions), replication, int(settings["min.insync.replicas"].value or 1))


def create_topics(
    connection: KafkaConnection, partitions: Mapping[str, int], *, config: Mapping[str, str]
) -> tuple[str, ...]:
    """Create those of the topics that do not exist, with the cluster's own replication; returns their names."""
    admin = AdminClient(connection.for_confluent("admin"))
    new = [NewTopic(name, num_partitions=count, config=dict(config)) for name, count in partitions.items()]
    created = []
    for name, answer in admin.create_topics(new, operation_timeout=REQUEST_TIMEOUT_S).items():
        try:
            answer.result(REQUEST_TIMEOUT_S)
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise Unreachable(f"{name} cannot be created: {_text(error)}") from error
    return tuple(created)


def _text(error: KafkaException) -> str:
    first = error.args[0]
    return str(first.str() if isinstance(first, KafkaError) else first)
