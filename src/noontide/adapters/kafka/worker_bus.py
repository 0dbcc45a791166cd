"""The way to the owners and back: frames by an idempotent producer, answers by a thread that reads one partition."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Final

import confluent_kafka as ck
from aiokafka.errors import KafkaError

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.producer import DisposableProducer
from noontide.core.partitioner import partition_for
from noontide.ports.record_log import Doubt
from noontide.ports.run_source import AnswerSink
from noontide.records.topics import Layout
from noontide.records.worker_inbox import INBOX_PARTITIONS, Answer, decode_answer

log = logging.getLogger(__name__)

POST_TIMEOUT_S: Final = 10.0
RETRY_S: Final = 0.2
START_TIMEOUT_S: Final = 10.0
END_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1
BATCH_MAX_RECORDS: Final = 500
FRAME_MAX_BYTES: Final = 1 << 20


def inbox_of(worker_id: str) -> int:
    """The partition of `worker-inbox` that a worker's answers come in."""
    return partition_for(worker_id, INBOX_PARTITIONS)


class WorkerBus:
    """`EventLine` on aiokafka and librdkafka. For one worker id and the event loop that opens it."""

    def __init__(self, connection: KafkaConnection, layout: Layout, *, worker_id: str) -> None:
        self._connection = connection
        self._layout = layout
        self._key = worker_id.encode()
        self._producer: DisposableProducer | None = None
        self._starting = asyncio.Lock()
        self._inbox = _Inbox(connection, layout.name("worker-inbox"), worker_id)

    async def open(self, sink: AnswerSink) -> None:
        """See `EventLine.open`. Raises Doubt when no broker answers in time."""
        await self._inbox.open(sink)
        try:
            await self._started()
        except (KafkaError, OSError) as error:
            raise Doubt(f"no producer could be started: {error!r}") from error

    async def post(self, lane: str, slot: int, value: bytes) -> None:
        """See `EventLine.post`."""
        topic = self._layout.name("worker-events", lane=lane)
        while True:
            producer = self._producer
            try:
                producer = await self._started()
                async with asyncio.timeout(POST_TIMEOUT_S):
                    sent = await producer.send(topic, key=self._key, value=value, partition=slot)
                    await asyncio.shield(sent)
                    return
            except (KafkaError, OSError, AssertionError) as error:  # a TimeoutError is an OSError
                log.warning("a frame for %s %d was not acknowledged, sent again: %r", topic, slot, error)
                await self._replace(producer)
                await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """See `EventLine.close`."""
        await self._inbox.close()
        await self._replace(self._producer)

    async def _started(self) -> DisposableProducer:
        async with self._starting:
            if self._producer is None:
                self._producer = await self._start()
            return self._producer

    async def _start(self) -> DisposableProducer:
        producer = DisposableProducer(
            **self._connection.for_aiokafka("worker"),
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            max_batch_size=FRAME_MAX_BYTES,
            max_request_size=8 * FRAME_MAX_BYTES,
            retry_backoff_ms=20,
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await producer.start()
        except BaseException:
            await producer.discard()
            raise
        return producer

    async def _replace(self, producer: DisposableProducer | None) -> None:
        """Leave a producer behind: after a failure its sequence numbers have a gap."""
        if producer is not None and producer is self._producer:
            self._producer = None
            await producer.discard()


class _Inbox:
    """A thread that reads one partition of `worker-inbox` from its end and passes on what is for this worker."""

    def __init__(self, connection: KafkaConnection, topic: str, worker_id: str) -> None:
        self._connection = connection
        self._at = (topic, inbox_of(worker_id))
        self._worker_id = worker_id
        self._stopping = False
        self._thread: threading.Thread | None = None

    async def open(self, sink: AnswerSink) -> None:
        """Begin at the end as it is now."""
        loop = asyncio.get_running_loop()
        consumer = ck.Consumer(_settings(self._connection))
        try:
            end = await self._end(consumer)
        except BaseException:
            consumer.close()
            raise
        consumer.assign([ck.TopicPartition(*self._at, end)])
        self._thread = threading.Thread(target=self._run, args=(consumer, loop, sink), name="worker-inbox", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """End the thread."""
        self._stopping = True
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, END_TIMEOUT_S)

    async def _end(self, consumer: ck.Consumer) -> int:
        """The end of the partition; asked again while the partition has just been made or has moved."""
        failed: ck.KafkaException | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                while True:
                    try:
                        return await asyncio.to_thread(self._ask_end, consumer)
                    except ck.KafkaException as error:
                        failed = error
                    await asyncio.sleep(RETRY_S)
        raise Doubt(f"the end of {self._at[0]} {self._at[1]} is unknown: {failed}")

    def _ask_end(self, consumer: ck.Consumer) -> int:
        found = consumer.get_watermark_offsets(ck.TopicPartition(*self._at), timeout=END_TIMEOUT_S / 4)
        if found is None:
            raise ck.KafkaException("no answer")
        return int(found[1])

    def _run(self, consumer: ck.Consumer, loop: asyncio.AbstractEventLoop, sink: AnswerSink) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed under us
            while not self._stopping:
                first = consumer.poll(POLL_S)
                if first is not None:
                    answers = self._answers([first, *consumer.consume(BATCH_MAX_RECORDS - 1, 0)])
                    if answers:
                        loop.call_soon_threadsafe(sink, answers)
        consumer.close()

    def _answers(self, messages: list[ck.Message]) -> list[Answer]:
        answers, key = [], self._worker_id.encode()
        for message in messages:
            value = message.value()
            if message.error() is not None or message.key() != key or value is None:
                continue
            try:
                answer = decode_answer(value)
            except ValueError as error:
                log.error("%s %d: not an answer, passed over: %s", *self._at, error)
                continue
            if answer.worker == self._worker_id:
                answers.append(answer)
        return answers


def _settings(connection: KafkaConnection) -> ConfluentSettings:
    return {
        **connection.for_reader("worker-inbox"),
        "auto.offset.reset": "latest",  # answers that were missed are asked for again
        "isolation.level": "read_uncommitted",  # plain records: there is nothing to wait for
        "fetch.wait.max.ms": 100,
    }
