"""The topic files against a real broker: create, compare, change, refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.conftest import RunningKafka

from noontide.adapters.kafka import topics as admin
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.topic_plan import ConfigChange, LayoutMismatch, Meta
from noontide.adapters.kafka.topic_watch import differences, warn_of_differences
from noontide.apps.cli.topics import topics
from noontide.records.topics import Layout, load_catalogue

pytestmark = pytest.mark.kafka


@pytest.fixture
def layout(prefix: str) -> Layout:
    return Layout(prefix=prefix, partitions=6, slots=2)


@pytest.fixture
def client(kafka: RunningKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture(autouse=True)
def _removed_afterwards(client: AdminClient, prefix: str) -> Iterator[None]:
    """A session's broker stays small: topics of a test go with it."""
    yield
    names = [name for name in client.list_topics(timeout=10).topics if name.startswith(prefix)]
    for future in client.delete_topics(names).values() if names else ():
        future.result(10)


def until(client: AdminClient, fact: Callable[[], bool]) -> None:
    """Wait for what the controller has answered and the broker may not know yet."""
    deadline = monotonic() + 10
    while not fact():
        assert monotonic() < deadline
        client.poll(0.01)


def config_of(client: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in client.describe_configs([resource])[resource].result(10).items()}


def partitions_of(client: AdminClient, topic: str) -> int | None:
    found = client.list_topics(timeout=10).topics.get(topic)
    return None if found is None else len(found.partitions)


def set_config(client: AdminClient, topic: str, **values: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(10)
    wanted = {name.replace("_", "."): value for name, value in values.items()}
    until(client, lambda: wanted.items() <= config_of(client, topic).items())


def create(client: AdminClient, topic: str, partitions: int) -> None:
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)
    until(client, lambda: partitions_of(client, topic) == partitions)


def delete(client: AdminClient, topic: str) -> None:
    client.delete_topics([topic])[topic].result(10)
    until(client, lambda: partitions_of(client, topic) is None)


def test_apply_makes_what_the_files_say(kafka: RunningKafka, layout: Layout) -> None:
    plan = admin.plan_topics(kafka.bootstrap, layout, domains=["api"], lanes=["default"])
    assert len(plan.missing) == len(list(load_catalogue()))
    assert plan.pending
    assert plan.write_meta
    assert (plan.problems, plan.changes, plan.unknown, plan.replication) == ((), (), (), 1)

    admin.apply_plan(kafka.bootstrap, layout, plan=plan)

    after = admin.plan_topics(kafka.bootstrap, layout, domains=["api"], lanes=["default"])
    assert not after.pending
    assert (after.problems, after.unknown) == ((), ())
    assert admin.read_meta(kafka.bootstrap, layout) == Meta(partitions=6, slots=2, version=1)
    admin.check_layout(kafka.bootstrap, layout)


def test_created_topics_are_as_wanted(kafka: RunningKafka, layout: Layout, client: AdminClient) -> None:
    names = admin.ensure_topics(kafka.bootstrap, layout)
    found = client.list_topics(timeout=10).topics
    assert set(names) == {name for name in found if name.startswith(layout.prefix)}
    counts = {topic: len(found[layout.prefix + topic].partitions) for topic in ("requests.public", "jobs", "signals")}
    assert counts == {"requests.public": 6, "jobs": 6, "signals": 4}
    assert {f"{layout.prefix}runs.{lane}" for lane in ("express", "default", "bulk")} <= set(names)
    config = config_of(client, layout.name("state"))
    assert config["cleanup.policy"] == "compact"
    assert config["message.timestamp.type"] == "LogAppendTime"
    assert config["min.insync.replicas"] == "1"  # one broker, one replica


def test_ensure_is_idempotent_and_adds_domains(kafka: RunningKafka, layout: Layout) -> None:
    first = admin.ensure_topics(kafka.bootstrap, layout, domains=["api"], lanes=["default"])
    assert len(first) == len(list(load_catalogue()))
    assert admin.ensure_topics(kafka.bootstrap, layout, domains=["api"], lanes=["default"]) == ()
    more = admin.ensure_topics(kafka.bootstrap, layout, domains=["api", "orders"], lanes=["default", "gpu"])
    assert set(more) == {layout.prefix + name for name in ("requests.orders", "runs.gpu", "worker-events.gpu")}


async def test_two_processes_may_ensure_at_once(kafka: RunningKafka, layout: Layout) -> None:
    with ThreadPoolExecutor(2) as pool:
        loop = asyncio.get_running_loop()
        ask = [loop.run_in_executor(pool, admin.ensure_topics, kafka.bootstrap, layout) for _ in range(2)]
        await asyncio.gather(*ask)
    admin.check_layout(kafka.bootstrap, layout)


def test_a_setting_changed_by_hand_is_said_by_a_scheduler_that_starts(
    kafka: RunningKafka, layout: Layout, client: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    connection = KafkaConnection(kafka.bootstrap)
    admin.ensure_topics(kafka.bootstrap, layout)
    assert differences(connection, layout) == []
    set_config(client, layout.name("state"), cleanup_policy="delete")
    until(client, lambda: config_of(client, layout.name("state"))["cleanup.policy"] == "delete")
    warn_of_differences(connection, layout)
    (said,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert said.startswith(f"topic {layout.name('state')}: cleanup.policy is delete, not compact (")
    assert said.endswith("`noontide topics apply` puts it right")


def test_a_changed_setting_is_reported_and_put_right_alone(
    kafka: RunningKafka, layout: Layout, client: AdminClient
) -> None:
    admin.ensure_topics(kafka.bootstrap, layout)
    executions = layout.name("executions")
    set_config(client, executions, retention_ms="1000", flush_ms="777")

    plan = admin.plan_topics(kafka.bootstrap, layout)
    why = next(s.why for s in load_catalogue()["executions"].config if s.name == "retention.ms")
    change = ConfigChange(topic=executions, setting="retention.ms", old="1000", new="604800000", why=why)
    assert plan.changes == (change,)
    admin.apply_plan(kafka.bootstrap, layout, plan=plan)

    config = config_of(client, executions)
    assert config["retention.ms"] == "604800000"
    assert config["flush.ms"] == "777"  # an operator's own setting stays
    assert not admin.plan_topics(kafka.bootstrap, layout).pending


def test_a_domain_nobody_named_is_compared_too(kafka: RunningKafka, layout: Layout, client: AdminClient) -> None:
    admin.ensure_topics(kafka.bootstrap, layout, domains=["api", "orders"])
    set_config(client, layout.name("requests", domain="orders"), retention_ms="1000")
    changes = admin.plan_topics(kafka.bootstrap, layout).changes
    assert [(change.topic, change.setting) for change in changes] == [
        (layout.name("requests", domain="orders"), "retention.ms")
    ]


def test_strangers_are_named_and_left_alone(kafka: RunningKafka, layout: Layout, client: AdminClient) -> None:
    admin.ensure_topics(kafka.bootstrap, layout)
    create(client, layout.prefix + "mine", 1)
    plan = admin.plan_topics(kafka.bootstrap, layout)
    assert plan.unknown == (layout.prefix + "mine",)
    assert not plan.pending


def test_other_partition_counts_are_refused_and_nothing_is_made(
    kafka: RunningKafka, layout: Layout, client: AdminClient
) -> None:
    create(client, layout.name("jobs"), 5)
    plan = admin.plan_topics(kafka.bootstrap, layout)
    assert len(plan.problems) == 1
    assert f"{layout.name('jobs')} has 5 partitions, not 6" in plan.problems[0]
    with pytest.raises(LayoutMismatch, match="5 partitions, not 6"):
        admin.apply_plan(kafka.bootstrap, layout, plan=plan)
    with pytest.raises(LayoutMismatch, match="5 partitions, not 6"):
        admin.ensure_topics(kafka.bootstrap, layout)
    names = {name for name in client.list_topics(timeout=10).topics if name.startswith(layout.prefix)}
    assert names == {layout.name("jobs")}


@pytest.mark.parametrize(
    "other, message",
    [
        ({"partitions": 12, "slots": 2}, "config/meta says partitions 6, the settings say 12"),
        ({"partitions": 6, "slots": 3}, "config/meta says slots 2, the settings say 3"),
    ],
)
def test_another_layout_is_refused(kafka: RunningKafka, layout: Layout, other: dict[str, int], message: str) -> None:
    admin.ensure_topics(kafka.bootstrap, layout)
    different = Layout(prefix=layout.prefix, partitions=other["partitions"], slots=other["slots"])
    with pytest.raises(LayoutMismatch, match=message):
        admin.check_layout(kafka.bootstrap, different)
    with pytest.raises(LayoutMismatch, match=message):
        admin.ensure_topics(kafka.bootstrap, different)
    assert admin.read_meta(kafka.bootstrap, different) == Meta(partitions=6, slots=2)


def test_meta_and_topics_that_disagree_are_refused(kafka: RunningKafka, layout: Layout, client: AdminClient) -> None:
    admin.ensure_topics(kafka.bootstrap, layout)
    delete(client, layout.name("jobs"))
    create(client, layout.name("jobs"), 4)
    with pytest.raises(LayoutMismatch, match="jobs has 4 partitions, not 6"):
        admin.check_layout(kafka.bootstrap, layout)


def test_an_empty_cluster_is_refused_by_check_and_has_no_meta(
    kafka: RunningKafka, layout: Layout, client: AdminClient
) -> None:
    assert admin.read_meta(kafka.bootstrap, layout) is None
    with pytest.raises(LayoutMismatch, match="jobs does not exist"):
        admin.check_layout(kafka.bootstrap, layout)
    create(client, layout.name("jobs"), 6)
    create(client, layout.name("config"), 1)
    with pytest.raises(LayoutMismatch, match="has no meta record"):
        admin.check_layout(kafka.bootstrap, layout)


def test_more_replicas_than_brokers_are_refused(kafka: RunningKafka, layout: Layout) -> None:
    plan = admin.plan_topics(kafka.bootstrap, layout, replication=2)
    assert plan.problems == ("replication factor 2 is not in 1 .. 1 (the brokers)",)


def test_a_cluster_that_does_not_answer_is_one_clear_error(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "TIMEOUT_S", 0.5)
    with pytest.raises(admin.ClusterError, match=r"127\.0\.0\.1:1: "):
        admin.read_meta("127.0.0.1:1", layout)


def command(kafka: RunningKafka, layout: Layout, *arguments: str) -> Result:
    options = ["--bootstrap", kafka.bootstrap, "--prefix", layout.prefix]
    return CliRunner().invoke(topics, [arguments[0], *options, *arguments[1:]], env={"COLUMNS": "400"})


def test_command_line_from_nothing_to_nothing_to_do(kafka: RunningKafka, layout: Layout, client: AdminClient) -> None:
    sizes = ("--partitions", "6", "--slots", "2")
    before = command(kafka, layout, "plan", *sizes, "--domains", "orders, shop", "--lanes", "gpu")
    assert before.exit_code == 2
    assert all(layout.prefix + name in before.output for name in ("requests.orders", "requests.shop", "runs.gpu"))
    assert "config/meta to write: partitions 6, slots 2" in before.output

    applied = command(kafka, layout, "apply", *sizes)
    assert applied.exit_code == 0
    assert "topics created" in applied.output

    after = command(kafka, layout, "plan")  # partitions and slots as config/meta says
    assert (after.exit_code, after.output) == (0, "Nothing to do: the cluster is as the topic files say.\n")

    set_config(client, layout.name("audit"), retention_ms="1000")
    drift = command(kafka, layout, "plan")
    assert drift.exit_code == 2
    assert "1000 -> 7776000000" in drift.output
    drift_json = json.loads(command(kafka, layout, "plan", "--json").output)
    assert [change["setting"] for change in drift_json["changes"]] == ["retention.ms"]
    assert command(kafka, layout, "apply").exit_code == 0
    assert command(kafka, layout, "plan").exit_code == 0


def test_command_line_refuses_another_layout(kafka: RunningKafka, layout: Layout) -> None:
    admin.ensure_topics(kafka.bootstrap, layout)
    for name in ("plan", "apply"):
        result = command(kafka, layout, name, "--slots", "3")
        assert result.exit_code == 1
        assert "config/meta says slots 2, the settings say 3" in result.output
    as_json = json.loads(command(kafka, layout, "apply", "--slots", "3", "--json").output)
    assert as_json["applied"] is False
    assert as_json["problems"]
    assert admin.read_meta(kafka.bootstrap, layout) == Meta(partitions=6, slots=2)


def test_command_line_without_a_cluster(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "TIMEOUT_S", 0.5)
    result = CliRunner().invoke(topics, ["plan", "--bootstrap", "127.0.0.1:1", "--prefix", layout.prefix])
    assert result.exit_code == 1
    assert result.output.startswith("Error: 127.0.0.1:1: ")


def test_kafkas_own_topics_are_no_strangers(kafka: RunningKafka, client: AdminClient) -> None:
    group = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "makes-offsets", "log_level": 2})
    group.committed([TopicPartition("none", 0)], timeout=10)
    group.close()
    assert any(name.startswith("__") for name in client.list_topics(timeout=10).topics)
    unknown = admin.plan_topics(kafka.bootstrap, Layout(prefix="")).unknown
    assert [name for name in unknown if name.startswith("__")] == []
