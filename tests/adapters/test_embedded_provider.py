"""Where Kafka comes from. Containers are tried with a stand-in for Docker: what we ask of it, not what it does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Self

import pytest
from docker.errors import DockerException
from testcontainers.core import container as containers

from noontide.adapters.kafka.embedded import EmbeddedKafkaError, kafka_provider, provider, readiness


@dataclass
class FakeContainer:
    """What DockerContainer is used for here, recorded."""

    image: str
    ports: dict[int, int] = field(default_factory=dict)
    envs: dict[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def with_bind_ports(self, container: int, host: int) -> Self:
        self.ports[container] = host
        return self

    def with_envs(self, **variables: str) -> Self:
        self.envs.update(variables)
        return self

    def get_container_host_ip(self) -> str:
        return "docker.example"

    def start(self) -> Self:
        self.events.append("start")
        return self

    def stop(self) -> None:
        self.events.append("stop")


@dataclass
class Docker:
    """Makes the containers, and remembers them."""

    made: list[FakeContainer] = field(default_factory=list)

    def container(self, image: str) -> FakeContainer:
        self.made.append(FakeContainer(image))
        return self.made[-1]


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    found = Docker()
    monkeypatch.delenv(provider.BOOTSTRAP_VARIABLE, raising=False)
    monkeypatch.setenv(provider.PROVIDER_VARIABLE, "testcontainers")
    monkeypatch.setattr(containers, "DockerContainer", found.container)
    return found


def answer(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let Kafka answer at these addresses and nowhere else."""
    known = frozenset(addresses)
    monkeypatch.setattr(readiness, "nodes_seen_by", lambda address: frozenset({1}) if address in known else frozenset())


def test_a_running_kafka_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(provider.BOOTSTRAP_VARIABLE, "one:9092, two:9092")
    answer(monkeypatch, "two:9092")
    with kafka_provider() as bootstrap:
        assert bootstrap == "one:9092, two:9092"


def test_an_address_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(provider.BOOTSTRAP_VARIABLE, "127.0.0.1:1")
    monkeypatch.setattr(provider, "_ANSWER_TIMEOUT_S", 0.0)
    with pytest.raises(EmbeddedKafkaError, match="no Kafka broker answers at 127.0.0.1:1 within 0 s"), kafka_provider():
        pass


def test_an_unknown_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(provider.BOOTSTRAP_VARIABLE, raising=False)
    monkeypatch.setenv(provider.PROVIDER_VARIABLE, "docker")
    with (
        pytest.raises(EmbeddedKafkaError, match="NOONTIDE_KAFKA_PROVIDER is 'docker': it must be embedded or"),
        kafka_provider(),
    ):
        pass


def test_a_container_is_started_at_the_address_it_advertises(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "await_bootstrap", lambda *_, **__: docker.made[0].events.append("answers"))
    with kafka_provider() as bootstrap:
        (started,) = docker.made
        assert started.image == "apache/kafka:4.3.1"
        assert bootstrap == f"docker.example:{started.ports[9092]}"
        assert f"PLAINTEXT://{bootstrap}," in started.envs["KAFKA_ADVERTISED_LISTENERS"]
        assert started.envs["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
        assert started.events == ["start", "answers"]
    assert started.events == ["start", "answers", "stop"]


def test_a_container_that_never_answers_is_stopped(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_CONTAINER_TIMEOUT_S", 0.0)
    answer(monkeypatch)
    with pytest.raises(EmbeddedKafkaError, match="no Kafka broker answers at docker.example"), kafka_provider():
        pass
    assert docker.made[0].events == ["start", "stop"]


def test_docker_that_cannot_be_reached_is_one_line(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: FakeContainer) -> None:
        raise DockerException("Error while fetching\nserver API version")

    monkeypatch.setattr(FakeContainer, "start", refused)
    with (
        pytest.raises(
            EmbeddedKafkaError, match="cannot run apache/kafka:4.3.1 with Docker: Error while fetching server"
        ),
        kafka_provider(),
    ):
        pass
    assert docker.made[0].events == []


def test_without_testcontainers_the_extra_is_named(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)
    with pytest.raises(EmbeddedKafkaError, match=r"pip install 'noontide\[testcontainers\]'"), kafka_provider():
        pass
    assert docker.made == []
