"""A stage with one slot, a registered topic `orders`, and a topic `elsewhere` that nobody registered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noontide.testing.memory_stage import MemoryStage


@pytest.fixture
async def stage() -> AsyncIterator[MemoryStage]:
    async with MemoryStage() as stage:
        stage.register("orders")
        stage.create_topic("elsewhere")
        yield stage
