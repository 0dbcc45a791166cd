"""Setting a scene on a real Kafka, and waiting for facts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from noontide.ports.record_log import Incoming, Record

FACT_TIMEOUT_S = 30.0


async def create_topic(
    bootstrap: str, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic with LogAppendTime and wait until the broker lists it."""
    async with _admin(bootstrap) as admin:
        settings = {"message.timestamp.type": "LogAppendTime", **(config or {})}
        await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        while name not in await admin.list_topics():  # noqa: ASYNC110 - nobody tells when it is there
            await asyncio.sleep(0.01)


async def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic and wait until the broker does not list it."""
    async with _admin(bootstrap) as admin:
        await admin.delete_topics([name])
        while name in await admin.list_topics():  # noqa: ASYNC110 - nobody tells when it is gone
            await asyncio.sleep(0.01)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a fact that nothing announces."""
    async with asyncio.timeout(FACT_TIMEOUT_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Collector:
    """A sink that can be awaited."""

    def __init__(self) -> None:
        self.got: list[Incoming] = []
        self._changed = asyncio.Event()

    def __call__(self, arrived: list[Incoming]) -> None:
        self.got.extend(arrived)
        self._changed.set()

    async def until(self, holds: Callable[[list[Incoming]], bool]) -> list[Incoming]:
        """Wait until what was collected satisfies a condition; returns it."""
        async with asyncio.timeout(FACT_TIMEOUT_S):
            while not holds(self.got):
                self._changed.clear()
                await self._changed.wait()
        return self.got


def records(prefix: str, count: int) -> list[Record]:
    """Records with keys `<prefix>0`, `<prefix>1`, ..."""
    return [Record(f"{prefix}{number}".encode(), b"value") for number in range(count)]


def keys(found: list[Incoming]) -> list[str]:
    """The keys as text."""
    return [each.key.decode() for each in found if each.key is not None]


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()
