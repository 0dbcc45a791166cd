"""Where a Kafka comes from: an address in the environment, a container, or else the embedded broker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.embedded.broker import EmbeddedKafka
from noontide.adapters.kafka.embedded.errors import EmbeddedKafkaError
from noontide.adapters.kafka.embedded.jars import KAFKA_VERSION
from noontide.adapters.kafka.embedded.ports import wanted_ports
from noontide.adapters.kafka.embedded.readiness import await_bootstrap

BOOTSTRAP_VARIABLE: Final = "NOONTIDE_KAFKA_BOOTSTRAP"
PROVIDER_VARIABLE: Final = "NOONTIDE_KAFKA_PROVIDER"
IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"
_ANSWER_TIMEOUT_S: Final = 30.0
_CONTAINER_TIMEOUT_S: Final = 120.0
_CONTAINER_PORT: Final = 9092
_INTERNAL_PORT: Final = 19092


@contextmanager
def kafka_provider(data_dir: Path | None = None, *, fast_start: bool = False) -> Iterator[str]:
    """The bootstrap address of a Kafka that answers, for as long as the context lasts.

    `NOONTIDE_KAFKA_BOOTSTRAP` names a running one; else `NOONTIDE_KAFKA_PROVIDER` chooses: `embedded` (the default;
    on data_dir, or on a temporary folder) or `testcontainers` (Docker; the extra of that name).
    Raises EmbeddedKafkaError when none can be had, or when the variable has another value.
    """
    if bootstrap := os.environ.get(BOOTSTRAP_VARIABLE):
        await_bootstrap(bootstrap, timeout_s=_ANSWER_TIMEOUT_S)
        yield bootstrap
        return
    match os.environ.get(PROVIDER_VARIABLE) or "embedded":
        case "embedded":
            with _embedded(data_dir, fast_start=fast_start) as bootstrap:
                yield bootstrap
        case "testcontainers":
            with _container() as bootstrap:
                yield bootstrap
        case other:
            raise EmbeddedKafkaError(f"{PROVIDER_VARIABLE} is {other!r}: it must be embedded or testcontainers")


@contextmanager
def _embedded(data_dir: Path | None, *, fast_start: bool) -> Iterator[str]:
    if data_dir is not None:
        with EmbeddedKafka(data_dir, fast_start=fast_start) as kafka:
            yield kafka.bootstrap
        return
    with (
        tempfile.TemporaryDirectory(prefix="noontide-kafka-", ignore_cleanup_errors=True) as folder,
        EmbeddedKafka(Path(folder), fast_start=fast_start) as kafka,
    ):
        yield kafka.bootstrap


@contextmanager
def _container() -> Iterator[str]:
    """Apache Kafka's own image; the port on the host is chosen first because Kafka has to advertise it."""
    try:
        from docker.errors import DockerException
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise EmbeddedKafkaError("testcontainers is not installed: pip install 'noontide[testcontainers]'") from error
    port = wanted_ports(first=0, names=("kafka",), remembered={})["kafka"]
    try:
        container = DockerContainer(IMAGE).with_bind_ports(_CONTAINER_PORT, port)
        host = container.get_container_host_ip()
        container.with_envs(**_container_settings(f"{host}:{port}")).start()
    except DockerException as error:
        raise EmbeddedKafkaError(f"cannot run {IMAGE} with Docker: {' '.join(str(error).split())[:200]}") from error
    try:
        await_bootstrap(f"{host}:{port}", timeout_s=_CONTAINER_TIMEOUT_S)
        yield f"{host}:{port}"
    finally:
        container.stop()


def _container_settings(address: str) -> dict[str, str]:
    """One node that is broker and controller, and as frugal as the embedded one."""
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{_CONTAINER_PORT},INTERNAL://:{_INTERNAL_PORT},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{address},INTERNAL://localhost:{_INTERNAL_PORT}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
