"""A target topic that cannot take records must hold up nobody but its own runs, and lose and double none of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import RunningKafka
from tests.integration.expectations import due_ms
from tests.integration.installation import FACT_TIMEOUT_S, Installation, Seen
from tests.integration.scheduler_process import SchedulerProcess

from noontide.adapters.kafka.embedded import EmbeddedKafka

BYSTANDERS = 8
LATE_MAX_MS = 20_000
"""How late bystanders of a slot may be when a topic falls sick: a commit runs into its time limit, then a replay."""


class Ward(NamedTuple):
    """An installation whose slots have jobs on a healthy topic."""

    installation: Installation
    healthy: str
    scheduler: SchedulerProcess


@pytest.fixture(scope="module")
def ward(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with Installation.create(kafka.bootstrap, f"t{uuid.uuid4().hex[:8]}.") as installation:
        healthy = installation.create_target("healthy")
        with SchedulerProcess(installation, tmp_path_factory.mktemp("sick") / "data") as scheduler:
            scheduler.start().until_owner()
            installation.request_many({f"well-{number}": every_second(healthy) for number in range(BYSTANDERS)})
            installation.log(healthy).until(lambda found: len(found) >= BYSTANDERS)
            yield Ward(installation, healthy, scheduler)
            assert "unexpected; replaying" not in scheduler.log
            assert scheduler.terminate() == 0


def every_second(topic: str) -> dict[str, object]:
    return {"schedule": {"every": "PT1S"}, "timing": "exact", "target": f"kafka://{topic}"}


def once(topic: str, payload: object = None) -> dict[str, object]:
    return {"run_at": "2026-01-01T00:00:00Z", "target": f"kafka://{topic}", "payload": payload}


def pending(installation: Installation, job_id: str) -> str:
    """Wait until a run of the job waits as pending with a reason; returns the reason."""

    def waiting(found: list[Seen]) -> list[Seen]:
        latest = {each.key: each for each in found}
        mine = [each for each in latest.values() if each.value is not None and each.document["job_id"] == job_id]
        return [each for each in mine if each.document["state"] == "pending" and each.document.get("reason")]

    found = installation.log("leases").until(waiting, what=f"a pending run of {job_id}")
    return str(waiting(found)[0].document["reason"])


def check_bystanders(ward: Ward) -> None:
    """Each of them goes on, every second once, and none was later than a cycle that failed."""
    installation, healthy, _ = ward
    before = len(installation.log(healthy).look())
    installation.log(healthy).until(lambda found: len(found) >= before + 2 * BYSTANDERS, within_s=LATE_MAX_MS / 1000)
    for number in range(BYSTANDERS):
        mine = [each for each in installation.log(healthy).look() if each.key == f"well-{number}".encode()]
        due = sorted(due_ms(each) for each in mine)
        assert due == list(range(due[0], due[-1] + 1, 1_000))
        assert max(each.at_ms - due_ms(each) for each in mine) < LATE_MAX_MS


def check_delivered_once(ward: Ward, topic: str, job_ids: list[str], *, within_s: float = FACT_TIMEOUT_S) -> None:
    """The runs that waited are on the topic, each once, and closed."""
    installation, _, _ = ward
    wanted = {job_id.encode() for job_id in job_ids}
    found = installation.log(topic).until(lambda all_: wanted <= {each.key for each in all_}, within_s=within_s)
    check_bystanders(ward)
    runs = [each.run_id for each in installation.log(topic).look() if each.key in wanted]
    assert len(runs) == len(set(runs)) == len(wanted), found
    closed = installation.log("executions").until(
        lambda all_: set(runs) <= {(each.key or b"").decode() for each in all_}
    )
    states = [each.document["state"] for each in closed if (each.key or b"").decode() in runs]
    assert states == ["succeeded"] * len(runs)
    live = {(each.key or b"").decode(): each.value for each in installation.log("leases").look()}
    assert not any(live.get(run_id) for run_id in runs)


def test_a_payload_larger_than_the_topic_allows(ward: Ward) -> None:
    """The limit is lowered behind the scheduler's back, while jobs are due, and raised again."""
    installation, _, _ = ward
    topic = installation.create_target("shrinking")
    installation.request("large-before", once(topic, "x" * 50_000))
    installation.log(topic).of_key("large-before")
    installation.alter_topic(topic, "max.message.bytes", "20000")
    installation.request("large", once(topic, "x" * 50_000))
    assert "max.message.bytes" in pending(installation, "large") or "MessageSizeTooLarge" in pending(
        installation, "large"
    )
    installation.request("small", once(topic, "x"))
    check_delivered_once(ward, topic, ["small"])
    installation.alter_topic(topic, "max.message.bytes", "1048588")
    check_delivered_once(ward, topic, ["large"])


def test_many_small_records_for_a_topic_with_a_low_limit(ward: Ward) -> None:
    """Each of them fits; together they would not: batches keep to the topic's limit."""
    installation, _, _ = ward
    topic = installation.create_target("low-limit", config={"max.message.bytes": "10000"})
    jobs = [f"many-{number}" for number in range(100)]
    installation.request_many({job_id: once(topic, "x" * 2_000) for job_id in jobs})
    check_delivered_once(ward, topic, jobs)


def test_a_topic_that_is_deleted_and_created_again(ward: Ward) -> None:
    installation, _, _ = ward
    topic = installation.create_target("vanishing")
    installation.request("here", once(topic))
    installation.log(topic).of_key("here")
    installation.forget_log(topic)
    installation.delete_topic(topic)
    jobs = [f"gone-{number}" for number in range(10)]
    installation.request_many({job_id: once(topic) for job_id in jobs})
    assert topic in pending(installation, "gone-0")
    check_bystanders(ward)
    assert installation.create_topic("vanishing") == topic
    check_delivered_once(ward, topic, jobs)


@pytest.mark.slow
def test_a_registered_topic_that_never_existed(ward: Ward) -> None:
    installation, _, _ = ward
    topic = installation.foreign("nowhere")
    installation.configure("target/nowhere", {"topic": topic})
    installation.request("lost", once(topic))
    assert "does not exist" in pending(installation, "lost")
    check_bystanders(ward)
    installation.create_topic("nowhere")
    check_delivered_once(ward, topic, ["lost"])


@pytest.mark.slow
def test_a_topic_that_is_not_registered_and_does_not_exist(ward: Ward) -> None:
    """Sent after the commit, tried again after a while, delivered when the topic is there."""
    installation, _, _ = ward
    topic = installation.foreign("loose-nowhere")
    retry = {"backoff": ["PT1S"], "max_attempts": 100}
    installation.request("loose-lost", {**once(topic), "retry": retry})
    installation.log("leases").until(
        lambda found: any(each.value and each.document["state"] == "retry_wait" for each in found), what="retry_wait"
    )
    check_bystanders(ward)
    installation.create_topic("loose-nowhere")
    check_delivered_once(ward, topic, ["loose-lost"])


@pytest.mark.slow
def test_the_leader_of_a_target_is_killed(tmp_path: Path, prefix: str) -> None:
    """Three brokers, one killed while records are due each second: another one leads, nobody waits for long.

    Targets that one broker less stops are never in a slot's transaction, which could not be ended: their runs wait with
    the reason, whatever happens to brokers.
    """
    with (
        EmbeddedKafka(tmp_path / "kafka", brokers=3) as kafka,
        Installation.create(kafka.bootstrap, prefix) as installation,
    ):
        healthy = installation.create_target("healthy", replication=3)
        two_config = {"min.insync.replicas": "1"}
        topic = installation.create_target("two", partitions=1, replication=2, config=two_config)
        single = installation.create_target("single", replication=1)
        strict = installation.create_target("strict", replication=3, config={"min.insync.replicas": "3"})
        leader = installation.admin.list_topics(topic).topics[topic].partitions[0].leader - 1
        with SchedulerProcess(installation, tmp_path / "data") as scheduler:
            scheduler.start().until_owner()
            ward = Ward(installation, healthy, scheduler)
            installation.request_many({f"well-{number}": every_second(healthy) for number in range(BYSTANDERS)})
            installation.request_many({f"two-{number}": every_second(topic) for number in range(4)})
            installation.request_many({"fragile-1": once(single), "fragile-2": once(strict)})
            installation.log(topic).until(lambda found: len(found) >= 8)
            kafka.kill(leader)
            installation.request("stuck", once(topic))
            before = len(installation.log(healthy).look())
            installation.log(healthy).until(lambda found: len(found) >= before + 10 * BYSTANDERS)
            check_delivered_once(ward, topic, ["stuck"])
            assert "does not survive the loss of a broker" in pending(installation, "fragile-1")
            assert "does not survive the loss of a broker" in pending(installation, "fragile-2")
            kafka.start_broker(leader)
            check_bystanders(ward)
            installation.alter_topic(strict, "min.insync.replicas", "2")
            check_delivered_once(ward, strict, ["fragile-2"])
            assert installation.log(single).look() == []
