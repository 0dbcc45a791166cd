"""What an owner says to workers after a commit, and to itself: answers and probes, outside of transactions.

None of them is needed: an answer that is lost is asked for again, a probe that is lost is followed by another.
"""

from __future__ import annotations

import asyncio

from noontide.actors.effects import Names
from noontide.actors.settings import SchedulerSettings
from noontide.ports.record_log import Courier, Delivery, Record
from noontide.records.worker_events import Frame, encode_frame
from noontide.records.worker_inbox import Answer, encode_answer


class Answerer:
    """Sends without waiting; records to the same partition keep their order."""

    def __init__(self, courier: Courier, names: Names, owner: str, settings: SchedulerSettings) -> None:
        self._courier = courier
        self._names = names
        self._owner = owner
        self._timeout_ms = settings.send_timeout_ms
        self._inbox = names.layout.name("worker-inbox")
        self._under_way: set[asyncio.Task[Delivery]] = set()

    def answer(self, answers: list[tuple[int, Answer]]) -> None:
        """Answer workers: (partition of their inbox, what is said)."""
        for partition, answer in answers:
            if answer:
                self._send(self._inbox, partition, Record(answer.worker.encode(), encode_answer(answer)))

    def probe(self, lanes: list[str]) -> None:
        """Append a record to the events of silent lanes, so that lease time moves on."""
        probe = Record(self._owner.encode(), encode_frame(Frame(probe=self._owner)))
        for lane in lanes:
            self._send(self._names.layout.name("worker-events", lane=lane), self._names.slot, probe)

    def _send(self, topic: str, partition: int, record: Record) -> None:
        task = asyncio.create_task(self._deliver(topic, partition, record))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, topic: str, partition: int, record: Record) -> Delivery:
        return await self._courier.send(topic, record, partition=partition, timeout_ms=self._timeout_ms)
