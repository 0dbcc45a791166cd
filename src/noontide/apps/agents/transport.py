"""Faust as we need it: committed records in batches, nothing of it listening or making topics, and tables that restart
from the log.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiokafka
import faust
from aiokafka.structs import ConsumerRecord
from faust.serializers.codecs import Codec
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport

from noontide.adapters.kafka.connection import KafkaConnection

BATCH_MAX: Final = 2_000
GATHER_S: Final = 0.4
_TRICKLE: Final = range(1, BATCH_MAX)
COMMIT_S: Final = 1.0
SESSION_S: Final = 8.0
REBALANCE_S: Final = 10.0
HEARTBEAT_S: Final = 1.0
STORE: Final = {"block_cache_size": 8 << 20, "write_buffer_size": 4 << 20, "max_write_buffer_number": 2}
"""RocksDB of one partition of a table, bytes: Faust's own would be two GiB each."""


class Batch(Sequence[ConsumerRecord]):
    """Records of one partition that were read together, in order. To Faust they are one message."""

    def __init__(self, records: list[ConsumerRecord]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    @property
    def partition(self) -> int:
        """Of the topic."""
        return int(self._records[0].partition)


class _Untouched(Codec):
    """Keys and values as they came."""

    def _loads(self, s: Any) -> Any:
        return s

    def _dumps(self, s: Any) -> Any:
        return s


UNTOUCHED: Final = _Untouched()


class _CommittedThread(AIOKafkaConsumerThread):
    """Faust reads uncommitted records unless it writes in transactions, which it does not do here."""

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001 - the fetcher is made from it when it starts
        return consumer


class _BatchConsumer(Consumer):
    """Gives what was fetched of a partition as one message, whose offset is that of the last record.

    A message of Faust costs 100 us whatever is in it. Streams take batches of a partition one after the other
    (concurrency 1), so what was acknowledged last is what can be committed: gaps of markers and batches need no book.
    """

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _CommittedThread(self, loop=self.loop, beacon=self.beacon)

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as Faust has it
        pause_s = getattr(self, "_next_s", 0.0) - self.loop.time()
        if pause_s > 0:
            await self.sleep(pause_s)  # under a trickle work gathers: a row is written per batch
        fetched = await super()._getmany(active_partitions, timeout)
        found = {tp: records if self._is_changelog_tp(tp) else _batches(records) for tp, records in fetched.items()}
        if sum(len(records) for tp, records in fetched.items() if not self._is_changelog_tp(tp)) in _TRICKLE:
            self._next_s = self.loop.time() + GATHER_S
        return found

    async def seek_to_committed(self) -> Any:
        """After tables were read, back to what is committed; where nothing is yet, to the beginning.

        Faust leaves these where they are: behind what was fetched, and passed over, while it read tables.
        """
        committed = await super().seek_to_committed()
        fresh = [tp for tp, offset in committed.items() if not offset and not self._is_changelog_tp(tp)]
        if fresh:
            for tp, offset in (await self.earliest_offsets(*fresh)).items():
                await self._seek(tp, offset)
        return committed

    async def _add_gap(self, tp: Any, offset_from: int, offset_to: int) -> None:
        """See the class."""

    def _new_offset(self, tp: Any) -> int | None:
        acked = self._acked[tp]
        if not acked:
            return None
        last = max(acked)
        acked.clear()
        self._acked_index[tp].clear()
        return last + 1


def _batches(records: list[ConsumerRecord]) -> list[ConsumerRecord]:
    chunks = [records[start : start + BATCH_MAX] for start in range(0, len(records), BATCH_MAX)]
    return [dataclasses.replace(chunk[-1], key=None, value=Batch(chunk), headers=()) for chunk in chunks]


class CommittedTransport(Transport):
    """Reads committed records only."""

    Consumer = _BatchConsumer


def committed_app(name: str, connection: KafkaConnection, *, folder: Path, partitions: int) -> faust.App:
    """An application with tables in RocksDB below a folder, which is emptied: tables are read from their topics.

    A process that was killed may have written to the folder what never reached the topic, so it is not trusted.
    """
    shutil.rmtree(folder / "tables", ignore_errors=True)
    app = faust.App(
        name,
        broker=[f"kafka://{address.strip()}" for address in connection.bootstrap.split(",")],
        broker_credentials=_credentials(connection),
        broker_client_id=connection.for_aiokafka("agents")["client_id"],
        broker_commit_interval=COMMIT_S,
        broker_rebalance_timeout=REBALANCE_S,  # a process killed within one holds the others up so long
        broker_session_timeout=SESSION_S,  # so long are the partitions of a killed process without one
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_request_timeout=SESSION_S + 5,
        store="rocksdb://",
        datadir=str(folder / "tables"),
        topic_partitions=partitions,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        autodiscover=False,
        processing_guarantee="at_least_once",
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        stream_wait_empty=False,
        table_standby_replicas=0,
    )
    app.transport = CommittedTransport(app.conf.broker_consumer, app, loop=app.loop)
    return app


def _credentials(connection: KafkaConnection) -> Any:
    settings = connection.for_aiokafka("agents")
    context = settings["ssl_context"]
    if settings["security_protocol"].startswith("SASL"):
        return faust.SASLCredentials(
            username=settings["sasl_plain_username"],
            password=settings["sasl_plain_password"],
            ssl_context=context,
            mechanism=settings["sasl_mechanism"],
        )
    return None if context is None else faust.SSLCredentials(context)
