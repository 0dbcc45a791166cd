"""A stand-in for the owner of all partitions: answers requests as an owner does, by rules a test gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.tail import Tail
from noontide.core.cursor import Cursor, JobState
from noontide.core.errors import Problem
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.jobs import job_headers
from noontide.records.rejected import Origin, encode_rejected
from noontide.records.state import cursor_record_key, encode_cursor, encode_verdict, verdict_record_key
from noontide.records.topics import Layout

Judge = Callable[[Incoming], Sequence[Problem]]
DUE_MS = 1_798_135_200_000  # 2026-12-24T18:00:00Z


def nothing_wrong(_request: Incoming) -> Sequence[Problem]:
    """Accept everything."""
    return ()


@dataclass(slots=True)
class StandIn:
    """Runs in a thread while its context is open. requests: what it has read; judge: problems of a request, if any."""

    connection: KafkaConnection
    layout: Layout
    judge: Judge = nothing_wrong
    requests: list[Incoming] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        name = self.layout.name("requests", domain="public")
        partitions = [TopicPartition(name, number) for number in range(self.layout.partitions)]
        ends = KafkaReplay(self.connection).end_offsets(partitions)
        self._thread = threading.Thread(target=self._run, args=(ends,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(10)

    def _run(self, positions: dict[TopicPartition, int]) -> None:
        producer = RequestProducer(self.connection)
        with Tail(self.connection, positions) as tail:
            while not self._stop.is_set():
                for request in tail.poll(0.05):
                    self.requests.append(request)
                    self._answer(request, producer)
                producer.poll()
        producer.flush()

    def _answer(self, request: Incoming, producer: RequestProducer) -> None:
        origin = Origin(topic=self.layout.short(request.topic), partition=request.partition, offset=request.offset)
        problems, at_ms, key = self.judge(request), request.appended_ms, request.key or b""
        asked = dict(request.headers)
        state = TopicPartition(self.layout.name("state"), self.layout.slot_of(request.partition))
        if "verdict" in asked:
            listed = [{"pointer": each.pointer, "message": each.message} for each in problems]
            verdict = encode_verdict(etag=None if problems else origin.etag, problems=listed, at_ms=at_ms)
            _send(producer, state, Record(verdict_record_key(origin.text), verdict))
        if problems:
            rejection = encode_rejected(origin, problems=problems, value=request.value, at_ms=at_ms)
            _send(producer, TopicPartition(self.layout.name("rejected"), 0), Record(key, rejection))
        elif asked.get("kind", b"define") == b"define":
            headers = job_headers(
                etag=origin.etag, origin=origin.text, tenant="default", created_ms=at_ms, updated_ms=at_ms
            )
            jobs = TopicPartition(self.layout.name("jobs"), request.partition)
            document = orjson.loads(request.value or b"{}") | {"id": key.decode(), "tenant": "default"}
            _send(producer, jobs, Record(key, orjson.dumps(document), headers))
            paused = document.get("paused", False)
            cursor = Cursor(JobState.PAUSED) if paused else Cursor(JobState.ACTIVE, DUE_MS, DUE_MS + 1_500)
            _send(producer, state, Record(cursor_record_key(key), encode_cursor(cursor)))


def _send(producer: RequestProducer, at: TopicPartition, record: Record) -> None:
    producer.send(at, record, lambda _at, _offset: None)
