# ruff: noqa: SLF001 - this module is where private parts of aiokafka are touched, and a test guards each
"""Everything that depends on the insides of the pinned aiokafka version, in one place.

A test compares each assumption with the installed version, so an upgrade fails there and not in production.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import aiokafka.producer.sender as sender
from aiokafka.producer.message_accumulator import BatchBuilder

from noontide.ports.record_log import Record, TopicPartition

PINNED_VERSION: Final = "0.14.0"
TRANSACTION_GAP_S: Final = 0.003
_NO_HEADERS: Final[list[tuple[str, bytes]]] = []


def shorten_transaction_gap() -> None:
    """Let a transaction that begins right after the last one wait 3 ms instead of 20 ms for the markers.

    The first partition of a new transaction is refused while the broker still writes the markers of the last one;
    aiokafka then sleeps for a module constant that has no setting. Measured: commit p50 2 ms instead of 22 ms.
    """
    assert isinstance(sender.BACKOFF_OVERRIDE, float)
    sender.BACKOFF_OVERRIDE = TRANSACTION_GAP_S


def fill_batches(
    records: Iterable[Record], *, limit_bytes: int, stamp_ms: int | None, transactional: bool = True
) -> list[BatchBuilder]:
    """Encode records into as few batches of at most `limit_bytes` as their order allows.

    A single record beyond the limit gets a batch of its own: the broker has the last word on it.
    Calls the C builder directly, which saves 0.13 us of the 0.2 to 0.4 us that the public `append` takes per record.
    stamp_ms: CreateTime for topics that use it; None takes the host's clock. transactional: of a transaction.
    """
    batch = BatchBuilder(limit_bytes, 0, is_transactional=int(transactional))
    append, count, batches = batch._builder.append, 0, [batch]
    for key, value, headers in records:
        if headers.__class__ is not list:  # the C builder takes nothing else
            headers = list(headers) if headers else _NO_HEADERS
        if append(count, stamp_ms, key, value, headers) is None:
            batch._relative_offset = count
            batch = BatchBuilder(limit_bytes, 0, is_transactional=int(transactional))
            batches.append(batch)
            append, count = batch._builder.append, 0
            append(count, stamp_ms, key, value, headers)
        count += 1
    batch._relative_offset = count
    return batches


def enqueue(producer: Any, partition: TopicPartition, batches: Sequence[BatchBuilder]) -> list[asyncio.Future[Any]]:
    """Queue batches of one partition for sending, in order, without waiting.

    `send_batch` waits until the partition's last batch was taken; the queue behind it holds any number, and the sender
    keeps one batch per partition in flight. Raises what the producer died of, if it did.
    """
    accumulator = producer._message_accumulator
    if accumulator._exception is not None:
        raise accumulator._exception
    return [accumulator._append_batch(batch, partition).future for batch in batches]
