"""Fixtures of the whole suite: one real Kafka per test session, and names that no other test uses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from noontide.adapters.kafka.embedded import kafka_provider


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningKafka:
    """A Kafka that answers; shared by all tests of a session, so use `prefix` for the names of topics and groups."""

    bootstrap: str


@pytest.fixture(scope="session")
def kafka() -> Iterator[RunningKafka]:
    """One broker for the session, on a temporary folder; a test that kills brokers starts its own `EmbeddedKafka`.

    When no Kafka can be had the tests that ask for it fail: they are never skipped.
    """
    with kafka_provider(fast_start=True) as bootstrap:
        yield RunningKafka(bootstrap=bootstrap)


@pytest.fixture
def prefix() -> str:
    """A prefix such as `t3fa9c01b.` for topics, groups and transactional ids of one test."""
    return f"t{uuid.uuid4().hex[:8]}."
