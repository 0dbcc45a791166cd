"""What makes a topic unfit to be written to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AclOperation

from noontide.adapters.kafka.inspector import _problem

SETTINGS = {"max.message.bytes": 1_000, "min.insync.replicas": 2}


def topic(*, leader: int = 1, in_sync: int = 3, operations: list[AclOperation] | None = None) -> SimpleNamespace:
    partition = SimpleNamespace(
        id=4, leader=SimpleNamespace(id=leader), isr=list(range(in_sync)), replicas=list(range(3))
    )
    return SimpleNamespace(partitions=[partition], authorized_operations=operations)


@pytest.mark.parametrize("in_sync, problem", [(3, None), (2, None), (1, "has 1 of 2 replicas in sync")])
def test_replicas_in_sync(in_sync: int, problem: str | None) -> None:
    found = _problem("t", topic(in_sync=in_sync), SETTINGS)
    assert found == (None if problem is None else f"partition 4 of topic t {problem}")


def test_no_leader() -> None:
    assert _problem("t", topic(leader=-1), SETTINGS) == "partition 4 of topic t has no leader"


@pytest.mark.parametrize(
    "operations, problem",
    [
        (None, None),
        ([AclOperation.READ, AclOperation.WRITE], None),
        ([AclOperation.ALL], None),
        ([AclOperation.READ, AclOperation.DESCRIBE], "topic t may not be written to"),
    ],
)
def test_authorisation_where_brokers_tell(operations: list[AclOperation] | None, problem: str | None) -> None:
    assert _problem("t", topic(operations=operations), SETTINGS) == problem


def test_settings_that_may_not_be_read() -> None:
    assert _problem("t", topic(), {}) == "the settings of topic t may not be read"
