"""Ports, broker settings, limits, and what a failed start says."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from noontide.adapters.kafka.embedded import EmbeddedKafka, EmbeddedKafkaError
from noontide.adapters.kafka.embedded import broker as broker_module
from noontide.adapters.kafka.embedded.errors import PortInUseError
from noontide.adapters.kafka.embedded.folder import BrokerFolder
from noontide.adapters.kafka.embedded.ports import HOST, is_free, wanted_ports
from noontide.adapters.kafka.embedded.process import failure, new_cluster_id
from noontide.adapters.kafka.embedded.settings import Node, server_properties


def properties_of(node: Node) -> dict[str, str]:
    return dict(line.split("=", 1) for line in server_properties(node).splitlines())


def one_node(**overrides: str) -> Node:
    return Node(index=0, ports=(9092,), controller_ports=(9093,), data=Path("/data"), overrides=overrides)


def test_one_broker_replicates_nothing_and_forms_its_own_quorum() -> None:
    settings = properties_of(one_node())
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:9093"
    assert settings["auto.create.topics.enable"] == "false"
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert settings[f"{topic}.replication.factor"] == "1"
    assert "log.message.timestamp.type" not in settings
    assert "transaction.max.timeout.ms" not in settings


def test_three_brokers_keep_three_copies_two_in_sync() -> None:
    node = Node(index=2, ports=(1, 2, 3), controller_ports=(4, 5, 6), data=Path("/data"))
    settings = properties_of(node)
    assert settings["node.id"] == "3"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:3"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:4,2@127.0.0.1:5,3@127.0.0.1:6"
    assert (settings["default.replication.factor"], settings["min.insync.replicas"]) == ("3", "2")
    assert settings["share.coordinator.state.topic.min.isr"] == "2"


def test_overrides_win() -> None:
    settings = properties_of(one_node(**{"broker.session.timeout.ms": "9000", "log.dir.note": "a\\b"}))
    assert settings["broker.session.timeout.ms"] == "9000"
    assert settings["log.dir.note"] == "a\\\\b"


def test_no_cluster_id_looks_like_an_option() -> None:
    assert all(len(each) == 22 and not each.startswith("-") for each in (new_cluster_id() for _ in range(2_000)))


def test_ports_asked_for_are_consecutive() -> None:
    first = next(port for port in range(20_000, 32_000, 2) if is_free(port) and is_free(port + 1))
    assert wanted_ports(first=first, names=("a", "b"), remembered={"a": 1}) == {"a": first, "b": first + 1}


def test_a_port_asked_for_and_taken_is_an_error() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} is in use: stop what listens on it"):
            wanted_ports(first=port, names=("a",), remembered={})


def test_remembered_ports_are_kept_while_free() -> None:
    first = wanted_ports(first=0, names=("a", "b"), remembered={})
    assert len(set(first.values())) == 2
    assert wanted_ports(first=0, names=("a", "b"), remembered=first) == first
    with socket.create_server((HOST, first["a"])):
        second = wanted_ports(first=0, names=("a", "b"), remembered=first)
    assert second["b"] == first["b"]
    assert second["a"] not in first.values()


def test_new_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port < max(lowest, 32_000) for port in wanted_ports(first=0, names=("a", "b"), remembered={}).values())


@pytest.mark.parametrize(
    "logged, expected",
    [
        ("java.net.BindException: Address already in use", "port 9092 is in use"),
        ("java.io.IOException: No space left on device", "no disk space left for"),
        ("java.nio.file.FileSystemException: x: Too many open files", "too few file descriptors: raise `ulimit -n`"),
        ("There is insufficient memory for the Java Runtime Environment", "not enough memory for the Kafka broker"),
        ("WARN a\nERROR Exiting Kafka due to x\n\tat org.X.y(Z)\n", "it failed: ERROR Exiting Kafka due to x"),
        ("WARN only this", "it failed: WARN only this"),
        ("", "it failed: nothing was logged"),
    ],
)
def test_a_failed_broker_is_explained_in_one_line(tmp_path: Path, logged: str, expected: str) -> None:
    folder = BrokerFolder(path=tmp_path)
    before = "ERROR of an earlier start\n"
    folder.log.write_text(before + logged)
    found = str(failure(folder, what="it failed", port=9092, since_bytes=len(before)))
    assert found.startswith(expected)
    assert "\n" not in found


def test_a_failure_names_the_log(tmp_path: Path) -> None:
    folder = BrokerFolder(path=tmp_path)
    folder.log.write_text("ERROR x")
    assert f"(log: {tmp_path}/broker.log)" in str(failure(folder, what="it failed", port=1, since_bytes=0))


class Limits:
    """Stands in for the process's limit of open files."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)

    def get(self, _: int) -> tuple[int, int]:
        return self.now

    def set(self, _: int, limits: tuple[int, int]) -> None:
        self.now = limits


@pytest.mark.parametrize("hard, enough", [(1_023, False), (1_024, True), (500_000, True)])
def test_the_limit_of_open_files_is_raised_or_refused(
    monkeypatch: pytest.MonkeyPatch, hard: int, *, enough: bool
) -> None:
    limits = Limits(256, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    if enough:
        broker_module._ensure_file_descriptors()
    else:
        with pytest.raises(EmbeddedKafkaError, match="too few file descriptors: the limit is 1023, Kafka needs 1024"):
            broker_module._ensure_file_descriptors()
    assert limits.now == (hard, hard)


def test_no_address_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match="has not been started"):
        _ = EmbeddedKafka(tmp_path).bootstrap


def test_no_brokers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="brokers must be 1 or more, not 0"):
        EmbeddedKafka(tmp_path, brokers=0)
