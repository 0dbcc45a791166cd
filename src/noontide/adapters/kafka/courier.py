"""Records outside of transactions, at least once, with an idempotent producer that is replaced when it hangs.

A request to a broker carries batches of many topics and the next one waits for its answer, so a topic whose replicas
are gone can hold up all the others. When a send is not answered in time, the topics of the request under way are sick
for a while and get a producer each; what else was waiting is sent again with a new common producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.structs import RecordMetadata

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.producer import DisposableProducer
from noontide.core.partitioner import partition_for
from noontide.ports.record_log import Delivery, Receipt, Record

SICK_FOR_S: Final = 10.0
SICK_TOPICS_MAX: Final = 16
START_TIMEOUT_S: Final = 5.0
RECORD_MAX_BYTES: Final = 8 << 20
_TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)
_NOT_RETRIABLE: Final = (*_TOO_LARGE, InvalidTopicError)


class KafkaCourier:
    """`Courier` on aiokafka. Producers are started by the first send; call `close` at the end."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._common = _Lane(connection, "courier")
        self._sick: dict[str, tuple[_Lane, float]] = {}  # topic to its lane, and until when

    async def send(self, topic: str, record: Record, *, partition: int | None, timeout_ms: int) -> Delivery:
        """See `Courier.send`; a record without a key goes to a partition of the client's choice.

        A missing topic is answered after one look at the brokers' metadata, and is retriable: it may be created.
        """
        if record.key is None and record.value is None:
            return Delivery(None, "a record needs a key or a value", retriable=False)
        lane = await self._lane(topic)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await lane.send(topic, record, partition)
        except TimeoutError:
            await self._isolate(lane, topic)
            return Delivery(None, f"topic {topic} did not acknowledge within {timeout_ms} ms")
        except (KafkaError, OSError, AssertionError) as error:
            return Delivery(None, f"topic {topic}: {error!r}", retriable=not isinstance(error, _NOT_RETRIABLE))

    async def close(self) -> None:
        """End the producers within a bounded time; sends that are under way fail. Never raises."""
        sick, self._sick = self._sick, {}
        await asyncio.gather(self._common.close(), *(lane.close() for lane, _ in sick.values()))

    async def _lane(self, topic: str) -> _Lane:
        lane, until_s = self._sick.get(topic, (self._common, 0.0))
        if lane is not self._common and asyncio.get_running_loop().time() >= until_s:
            del self._sick[topic]
            await lane.close()
            return self._common
        return lane

    async def _isolate(self, lane: _Lane, topic: str) -> None:
        until_s = asyncio.get_running_loop().time() + SICK_FOR_S
        for each in {topic, *lane.topics_under_way()}:
            if each in self._sick or len(self._sick) < SICK_TOPICS_MAX:
                own, _ = self._sick.get(each, (_Lane(self._connection, "courier-sick"), 0.0))
                self._sick[each] = own, until_s
        await lane.leave_behind()


class _Lane:
    """A producer that is replaced when it hangs or fails."""

    def __init__(self, connection: KafkaConnection, purpose: str) -> None:
        self._connection = connection
        self._purpose = purpose
        self._starting: asyncio.Task[DisposableProducer] | None = None
        self._producer: DisposableProducer | None = None
        self._closed = False

    async def send(self, topic: str, record: Record, partition: int | None) -> Delivery:
        """Send; again with a new producer when this one was left behind because of another record.

        Records that are sent at the same time share a batch, and a batch with one record too many is refused whole:
        so what is too large is tried again alone before that is believed.
        """
        send: _Send = _send
        while True:
            producer = await self._started()
            try:
                return await send(producer, topic, record, partition)
            except (KafkaError, OSError, AssertionError) as error:
                innocent = producer is not self._producer and not self._closed
                if producer is self._producer:
                    await self.leave_behind()  # its sequence numbers have a gap now
                if isinstance(error, _TOO_LARGE) and send is _send:
                    send = _send_alone
                elif not innocent:
                    raise

    def topics_under_way(self) -> set[str]:
        """Topics with batches in requests that were not answered."""
        return set() if self._producer is None else self._producer.topics_under_way()

    async def leave_behind(self) -> None:
        """Drop the producer; the next send starts a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.discard()

    async def close(self) -> None:
        """Drop the producer for good."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self.leave_behind()

    async def _started(self) -> DisposableProducer:
        """The producer, started once for all sends that wait for it."""
        if self._producer is None:
            if self._starting is None:
                self._starting = asyncio.create_task(self._start())
                self._starting.add_done_callback(self._forget_start)
            return await asyncio.shield(self._starting)
        return self._producer

    def _forget_start(self, task: asyncio.Task[DisposableProducer]) -> None:
        self._starting = None
        if not task.cancelled() and task.exception() is None:
            self._producer = task.result()

    async def _start(self) -> DisposableProducer:
        producer = DisposableProducer(
            **self._connection.for_aiokafka(self._purpose),
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            max_request_size=RECORD_MAX_BYTES,
            retry_backoff_ms=20,
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await producer.start()
        except TimeoutError as error:
            await producer.discard()
            raise KafkaConnectionError("no broker answered in time") from error
        except BaseException:
            await producer.discard()
            raise
        return producer


_Send = Callable[[DisposableProducer, str, Record, int | None], Awaitable[Delivery]]


async def _send(producer: DisposableProducer, topic: str, record: Record, partition: int | None) -> Delivery:
    target = await _partition(producer, topic, record, partition)
    if isinstance(target, Delivery):
        return target
    sent = await producer.send(
        topic, key=record.key, value=record.value, partition=target, headers=list(record.headers)
    )
    return _delivery(await asyncio.shield(sent))


async def _send_alone(producer: DisposableProducer, topic: str, record: Record, partition: int | None) -> Delivery:
    target = await _partition(producer, topic, record, partition)
    if isinstance(target, Delivery):
        return target
    batch = producer.create_batch()
    batch.append(timestamp=None, key=record.key, value=record.value, headers=list(record.headers))
    return _delivery(await (await producer.send_batch(batch, topic, partition=target or 0)))


async def _partition(
    producer: DisposableProducer, topic: str, record: Record, partition: int | None
) -> int | Delivery | None:
    """The partition to write to (None = any), or what is wrong with it."""
    if not await producer.know_topics({topic}):
        return Delivery(None, f"topic {topic} does not exist")
    count = len(producer.client.cluster.partitions_for_topic(topic))
    if partition is not None and partition >= count:
        return Delivery(None, f"topic {topic} has no partition {partition}")
    if partition is None and record.key is not None:
        return partition_for(record.key, count)
    return partition


def _delivery(metadata: RecordMetadata) -> Delivery:
    return Delivery(Receipt(metadata.offset, metadata.offset + 1, metadata.timestamp), None)
