"""Settings of an embedded broker and of its JVM, each with the reason where it is not Kafka's default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.embedded.ports import HOST

_LOGGER: Final = "-Dorg.slf4j.simpleLogger."
_LOG4J_OFF: Final = "-Dlog4j2.disable.jmx=true"

JVM_OPTIONS: Final = (
    "-Xms512m",  # reserved, and taken when it is first needed
    "-Xmx512m",
    "-XX:+UseG1GC",  # with the serial collector the broker stood still for 110 ms every 6 s of load
    "-XX:MaxGCPauseMillis=20",
    "-XX:-UsePerfData",  # no mmapped statistics file below the temp folder
    "-Djava.awt.headless=true",
    "-XX:+IgnoreUnrecognizedVMOptions",  # Java 17 does not know the next two
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    _LOG4J_OFF,
    f"{_LOGGER}defaultLogLevel=warn",
    f"{_LOGGER}showDateTime=true",
    f"{_LOGGER}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)
FAST_START: Final = "-XX:TieredStopAtLevel=1"
"""Starts sooner and costs about twice the processor time per message once warm: for short tests only."""

_FIXED: Final[Mapping[str, object]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",  # topics come from topics/*.yaml; a misspelt name must be an error
    "offsets.topic.num.partitions": 4,  # 50 by default: each costs files and start time
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
    "group.share.min.session.timeout.ms": 6_000,  # a killed worker's partitions are shared out anew after 6 s, not 45
    "group.share.session.timeout.ms": 6_000,
    "group.share.min.heartbeat.interval.ms": 1_000,
    "group.share.heartbeat.interval.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,  # no waiting for further members in development
    "log.cleaner.dedupe.buffer.size": 2 << 20,  # 128 MB by default, out of a 512 MB heap
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "broker.session.timeout.ms": 2_000,  # a killed broker is noticed, and may come back, after 2 s instead of 9
    "broker.heartbeat.interval.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1_000,
    "controller.quorum.election.timeout.ms": 500,
    "controlled.shutdown.enable": "true",
}
_INTERNAL_TOPICS: Final = ("transaction.state.log", "share.coordinator.state.topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker's place in the cluster: its index from 0, and the ports of all, by index."""

    index: int
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    data: Path
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        return len(self.ports) == 1


def server_properties(node: Node) -> str:
    """The text of server.properties for one broker; overrides win over everything else."""
    settings = {**_FIXED, **_listeners(node), **_replication(len(node.ports)), **node.overrides}
    return "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(settings.items()))


def _listeners(node: Node) -> dict[str, object]:
    port, controller_port = node.ports[node.index], node.controller_ports[node.index]
    return {
        "node.id": node.index + 1,
        "log.dirs": node.data,
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        **_quorum(node),
    }


def _quorum(node: Node) -> dict[str, object]:
    if node.alone:
        return {"controller.quorum.bootstrap.servers": f"{HOST}:{node.controller_ports[0]}"}
    voters = (f"{index + 1}@{HOST}:{port}" for index, port in enumerate(node.controller_ports))
    return {"controller.quorum.voters": ",".join(voters)}


def _replication(brokers: int) -> dict[str, object]:
    """Three copies and two in sync where there are three brokers, as in production; else what there is."""
    factor, in_sync = min(3, brokers), min(2, brokers)
    internal = {f"{topic}.replication.factor": factor for topic in _INTERNAL_TOPICS}
    internal |= {f"{topic}.min.isr": in_sync for topic in _INTERNAL_TOPICS}
    return {
        **internal,
        "offsets.topic.replication.factor": factor,
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
    }


def _escaped(value: object) -> str:
    """A Java properties value: a backslash starts an escape."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n")
