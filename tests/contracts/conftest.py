"""The broker of a contract: the log in memory, or a real Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.contracts.brokers import Broker, KafkaBroker, MemoryBroker


@pytest.fixture
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    made: Broker = (
        MemoryBroker() if request.param == "memory" else KafkaBroker(request.getfixturevalue("kafka").bootstrap)
    )
    yield made
    await made.close()


@pytest.fixture
async def topic(broker: Broker, prefix: str) -> str:
    await broker.create_topic(f"{prefix}topic", partitions=3)
    return f"{prefix}topic"
