"""What an owner says to workers after a commit, and to itself: answers and probes, outside of transactions.

None of them is needed: an answer that is lost is asked for again, a probe that is lost is followed by another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from noontide.actors.effects import Names
from noontide.actors.settings import SchedulerSettings
from noontide.ports.record_log import Courier, Delivery, Record, TopicPartition
from noontide.records.topics import Layout
from noontide.records.worker_events import Frame, encode_frame
from noontide.records.worker_inbox import Answer, encode_answer

PART_MAX = 500
"""Runs of each kind that one record answers about."""
Addressed = tuple[TopicPartition, Record]


def answer_records(answers: Iterable[tuple[int, Answer]], layout: Layout) -> Iterator[Addressed]:
    """Records for the inboxes of workers, of (partition, what is said); nothing is said in none."""
    inbox = layout.name("worker-inbox")
    for partition, answer in answers:
        for part in _parts(answer):
            yield TopicPartition(inbox, partition), Record(answer.worker.encode(), encode_answer(part))


def _parts(answer: Answer) -> Iterator[Answer]:
    """An answer in records of a size that a topic takes."""
    longest = max(len(answer.grants), len(answer.denied), len(answer.cancels), len(answer.lost))
    for start in range(0, longest, PART_MAX):
        part = slice(start, start + PART_MAX)
        yield Answer(
            worker=answer.worker,
            slot=answer.slot,
            grants=answer.grants[part],
            denied=answer.denied[part],
            cancels=answer.cancels[part],
            lost=answer.lost[part],
        )


def probe_records(lanes: Iterable[str], names: Names, owner: str) -> Iterator[Addressed]:
    """Records for the events of silent lanes."""
    probe = Record(owner.encode(), encode_frame(Frame(probe=owner)))
    for lane in lanes:
        yield TopicPartition(names.layout.name("worker-events", lane=lane), names.slot), probe


class Answerer:
    """Sends without waiting; records to the same partition keep their order."""

    def __init__(self, courier: Courier, names: Names, owner: str, settings: SchedulerSettings) -> None:
        self._courier = courier
        self._names = names
        self._owner = owner
        self._timeout_ms = settings.send_timeout_ms
        self._under_way: set[asyncio.Task[Delivery]] = set()

    def answer(self, answers: list[tuple[int, Answer]]) -> None:
        """Answer workers: (partition of their inbox, what is said)."""
        self._send(answer_records(answers, self._names.layout))

    def probe(self, lanes: list[str]) -> None:
        """Append a record to the events of silent lanes, so that lease time moves on."""
        self._send(probe_records(lanes, self._names, self._owner))

    def _send(self, records: Iterable[Addressed]) -> None:
        for at, record in records:
            task = asyncio.create_task(self._deliver(at, record))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _deliver(self, at: TopicPartition, record: Record) -> Delivery:
        return await self._courier.send(at.topic, record, partition=at.partition, timeout_ms=self._timeout_ms)
