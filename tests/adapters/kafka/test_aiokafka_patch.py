"""The private parts of aiokafka that are touched are still what they were; an upgrade has to pass here first."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest
from aiokafka.producer import sender
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from noontide.adapters.kafka.aiokafka_patch import (
    PINNED_VERSION,
    TRANSACTION_GAP_S,
    fill_batches,
    shorten_transaction_gap,
)
from noontide.ports.record_log import Record

LIMIT_BYTES = 10_000


def decoded(batch: BatchBuilder) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    found = []
    data = MemoryRecords(bytes(batch._build()))
    while data.has_next():
        found += [(each.offset, each.key, each.value, list(each.headers)) for each in data.next_batch()]
    return found


def test_the_pinned_version_is_installed() -> None:
    assert version("aiokafka") == PINNED_VERSION


def test_the_transaction_gap_is_still_that_constant_and_is_used_where_markers_are_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "BACKOFF_OVERRIDE", 0.02)
    handler = inspect.getsource(sender.AddPartitionsToTxnHandler.handle_response)
    assert "error_type is ConcurrentTransactions" in handler
    assert "return BACKOFF_OVERRIDE" in handler
    shorten_transaction_gap()
    assert sender.BACKOFF_OVERRIDE == TRANSACTION_GAP_S < 0.02


def test_the_public_append_does_nothing_that_filling_directly_leaves_out() -> None:
    body = inspect.getsource(BatchBuilder.append).split('"""')[2]
    assert [line.strip() for line in body.splitlines() if line.strip()] == [
        "if headers is None:",
        "headers = []",
        "if self._closed:",
        "return None",
        "key_bytes, value_bytes = self._serialize(key, value)",
        "metadata = self._builder.append(",
        "self._relative_offset,",
        "timestamp,",
        "key=key_bytes,",
        "value=value_bytes,",
        "headers=headers,",
        ")",
        "# Check if we could add the message",
        "if metadata is None:",
        "self.close()",
        "return None",
        "self._relative_offset += 1",
        "return metadata",
    ]


def test_the_builder_in_c_is_installed() -> None:
    assert DefaultRecordBatchBuilder.__module__.endswith("_crecords.default_records")


def test_queueing_directly_leaves_out_only_the_wait_for_the_last_batch() -> None:
    waiting = inspect.getsource(MessageAccumulator.add_batch)
    assert "batch = self._append_batch(builder, tp)" in waiting
    assert "await pending[-1].wait_drain(timeout=timeout)" in waiting
    queueing = inspect.getsource(MessageAccumulator._append_batch)
    assert "self._txn_manager.maybe_add_partition_to_txn(tp)" in queueing
    assert "self._batches[tp].append(batch)" in queueing


def test_records_are_encoded_as_the_public_builder_does() -> None:
    records = [
        Record(b"k", b"v"),
        Record(None, b"v", (("a", b"1"),)),
        Record(b"k", None, [("a", b"1"), ("b", b"")]),
        Record(b"", b""),
    ]
    public = BatchBuilder(LIMIT_BYTES, 0, is_transactional=1)
    for key, value, headers in records:
        public.append(timestamp=1_700_000_000_000, key=key, value=value, headers=list(headers))
    (direct,) = fill_batches(records, limit_bytes=LIMIT_BYTES, stamp_ms=1_700_000_000_000)
    assert direct.record_count() == 4
    assert direct._build() == public._build()


def test_batches_are_as_few_as_their_limit_allows() -> None:
    records = [Record(b"%d" % number, b"x" * 1_000) for number in range(25)]
    batches = fill_batches(records, limit_bytes=LIMIT_BYTES, stamp_ms=None)
    assert [batch.record_count() for batch in batches] == [9, 9, 7]
    assert all(batch.size() <= LIMIT_BYTES for batch in batches)
    found = [each for batch in batches for each in decoded(batch)]
    assert [key for _, key, _, _ in found] == [b"%d" % number for number in range(25)]
    assert [offset for offset, _, _, _ in found] == [*range(9), *range(9), *range(7)]


@pytest.mark.parametrize("above, batches", [(1, 1), (0, 2), (-1, 2)])
def test_a_batch_stays_below_its_limit(above: int, batches: int) -> None:
    records = [Record(b"k", b"v" * 100)] * 2
    (whole,) = fill_batches(records, limit_bytes=LIMIT_BYTES, stamp_ms=1)
    assert len(fill_batches(records, limit_bytes=whole.size() + above, stamp_ms=1)) == batches


def test_a_record_beyond_the_limit_gets_a_batch_of_its_own() -> None:
    records = [Record(b"a", b"v"), Record(b"b", b"x" * LIMIT_BYTES), Record(b"c", b"v")]
    batches = fill_batches(records, limit_bytes=LIMIT_BYTES, stamp_ms=None)
    assert [batch.record_count() for batch in batches] == [1, 1, 1]
