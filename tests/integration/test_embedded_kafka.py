"""The embedded broker against the real thing: real jars, real Java, real clients."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from noontide.adapters.kafka.embedded import EmbeddedKafka, EmbeddedKafkaError
from noontide.adapters.kafka.embedded.folder import command_line
from noontide.adapters.kafka.embedded.ports import HOST

WAIT_S = 30.0


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


def create_topic(bootstrap: str, name: str, *, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, replicas)])[name].result(WAIT_S)


def append(bootstrap: str, topic: str, *values: str) -> None:
    """Append with acks from all in-sync replicas; an error at any record is raised."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(values)


def read(bootstrap: str, topic: str, *, count: int) -> list[str]:
    """The first `count` values of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [(message.value() or b"").decode() for message in consumer.consume(count, WAIT_S)]
    finally:
        consumer.close()


async def test_aiokafka_reads_what_it_wrote_in_a_transaction(kafka: Kafka, prefix: str) -> None:
    topic = f"{prefix}records"
    create_topic(kafka.bootstrap, topic)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=f"{prefix}tx") as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"last")
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [b"kept", b"last"]


def test_confluent_reads_what_it_wrote(kafka: Kafka, prefix: str) -> None:
    topic = f"{prefix}records"
    create_topic(kafka.bootstrap, topic)
    append(kafka.bootstrap, topic, "a", "b")
    assert read(kafka.bootstrap, topic, count=2) == ["a", "b"]


def test_share_groups_are_on(kafka: Kafka, prefix: str) -> None:
    topic, group = f"{prefix}records", f"{prefix}workers"
    create_topic(kafka.bootstrap, topic)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    append(kafka.bootstrap, topic, "run")
    consumer = ShareConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        consumer.subscribe([topic])
        assert polled(consumer) == b"run"
    finally:
        consumer.close()


def polled(consumer: ShareConsumer) -> bytes | None:
    """The first value a share consumer is given."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        for message in consumer.poll(1.0) or []:
            return message.value()
    return None


def test_a_topic_nobody_created_stays_away(kafka: Kafka, prefix: str) -> None:
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(f"{prefix}typo", timeout=WAIT_S)
    assert metadata.topics[f"{prefix}typo"].error is not None


def test_kill_minus_nine_and_restart_lose_nothing(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, fast_start=True) as kafka:
        address = kafka.bootstrap
        create_topic(address, "records")
        append(address, "records", "before the kill")
        kafka.kill()
        assert kafka.pids == {}
        kafka.start_broker()
        assert kafka.bootstrap == address
        append(address, "records", "after it")
    with EmbeddedKafka(tmp_path, fast_start=True) as again:
        assert again.bootstrap == address
        assert read(address, "records", count=2) == ["before the kill", "after it"]


def test_pause_and_resume(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, fast_start=True) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        kafka.pause()
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
        kafka.resume()
        assert set(admin.list_topics(timeout=WAIT_S).brokers) == {1}
        kafka.pause()
        (pid,) = kafka.pids.values()
    assert command_line(pid) == "", "a stopped broker outlived stop()"


def test_the_thread_that_starts_a_broker_may_end(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, fast_start=True)
    starter = threading.Thread(target=kafka.start)
    starter.start()
    starter.join(WAIT_S)
    with kafka:
        create_topic(kafka.bootstrap, "records")
        append(kafka.bootstrap, "records", "still there")
        kafka.check()


def test_a_port_in_use_is_an_error_at_once(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedKafkaError, match=f"port {port} is in use"):
            EmbeddedKafka(tmp_path, port=port, fast_start=True).start()


@pytest.mark.slow
def test_a_port_taken_behind_our_back_is_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("noontide.adapters.kafka.embedded.ports.is_free", lambda _: True)
        kafka = EmbeddedKafka(tmp_path, port=port, fast_start=True)
        with pytest.raises(EmbeddedKafkaError, match=f"port {port} is in use"):
            kafka.start()
    assert kafka.pids == {}


def test_a_setting_kafka_refuses_is_quoted_from_its_log(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, properties={"num.io.threads": "none"}, fast_start=True)
    with pytest.raises(EmbeddedKafkaError, match=r"num.io.threads.*\(log: .*broker.log\)$") as caught:
        kafka.start()
    assert "\n" not in str(caught.value)
    assert kafka.pids == {}


@pytest.mark.slow
def test_a_broker_that_dies_by_itself_is_reported(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, fast_start=True) as kafka:
        kafka.check()
        os.kill(kafka.pids[0], signal.SIGKILL)
        await_end(0, kafka)
        with pytest.raises(EmbeddedKafkaError, match="Kafka broker broker-1 exited with code -9"):
            kafka.check()
        kafka.start_broker()
        kafka.check()


def await_end(index: int, kafka: EmbeddedKafka) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while index in kafka.pids:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


START = """
import sys, signal
from pathlib import Path
from noontide.adapters import tied_process
from noontide.adapters.kafka.embedded import EmbeddedKafka
if sys.argv[2] == "orphan":
    tied_process._TIE = "import os,sys; os.execv(sys.argv[4],sys.argv[4:])"
kafka = EmbeddedKafka(Path(sys.argv[1]), fast_start=True).start()
print(kafka.pids[0], kafka.bootstrap, flush=True)
signal.pause()
"""


@contextmanager
def parent_process(folder: Path, mode: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Another process that runs a broker: itself, the broker's process id, its address."""
    with subprocess.Popen(
        [sys.executable, "-c", START, str(folder), mode], stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            pid, address = parent.stdout.readline().split()
            yield parent, int(pid), address
        finally:
            parent.kill()


def test_a_folder_in_use_names_its_user(tmp_path: Path) -> None:
    with (
        parent_process(tmp_path, "normal") as (parent, _, _),
        pytest.raises(EmbeddedKafkaError, match=f"is in use by process {parent.pid}: stop it"),
    ):
        EmbeddedKafka(tmp_path, fast_start=True).start()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children of a dead parent on Linux only")
def test_a_broker_dies_with_its_parent(tmp_path: Path) -> None:
    with parent_process(tmp_path, "normal") as (parent, pid, _):
        assert "kafka.Kafka" in command_line(pid)
        parent.kill()
        parent.wait()
        await_no_process(pid)


def await_no_process(pid: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while command_line(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_an_orphan_is_ended_and_its_records_are_kept(tmp_path: Path) -> None:
    with parent_process(tmp_path, "orphan") as (parent, pid, address):
        create_topic(address, "records")
        append(address, "records", "written through the orphan")
        parent.kill()
        parent.wait()
        assert "kafka.Kafka" in command_line(pid)
        with EmbeddedKafka(tmp_path, fast_start=True) as kafka:
            assert command_line(pid) == ""
            assert kafka.bootstrap == address
            assert read(address, "records", count=1) == ["written through the orphan"]


@pytest.mark.slow
def test_three_brokers_survive_one(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, brokers=3, fast_start=True) as kafka:
        assert len(kafka.bootstrap.split(",")) == len(kafka.pids) == 3
        create_topic(kafka.bootstrap, "records", replicas=3)
        append(kafka.bootstrap, "records", "three")
        kafka.kill(0)
        append(kafka.bootstrap, "records", "two are enough")
        kafka.start_broker(0)
        kafka.kill(1)
        assert read(kafka.bootstrap, "records", count=2) == ["three", "two are enough"]
