"""Requests from an event loop: many at once in few batches, each awaited until all in-sync replicas have it.

What comes within a few ms goes out together, as one request to each broker, and a partition whose last batch is not
acknowledged yet gathers on: so batches grow with load. (A client that sends the batch of each partition as a request of
its own costs the brokers a request per record here, because the ids of jobs spread over all partitions.)
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

from aiokafka.errors import KafkaError

from noontide.adapters.kafka.aiokafka_patch import enqueue, fill_batches
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.producer import DisposableProducer
from noontide.adapters.kafka.requests import NotSent
from noontide.ports.record_log import Receipt, Record, TopicPartition

log = logging.getLogger(__name__)
BATCH_MAX_BYTES: Final = 512 * 1024
WAITING_MAX: Final = 200_000
"""Records that wait for their acknowledgement at once."""
START_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.1
CLOSE_S: Final = 5.0

_Queued = tuple[Record, asyncio.Future[Receipt]]


@dataclass(slots=True, eq=False)
class _Gathered:
    """Records of one partition that go together. timer: fails them when they are not acknowledged in time."""

    at: TopicPartition
    timer: asyncio.TimerHandle | None = None
    records: list[_Queued] = field(default_factory=list)
    batches: int = 0


class RequestLine:
    """An idempotent producer for one event loop, started by the first record; close it at the end.

    gather_ms: how long a record waits for company. timeout_s: how long a record may wait for its acknowledgement
    before it counts as not sent.
    """

    def __init__(self, connection: KafkaConnection, *, gather_ms: int, timeout_s: float) -> None:
        self._connection = connection
        self._gather_s = gather_ms / 1000
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._producer: DisposableProducer | None = None
        self._queued: dict[TopicPartition, _Gathered] = {}
        self._under_way: dict[TopicPartition, _Gathered] = {}
        self._waiting = 0
        self._news = asyncio.Event()
        self._quiet = asyncio.Event()
        self._discarding: set[asyncio.Task[None]] = set()
        self._sending = asyncio.create_task(self._send_for_ever(), name="request-line")

    def send(self, at: TopicPartition, record: Record) -> asyncio.Future[Receipt]:
        """Queue a record; the future gives where it is. Raises NotSent at once or in the future.

        After NotSent the record may be in the log or not, but never twice.
        """
        if self._waiting >= WAITING_MAX:
            raise NotSent("too many requests wait for the brokers", unreachable=True)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        future.add_done_callback(self._answered)
        self._waiting += 1
        gathered = self._queued.get(at)
        if gathered is None:
            gathered = self._queued[at] = _Gathered(at)
            gathered.timer = self._loop.call_later(self._timeout_s, self._give_up, gathered)
        gathered.records.append((record, future))
        self._news.set()
        return future

    async def close(self) -> None:
        """Wait for what is under way, at most CLOSE_S, and end."""
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._waiting:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            log.warning("%d requests were not acknowledged", self._waiting)
        self._sending.cancel()
        await asyncio.wait({self._sending})
        for gathered in (*self._queued.values(), *self._under_way.values()):
            self._end(gathered, "the process ends")
        self._leave_behind(self._producer)
        if self._discarding:
            await asyncio.wait(self._discarding)

    def _answered(self, future: asyncio.Future[Receipt]) -> None:
        self._waiting -= 1
        self._quiet.set()
        if not future.cancelled():
            future.exception()  # looked at, should nobody wait for it any more

    # --- sending

    async def _send_for_ever(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(self._gather_s)
            self._news.clear()
            ready = [each for each in self._queued.values() if each.at not in self._under_way]
            if not ready:
                continue
            try:
                producer = await self._started({each.at.topic for each in ready})
                for gathered in ready:
                    self._send(producer, gathered)
            except (KafkaError, OSError, AssertionError) as error:  # a TimeoutError is an OSError
                log.warning("requests could not be sent, tried again: %r", error)
                self._leave_behind(self._producer)
                self._news.set()
                await asyncio.sleep(RETRY_S)

    def _send(self, producer: DisposableProducer, gathered: _Gathered) -> None:
        """Hand over what one partition has gathered, unless that has waited for too long meanwhile."""
        if self._queued.get(gathered.at) is not gathered:
            return
        records = (record for record, _ in gathered.records)
        batches = fill_batches(records, limit_bytes=BATCH_MAX_BYTES, stamp_ms=None, transactional=False)
        counts = [batch.record_count() for batch in batches]
        sent = enqueue(producer, gathered.at, batches)
        del self._queued[gathered.at]
        self._under_way[gathered.at] = gathered
        gathered.batches = len(sent)
        rest = iter(gathered.records)
        for answer, count in zip(sent, counts, strict=True):
            batch = list(islice(rest, count))
            answer.add_done_callback(partial(self._acknowledged, producer, gathered, batch))

    def _acknowledged(
        self, producer: DisposableProducer, gathered: _Gathered, batch: list[_Queued], answer: asyncio.Future[Any]
    ) -> None:
        gathered.batches -= 1
        if not gathered.batches:
            del self._under_way[gathered.at]
            if gathered.timer is not None:
                gathered.timer.cancel()
            if gathered.at in self._queued:
                self._news.set()
        if answer.cancelled() or answer.exception() is not None:
            _fail(batch, "cancelled" if answer.cancelled() else repr(answer.exception()))
            self._leave_behind(producer)  # its sequence numbers have a gap now
        elif answer.result().offset < 0:
            _fail(batch, "the broker no longer knows the offset of a repeated batch")
        else:
            first, appended_ms = answer.result().offset, answer.result().timestamp
            for offset, (_, future) in enumerate(batch, start=first):
                if not future.done():
                    future.set_result(Receipt(offset, offset + 1, appended_ms))

    def _give_up(self, gathered: _Gathered) -> None:
        """What has waited for so long counts as not sent, although a batch that is under way may still arrive."""
        if self._queued.get(gathered.at) is gathered:
            del self._queued[gathered.at]
        self._end(gathered, f"not acknowledged within {self._timeout_s:.0f} s")

    def _end(self, gathered: _Gathered, why: str) -> None:
        if gathered.timer is not None:
            gathered.timer.cancel()
        _fail(gathered.records, why)

    # --- the producer

    async def _started(self, topics: set[str]) -> DisposableProducer:
        """The producer, once it knows these topics. Raises KafkaError or OSError when that takes too long."""
        if self._producer is None:
            self._producer = self._new_producer()
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._producer.start()
        if not self._producer.tracks(topics):
            async with asyncio.timeout(START_TIMEOUT_S):
                missing = topics - await self._producer.know_topics(topics)
            if missing:
                raise KafkaError(f"there is no topic {', '.join(sorted(missing))}")
        return self._producer

    def _new_producer(self) -> DisposableProducer:
        return DisposableProducer(
            **self._connection.for_aiokafka("requests"),
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            request_timeout_ms=int(self._timeout_s * 1000),
            max_batch_size=BATCH_MAX_BYTES,
            retry_backoff_ms=20,
        )

    def _leave_behind(self, producer: DisposableProducer | None) -> None:
        """The next records go out with another one; what this one has not sent fails."""
        if producer is not None and producer is self._producer:
            self._producer = None
            task = asyncio.create_task(producer.discard())
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)


def _fail(queued: list[_Queued], why: str) -> None:
    for _, future in queued:
        if not future.done():
            future.set_exception(NotSent(why, unreachable=True))
