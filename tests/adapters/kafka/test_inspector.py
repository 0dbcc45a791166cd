"""What makes a topic unfit to be written to."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import PartitionMetadata, TopicMetadata

from noontide.adapters.kafka.inspector import _absent, _exposure, _problem

SETTINGS = {"max.message.bytes": 1_000, "min.insync.replicas": 2}


def topic(*, leader: int = 1, in_sync: int = 3, replicas: int = 3) -> TopicMetadata:
    partition = PartitionMetadata()
    partition.id, partition.leader = 4, leader
    partition.replicas, partition.isrs = list(range(replicas)), list(range(in_sync))
    described = TopicMetadata()
    described.partitions = {4: partition}
    return described


@pytest.mark.parametrize("in_sync, problem", [(3, None), (2, None), (1, "has 1 of 2 replicas in sync")])
def test_replicas_in_sync(in_sync: int, problem: str | None) -> None:
    found = _problem("t", topic(in_sync=in_sync), SETTINGS)
    assert found == (None if problem is None else f"partition 4 of topic t {problem}")


def test_no_leader() -> None:
    assert _problem("t", topic(leader=-1), SETTINGS) == "partition 4 of topic t has no leader"


@pytest.mark.parametrize("brokers, replicas, fragile", [(3, 3, False), (3, 2, True), (3, 1, True), (1, 1, False)])
def test_it_must_survive_the_loss_of_a_broker_where_there_are_others(
    brokers: int, replicas: int, *, fragile: bool
) -> None:
    found = _exposure("t", topic(replicas=replicas), SETTINGS, brokers=brokers)
    assert (found is not None and "does not survive" in found) is fragile


def test_settings_that_may_not_be_read() -> None:
    assert _problem("t", topic(), {}) == "the settings of topic t may not be read"


def test_what_does_not_exist() -> None:
    absent = _absent("t", None)
    assert absent is not None
    assert absent.problem == "topic t does not exist"
    assert _absent("t", topic()) is None
