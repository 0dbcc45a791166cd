"""The transactional writer of one slot on Kafka.

    closed ──open──▶ ready ──commit──▶ ready
                       └──Doubt, Fenced──▶ closed

Every way out of `commit` but success throws the producer away: after a failed send it has a gap in its sequence
numbers, and a commit that was answered late may belong to a transaction that another owner settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiokafka.errors import (
    BrokerResponseError,
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
    RecordListTooLargeError,
)

from noontide.adapters.kafka.aiokafka_patch import enqueue, fill_batches, shorten_transaction_gap
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.producer import DisposableProducer
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.record_log import Doubt, Fenced, Outputs, Receipt, TopicPartition

BATCH_MAX_BYTES: Final = 1 << 20
OPEN_TIMEOUT_MS: Final = 5_000
METADATA_TIMEOUT_MS: Final = 1_000
# After a first refusal the other partitions get this long to answer, so that the innocent are not suspected.
GRACE_MS: Final = 200

# What an old owner sees. The last two come when the producer already knows that it is dead. Wrongly taken for a fence
# they cost a short back-off; a fence wrongly taken for a doubt would make the old owner fence the new one.
_FENCED: Final = (
    ProducerFenced,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    IllegalOperation,
    AssertionError,
)
# Errors that blame the records themselves. A record without a key on a compacted topic is not among them: aiokafka does
# not know that error, so its partition is suspected like any other.
_FINAL: Final = (MessageSizeTooLargeError, RecordListTooLargeError)

_Sent = Mapping[TopicPartition, Sequence[tuple[asyncio.Future[Any], int]]]


class _SendTimes(NamedTuple):
    sent_boot_ms: float
    acknowledged_boot_ms: float


class KafkaSlotLog:
    """`SlotLog` on an aiokafka transactional producer; one commit at a time.

    batch_limit: the most bytes a batch may have on a topic (its max.message.bytes); batches never exceed 1 MiB.
    time_source: learns from the append time of every commit, and stamps records for topics that use CreateTime.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        transactional_id: str,
        transaction_timeout_ms: int = 10_000,
        batch_limit: Callable[[str], int] | None = None,
        time_source: BrokerTimeSource | None = None,
    ) -> None:
        self._connection = connection
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._batch_limit = batch_limit
        self._time_source = time_source
        self._producer: DisposableProducer | None = None
        self._known_topics: set[str] = set()

    async def open(self) -> None:
        """See `SlotLog.open`."""
        await self.close()
        shorten_transaction_gap()
        self._producer = producer = self._new_producer()
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_MS / 1000):
                await producer.start()
                await producer.know_topics(self._known_topics)
        except (KafkaError, OSError, TimeoutError, AssertionError) as error:
            await self.close()
            raise Doubt(f"the slot's writer could not be opened: {error!r}") from error

    async def commit(self, outputs: Outputs, *, timeout_ms: int) -> dict[TopicPartition, Receipt]:
        """See `SlotLog.commit`; an empty commit is a mistake of the caller, since it proves nothing to the broker."""
        assert any(outputs.values()), "an empty transaction succeeds even when fenced: do not commit nothing"
        producer = self._producer
        if producer is None:
            raise Doubt("the slot's writer is not open")
        self._producer = None
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            receipts = await self._transact(producer, outputs, deadline)
        except BaseException:
            await producer.discard()
            raise
        self._producer = producer
        return receipts

    async def close(self) -> None:
        """See `SlotLog.close`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.discard()

    def _new_producer(self) -> DisposableProducer:
        return DisposableProducer(
            **self._connection.for_aiokafka(self._transactional_id),
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            acks="all",
            linger_ms=0,
            max_batch_size=BATCH_MAX_BYTES,
            retry_backoff_ms=20,
        )

    async def _transact(
        self, producer: DisposableProducer, outputs: Outputs, deadline: float
    ) -> dict[TopicPartition, Receipt]:
        try:
            await self._require_topics(producer, outputs, deadline)
            await producer.begin_transaction()
            boot_ms = self._boot_ms()
            sent = self._enqueue(producer, outputs)
            await _await_answers(producer, sent, deadline)
            times = _SendTimes(boot_ms, self._boot_ms())
            async with asyncio.timeout_at(deadline):
                await producer.commit_transaction()
        except TimeoutError as error:
            raise Doubt("the commit was not answered in time") from error
        except (KafkaError, IllegalOperation, AssertionError, OSError) as error:
            raise _verdict(producer, error) from error
        return self._receipts(sent, times)

    async def _require_topics(self, producer: DisposableProducer, outputs: Outputs, deadline: float) -> None:
        topics = {partition.topic for partition in outputs}
        if topics <= self._known_topics and producer.tracks(topics):
            return
        limit = min(deadline, asyncio.get_running_loop().time() + METADATA_TIMEOUT_MS / 1000)
        async with asyncio.timeout_at(limit):
            known = await producer.know_topics(topics)
        self._known_topics |= known
        if unknown := topics - known:
            suspects = frozenset(partition for partition in outputs if partition.topic in unknown)
            raise Doubt(f"topics do not exist: {', '.join(sorted(unknown))}", suspects=suspects)

    def _enqueue(self, producer: DisposableProducer, outputs: Outputs) -> _Sent:
        source = self._time_source
        stamp_ms = source.now_ms() if source is not None and source.trusted() else None
        sent: dict[TopicPartition, list[tuple[asyncio.Future[Any], int]]] = {}
        for partition, records in outputs.items():
            if not records:
                continue
            batches = fill_batches(records, limit_bytes=self._limit_bytes(partition.topic), stamp_ms=stamp_ms)
            counts = [batch.record_count() for batch in batches]
            sent[partition] = list(zip(enqueue(producer, partition, batches), counts, strict=True))
        return sent

    def _limit_bytes(self, topic: str) -> int:
        return BATCH_MAX_BYTES if self._batch_limit is None else min(BATCH_MAX_BYTES, self._batch_limit(topic))

    def _boot_ms(self) -> float:
        return 0.0 if self._time_source is None else self._time_source.boot_ms()

    def _receipts(self, sent: _Sent, times: _SendTimes) -> dict[TopicPartition, Receipt]:
        # A topic with CreateTime does not say when it appended; the newest time of this commit stands in.
        newest_ms = max(future.result().timestamp for answers in sent.values() for future, _ in answers)
        if self._time_source is not None and newest_ms >= 0:
            self._time_source.observe(
                appended_ms=newest_ms,
                sent_boot_ms=times.sent_boot_ms,
                acknowledged_boot_ms=times.acknowledged_boot_ms,
            )
        return {partition: _receipt(answers, newest_ms) for partition, answers in sent.items()}


def _receipt(answers: Sequence[tuple[asyncio.Future[Any], int]], newest_ms: int) -> Receipt:
    last, count = answers[-1]
    appended_ms = last.result().timestamp
    return Receipt(
        first_offset=answers[0][0].result().offset,
        next_offset=last.result().offset + count,
        appended_ms=appended_ms if appended_ms >= 0 else newest_ms,
    )


async def _await_answers(producer: DisposableProducer, sent: _Sent, deadline: float) -> None:
    """Wait until every batch was acknowledged with an offset; raises the right error when one was not."""
    loop = asyncio.get_running_loop()
    futures = {future: partition for partition, answers in sent.items() for future, _ in answers}
    done, pending = await asyncio.wait(
        futures, timeout=max(0.0, deadline - loop.time()), return_when=asyncio.FIRST_EXCEPTION
    )
    refused = any(future.exception() is not None for future in done)
    if pending and not refused:
        raise await _unanswered(producer, {futures[future] for future in pending}, whole=len(sent))
    if pending:
        await asyncio.wait(pending, timeout=min(GRACE_MS / 1000, max(0.0, deadline - loop.time())))
    if refused:
        raise await _refusal(producer, futures)
    if lost := {futures[future] for future in futures if future.result().offset < 0}:
        raise Doubt("the broker no longer knows the offsets of a repeated batch", suspects=frozenset(lost))


async def _unanswered(producer: DisposableProducer, partitions: set[TopicPartition], *, whole: int) -> Doubt:
    """Name the partitions to suspect: those without a leader if there are any, else all that kept silent.

    When the whole commit kept silent, nothing points anywhere.
    """
    try:
        await asyncio.wait_for(producer.refresh_topics(), GRACE_MS / 1000)
    except (TimeoutError, KafkaError, OSError):
        return Doubt("the brokers did not answer in time")
    cluster = producer.client.cluster
    leaderless = {each for each in partitions if cluster.leader_for_partition(each) in {None, -1}}
    suspects = leaderless or (partitions if len(partitions) < whole or whole == 1 else set())
    return Doubt("records were not acknowledged in time", suspects=frozenset(suspects))


async def _refusal(producer: DisposableProducer, futures: Mapping[asyncio.Future[Any], TopicPartition]) -> Exception:
    errors: dict[TopicPartition, BaseException] = {}
    for future, partition in futures.items():
        if future.done() and (error := future.exception()) is not None:
            errors.setdefault(partition, error)  # what follows a refused batch is only out of sequence
    denied = producer.unauthorised_topics()
    if denied is None and any(isinstance(error, _FENCED) for error in errors.values()):
        return Fenced(f"records were refused: {next(iter(errors.values()))!r}")
    await _abort(producer)
    final = {partition: error for partition, error in errors.items() if isinstance(error, _FINAL)}
    cause = producer.cause_of_death()
    if isinstance(cause, _FENCED) and not final:
        return Fenced(f"another owner holds the slot: {cause!r}")
    suspects = final or {
        partition: error
        for partition, error in errors.items()
        if isinstance(error, BrokerResponseError) and error is not cause  # the same object at all when the sender died
    }
    if denied is not None:
        suspects = {partition: error for partition, error in errors.items() if partition.topic in denied}
    first = next(iter((suspects or errors).values()))
    return Doubt(f"records were refused: {first!r}", suspects=frozenset(suspects), refused=bool(final))


async def _abort(producer: DisposableProducer) -> None:
    """Try to settle the transaction now rather than at the next `open`; a failure changes nothing."""
    try:
        await asyncio.wait_for(producer.abort_transaction(), GRACE_MS / 1000)
    except (TimeoutError, KafkaError, IllegalOperation, AssertionError, OSError):
        return


def _verdict(producer: DisposableProducer, error: BaseException) -> Exception:
    cause = producer.cause_of_death()
    if isinstance(cause, _FENCED) or (cause is None and isinstance(error, _FENCED)):
        return Fenced(f"another owner holds the slot: {cause or error!r}")
    return Doubt(f"the outcome of the commit is unknown: {cause or error!r}")
