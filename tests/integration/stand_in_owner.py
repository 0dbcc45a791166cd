"""An owner of slots that publishes what it is given and grants what is claimed: the other side of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import confluent_kafka as ck

from noontide.records.topics import Layout
from noontide.records.worker_events import End, Frame, decode_frame
from noontide.records.worker_inbox import Answer, encode_answer

FACT_TIMEOUT_S = 60.0


@dataclass
class Heard:
    """What came in, by run id; guarded by `changed`."""

    claims: list[tuple[str, str]] = field(default_factory=list)  # (run id, worker)
    granted: dict[str, str] = field(default_factory=dict)  # run id -> worker
    beats: list[tuple[str, str]] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)
    progress: dict[str, tuple[float | None, str]] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)


class StandInOwner:
    """Owns all slots. The first claim of a run is granted, later ones are denied, as long as `answers` is True."""

    def __init__(self, bootstrap: str, layout: Layout, *, lease_ms: int = 30_000, lane: str = "default") -> None:
        self.answers = True
        self.heard = Heard()
        self.changed = threading.Condition()
        self.bootstrap = bootstrap
        self.layout = layout
        self._lane = lane
        self._lease_ms = lease_ms
        self._stopping = False
        self._tokens: dict[str, tuple[str, int]] = {}
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def publish(self, invitations: Sequence[tuple[bytes, bytes]], slots: Iterable[int], *, commit: bool = True) -> None:
        """Append invitations (key, value), the n-th to the n-th slot, in one transaction."""
        producer = ck.Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.layout.prefix}owner"})
        producer.init_transactions()
        producer.begin_transaction()
        for (key, value), slot in zip(invitations, slots, strict=False):
            producer.produce(self.layout.name("runs", lane=self._lane), value, key, partition=slot)
            producer.poll(0)
        if commit:
            producer.commit_transaction()
        else:
            producer.flush(10)
            producer.abort_transaction()

    def say(self, answer: Answer, inbox: int) -> None:
        """Send an answer to a worker."""
        topic = self.layout.name("worker-inbox")
        self._producer.produce(topic, encode_answer(answer), answer.worker.encode(), partition=inbox)
        self._producer.flush(5)

    def until(self, holds: Callable[[Heard], bool], *, what: str, within_s: float = FACT_TIMEOUT_S) -> None:
        """Wait until what was heard satisfies a condition."""
        with self.changed:
            assert self.changed.wait_for(lambda: holds(self.heard), within_s), f"not heard within {within_s} s: {what}"

    def _listen(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "owner", "enable.auto.commit": False}
        consumer = ck.Consumer({**settings, "fetch.wait.max.ms": 50})
        topic = self.layout.name("worker-events", lane=self._lane)
        consumer.assign([ck.TopicPartition(topic, slot, 0) for slot in range(self.layout.slots)])
        while not self._stopping:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                frame = decode_frame(message.value() or b"")
                self._note(frame)
                self._answer(frame, message.partition() or 0)
        consumer.close()

    def _note(self, frame: Frame) -> None:
        with self.changed:
            heard = self.heard
            heard.workers.add(frame.worker)
            heard.claims += [(run_id, frame.worker) for run_id, _ in frame.claims]
            heard.beats += [(run_id, frame.worker) for run_id, _ in frame.beats]
            heard.ends.update({end.run_id: end for end in frame.ends})
            heard.progress.update({run_id: (fraction, note) for run_id, _, fraction, note in frame.progress})
            self.changed.notify_all()

    def _answer(self, frame: Frame, slot: int) -> None:
        if not frame.claims or not self.answers:
            return
        answer = Answer(worker=frame.worker, slot=slot, grants=[], denied=[])
        for run_id, attempt in frame.claims:
            worker, token = self._tokens.setdefault(run_id, (frame.worker, len(self._tokens) + 1))
            if worker == frame.worker:
                answer.grants.append((run_id, attempt, token, self._lease_ms))
                self.heard.granted[run_id] = worker
            else:
                answer.denied.append((run_id, attempt, "taken"))
        self.say(answer, frame.inbox)

    def token(self, run_id: str) -> int:
        """The token that was granted."""
        return self._tokens[run_id][1]

    @contextmanager
    def listening(self) -> Iterator[Self]:
        """Answer workers for as long as the context lasts."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping = True
            self._thread.join(10)
