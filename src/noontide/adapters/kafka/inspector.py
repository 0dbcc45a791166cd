"""Preflight of other people's topics: a thread that looks at the topics in use every two seconds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.ports.record_log import TopicFacts

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 5.0
FORGET_AFTER_S: Final = 120.0
SILENCE_MAX_INSPECTIONS: Final = 3
BROKERS_MIN: Final = 2
"""On clusters of so many brokers a topic must survive the loss of one to be written in a slot's transaction."""
_CONFIGS: Final = ("max.message.bytes", "min.insync.replicas")
_T = TypeVar("_T")


@dataclass(slots=True)
class _Watched:
    """A topic in use."""

    asked_at_s: float
    facts: TopicFacts | None = None
    distrusted: str | None = None
    distrusted_in: int = 0


@dataclass(slots=True)
class _State:
    """Shared by the callers and the thread, under the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    watched: dict[str, _Watched] = field(default_factory=dict)
    inspection: int = 0  # number of the inspection that is under way or was the last
    silent: int = 0  # inspections in a row without an answer


class KafkaInspector:
    """`TopicInspector` on confluent-kafka's admin client; the thread starts with the first question.

    inspect_interval_ms: how often topics in use are looked at; those nobody asked about for two minutes are forgotten.
    """

    def __init__(self, connection: KafkaConnection, *, inspect_interval_ms: int = 2_000) -> None:
        self._connection = connection
        self._interval_s = inspect_interval_ms / 1000
        self._state = _State()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def facts(self, topic: str) -> TopicFacts | None:
        """See `TopicInspector.facts`; takes microseconds."""
        with self._state.lock:
            watched = self._state.watched.get(topic)
            if watched is None:
                self._state.watched[topic] = _Watched(time.monotonic())
            else:
                watched.asked_at_s = time.monotonic()
                return _told(watched, silent=self._state.silent >= SILENCE_MAX_INSPECTIONS)
        self._start()
        return None

    def distrust(self, topic: str, reason: str) -> None:
        """See `TopicInspector.distrust`; ended by an inspection that begins after this call."""
        with self._state.lock:
            watched = self._state.watched.setdefault(topic, _Watched(time.monotonic()))
            watched.distrusted, watched.distrusted_in = reason, self._state.inspection
        self._start()

    async def close(self) -> None:
        """End the thread; bounded, never raises."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 2 * REQUEST_TIMEOUT_S + 1)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kafka-inspector", daemon=True)
            self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        admin = AdminClient(self._connection.for_confluent("inspector"))
        while not self._stopping:
            self._wake.clear()
            if not self._inspect(admin):  # one that has missed a change of leaders knows better after a fresh start
                admin = AdminClient(self._connection.for_confluent("inspector"))
            self._wake.wait(self._interval_s)  # a new question wakes it

    def _inspect(self, admin: AdminClient) -> bool:
        """Look at all topics in use; False when nobody answered."""
        state = self._state
        with state.lock:
            oldest_s = time.monotonic() - FORGET_AFTER_S
            state.watched = {topic: each for topic, each in state.watched.items() if each.asked_at_s >= oldest_s}
            state.inspection += 1
            number, topics = state.inspection, sorted(state.watched)
        if not topics:
            return True
        try:
            found = look(admin, topics)
        except (ck.KafkaException, TimeoutError) as error:
            log.warning("topics could not be inspected: %s", error)
            with state.lock:
                state.silent += 1
            return False
        with state.lock:
            state.silent = 0
            self._store(found, number)
        return True

    def _store(self, found: Mapping[str, TopicFacts], number: int) -> None:
        for topic, facts in found.items():
            watched = self._state.watched.get(topic)
            if watched is not None:
                watched.facts = facts
                if watched.distrusted_in < number:
                    watched.distrusted = None


def _told(watched: _Watched, *, silent: bool) -> TopicFacts | None:
    facts = watched.facts
    if facts is None and watched.distrusted is None and not silent:
        return None
    facts = facts or TopicFacts(0, 0, None)
    if watched.distrusted is not None:
        return facts._replace(problem=watched.distrusted)
    return facts._replace(problem="the brokers do not answer") if silent else facts


def look(admin: AdminClient, topics: Sequence[str]) -> dict[str, TopicFacts]:
    """The facts of topics now, with two requests. Raises KafkaException or TimeoutError when nobody answers."""
    described = admin.describe_topics(
        ck.TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
    )
    found: dict[str, Any] = {}
    facts: dict[str, TopicFacts] = {}
    for topic, future in described.items():
        try:
            found[topic] = _result(future)
        except ck.KafkaException as error:
            if error.args[0].code() not in _ABOUT_THE_TOPIC:
                raise
            facts[topic] = TopicFacts(0, 0, _sentence(topic, error.args[0]))
    configs = _configs(admin, found)
    brokers = len(_result(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S)).nodes)
    return facts | {
        topic: _facts(topic, description, configs.get(topic), brokers) for topic, description in found.items()
    }


_ABOUT_THE_TOPIC: Final = {
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    ck.KafkaError.TOPIC_EXCEPTION,
    ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


def _sentence(topic: str, error: ck.KafkaError) -> str:
    match error.code():
        case ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return f"topic {topic} does not exist"
        case ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return f"topic {topic} may not be looked at"
        case _:
            return f"topic {topic}: {error.str()}"


def _configs(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, int]]:
    """The settings that matter, per topic; absent where they may not be read."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    if not resources:
        return {}
    answers = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    found: dict[str, dict[str, int]] = {}
    for resource, future in answers.items():
        try:
            entries = _result(future)
        except ck.KafkaException:
            continue
        found[resource.name] = {name: int(entries[name].value) for name in _CONFIGS if name in entries}
    return found


def _result(future: Future[_T]) -> _T:
    return future.result(REQUEST_TIMEOUT_S + 1)


def _facts(topic: str, description: Any, configs: dict[str, int] | None, brokers: int) -> TopicFacts:
    settings = configs or {}
    return TopicFacts(
        partitions=len(description.partitions),
        max_message_bytes=settings.get("max.message.bytes", 0),
        problem=_problem(topic, description, settings) or _exposure(topic, description, settings, brokers=brokers),
    )


def _problem(topic: str, description: Any, settings: Mapping[str, int]) -> str | None:
    operations = description.authorized_operations
    if operations and not {AclOperation.WRITE, AclOperation.ALL} & set(operations):
        return f"topic {topic} may not be written to"
    if not settings:
        return f"the settings of topic {topic} may not be read"
    for partition in description.partitions:
        if partition.leader is None or partition.leader.id < 0:
            return f"partition {partition.id} of topic {topic} has no leader"
        # Brokers take a min.insync.replicas above the number of replicas for that number.
        needed = min(settings["min.insync.replicas"], len(partition.replicas))
        if len(partition.isr) < needed:
            return f"partition {partition.id} of topic {topic} has {len(partition.isr)} of {needed} replicas in sync"
    return None


def _exposure(topic: str, description: Any, settings: Mapping[str, int], *, brokers: int) -> str | None:
    """A partition that one broker less stops: a transaction that touched it could not be ended, and its slot waits."""
    if brokers < BROKERS_MIN:
        return None
    for partition in description.partitions:
        replicas, needed = len(partition.replicas), settings.get("min.insync.replicas", 1)
        if replicas <= needed:
            return (
                f"partition {partition.id} of topic {topic} has {replicas} replicas and needs {min(needed, replicas)}: "
                "it does not survive the loss of a broker"
            )
    return None
