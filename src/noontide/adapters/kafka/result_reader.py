"""Finding the record of one run on `results`, by the time at which it ended: nobody keeps an index of results."""

from __future__ import annotations

import threading
import time
from typing import Final

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.tail import Tail, offsets_since
from noontide.ports.record_log import Doubt, TopicPartition
from noontide.records.moving import history_partitions
from noontide.records.topics import Layout

SLACK_MS: Final = 5_000
"""A result is appended in the transaction that closes its run, but brokers' clocks differ a little."""
LOOK_S: Final = 4.0
POLL_S: Final = 0.3
AT_ONCE_MAX: Final = 4
"""Looks at a time; each has a consumer of its own."""
WAIT_S: Final = 3.0
"""How long one more waits for its turn."""


class ResultReader:
    """Reads `results`. Blocks for up to a few seconds; for a thread beside the event loop."""

    def __init__(self, connection: KafkaConnection, layout: Layout) -> None:
        self._connection = connection
        self._layout = layout
        self._turns = threading.BoundedSemaphore(AT_ONCE_MAX)

    def result_of(self, run_id: str, ended_ms: int) -> bytes | None:
        """The newest record of a run that ended then; None when there is none (any more). Raises Doubt.

        ended_ms: as the history says. Records around that time are read, for a bounded time.
        """
        if not self._turns.acquire(timeout=WAIT_S):
            raise Doubt("too many look for results at once")
        try:
            return self._looked_up(run_id, ended_ms)
        finally:
            self._turns.release()

    def _looked_up(self, run_id: str, ended_ms: int) -> bytes | None:
        job_id = run_id.rpartition(":")[0].encode()
        topic = self._layout.name("results")
        numbers = history_partitions(self._layout, self._layout.partition_of(job_id))
        partitions = [TopicPartition(topic, number) for number in numbers]
        starts = offsets_since(self._connection, partitions, since_ms=ended_ms - SLACK_MS)
        stops = offsets_since(self._connection, partitions, since_ms=ended_ms + SLACK_MS)
        wanted = {at: offset for at, offset in starts.items() if offset < stops[at]}
        return self._found(wanted, stops, job_id, run_id) if wanted else None

    def _found(
        self, starts: dict[TopicPartition, int], stops: dict[TopicPartition, int], job_id: bytes, run_id: str
    ) -> bytes | None:
        mark, found = b'"run_id":"%b"' % run_id.encode(), None
        until_s = time.monotonic() + LOOK_S
        waiting = set(starts)
        with Tail(self._connection, starts) as tail:
            while waiting and time.monotonic() < until_s:
                for record in tail.poll(POLL_S):
                    if record.key == job_id and record.value is not None and mark in record.value:
                        found = record.value
                    at = TopicPartition(record.topic, record.partition)
                    if record.offset >= stops[at] - 2:  # a marker may stand at the end
                        waiting.discard(at)
                if found is not None:
                    break
        return found
