"""Many runs held by many workers: what heartbeats cost the owner, and that none of the runs is taken for lost.

The workers are simulated by one process that speaks their protocol: it claims, heartbeats, and ends, but runs nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.tail import Tail
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.partitioner import partition_for
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.runs import Invitation, decode_invitation
from noontide.records.worker_events import End, Frame, Outcome, encode_frame
from noontide.records.worker_inbox import INBOX_PARTITIONS, decode_answer
from noontide.testing.bench.load import Job, enqueue, one_off
from noontide.testing.bench.measure import percentile
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage, set_stage
from noontide.testing.bench.warmup import drained
from noontide.testing.bench.workers import closings

SERIES: Final = "held"
LANE: Final = "default"
HEARTBEAT_MS: Final = 10_000
GRANT_TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatsOptions:
    """runs: held at the same time by so many workers, for so many seconds; leases and heartbeats as shipped."""

    runs: int = 14_000
    workers: int = 280
    seconds: int = 60


@dataclass(slots=True, kw_only=True)
class SimulatedWorker:
    """What one worker holds: by slot, run ids and tokens. offset_ms: its place in the beat of all."""

    worker_id: str
    offset_ms: int
    held: defaultdict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    next_ms: float = 0.0

    @property
    def inbox(self) -> int:
        """Where its answers come."""
        return partition_for(self.worker_id, INBOX_PARTITIONS)


@dataclass(slots=True, kw_only=True)
class Crowd:
    """All of them, on one producer and one consumer each of `runs` and `worker-inbox`."""

    stage: Stage
    workers: dict[str, SimulatedWorker]
    runs: Tail
    inboxes: Tail
    producer: RequestProducer
    invited: dict[str, Invitation] = field(default_factory=dict)
    again: int = 0
    lost: int = 0
    frames: int = 0
    answer_ms: list[int] = field(default_factory=list)
    _claimed_ms: dict[str, int] = field(default_factory=dict)

    def take(self) -> int:
        """Claim what is offered, turn by turn; returns how many runs are held."""
        fresh = [invitation for each in self.runs.poll(POLL_S) if (invitation := self._invitation(each))]
        names, first = list(self.workers), len(self.invited) - len(fresh)
        claims: defaultdict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
        for number, invitation in enumerate(fresh, first):
            claims[names[number % len(names)], invitation.slot].append((invitation.run_id, invitation.attempt))
            self._claimed_ms[invitation.run_id] = wall_now_ms()
        for (name, slot), claimed in claims.items():
            self._send(self.workers[name], slot, Frame(claims=claimed))
        self.listen()
        return sum(len(runs) for worker in self.workers.values() for runs in worker.held.values())

    def _invitation(self, record: Incoming) -> Invitation | None:
        invitation = decode_invitation(record.value or b"")
        if invitation.run_id in self.invited:
            self.again += 1  # somebody thinks that its worker is lost
            return None
        self.invited[invitation.run_id] = invitation
        return invitation

    def listen(self) -> None:
        """Take note of answers."""
        for record in self.inboxes.poll(POLL_S):
            answer = decode_answer(record.value or b"")
            worker = self.workers[answer.worker]
            for run_id, _attempt, token, _lease_ms in answer.grants:
                worker.held[answer.slot][run_id] = token
                self.answer_ms.append(wall_now_ms() - self._claimed_ms[run_id])
            self.lost += len(answer.lost)

    def beat(self, heartbeat_ms: int) -> None:
        """Heartbeats of those whose time has come: one frame per slot, as a worker process sends them."""
        now_ms = time.monotonic() * 1_000
        for worker in self.workers.values():
            if worker.next_ms <= now_ms:
                worker.next_ms = now_ms + (heartbeat_ms if worker.next_ms else worker.offset_ms)
                for slot, runs in worker.held.items():
                    self._send(worker, slot, Frame(beats=list(runs.items())))
        self.producer.poll()

    def end(self) -> None:
        """Everything has succeeded."""
        for worker in self.workers.values():
            for slot, runs in worker.held.items():
                ends = [End(run_id=run, token=token, outcome=Outcome.SUCCEEDED) for run, token in runs.items()]
                self._send(worker, slot, Frame(ends=ends))
        self.producer.flush()

    def _send(self, worker: SimulatedWorker, slot: int, frame: Frame) -> None:
        frame.worker, frame.inbox = worker.worker_id, worker.inbox
        at = TopicPartition(self.stage.layout.name("worker-events", lane=LANE), slot)
        self.producer.send(at, Record(worker.worker_id.encode(), encode_frame(frame)), lambda _at, _offset: None)
        self.frames += 1


def run_heartbeats(options: HeartbeatsOptions) -> dict[str, object]:
    """Run the bench. expired: runs offered again; lost: runs of which a worker was told that it lost them."""
    with set_stage() as stage:
        at_ms = wall_now_ms()
        jobs = (held_job(number, at_ms) for number in range(options.runs))
        with _crowd(stage, options) as crowd, closings(stage, expected=options.runs) as watcher:
            enqueue(stage, jobs, expected=options.runs, say=say)
            _until_held(crowd, options.runs)
            heartbeat_ms = next(iter(crowd.invited.values())).heartbeat_ms
            _hold(crowd, heartbeat_ms, heartbeat_ms / 1_000)  # until every worker has its place in the beat
            costs, frames = stage.costs(), crowd.frames
            _hold(crowd, heartbeat_ms, options.seconds)
            cores, frames = costs.cores(), crowd.frames - frames
            early = watcher.count
            crowd.end()
            closed = drained(stage, watcher, timeout_s=GRANT_TIMEOUT_S)
        answers = sorted(crowd.answer_ms)
        return {
            "runs": options.runs,
            "workers": options.workers,
            "seconds": options.seconds,
            "heartbeat_ms": heartbeat_ms,
            "frames_per_second": frames / options.seconds,
            "beats_per_second": options.runs * 1_000 / heartbeat_ms,
            **cores,
            "rss_mb": costs.scheduler.look(),
            "claim_to_grant_p50_ms": percentile(answers, 0.50),
            "expired": crowd.again + early,
            "lost": crowd.lost,
            "missing": options.runs - closed.records,
            "warnings": len(stage.scheduler.warnings()),
        }


def held_job(number: int, at_ms: int) -> Job:
    """A job whose run is held for long."""
    key, definition = one_off(SERIES, number, at_ms, target=b'{"handler":"held"}')
    return key, definition[:-1] + b',"timeout":"PT30M"}'


@contextmanager
def _crowd(stage: Stage, options: HeartbeatsOptions) -> Iterator[Crowd]:
    """The workers of a bench, until their consumers are closed."""
    replay, layout = KafkaReplay(stage.connection), stage.layout
    runs = [TopicPartition(layout.name("runs", lane=LANE), slot) for slot in range(layout.slots)]
    names = [f"w-{number:08x}" for number in range(options.workers)]
    workers = {
        name: SimulatedWorker(worker_id=name, offset_ms=number * HEARTBEAT_MS // len(names))
        for number, name in enumerate(names)
    }
    inboxes = replay.end_offsets(stage.partitions("worker-inbox"))
    with Tail(stage.connection, replay.end_offsets(runs)) as offers, Tail(stage.connection, inboxes) as answers:
        producer = RequestProducer(stage.connection)
        yield Crowd(stage=stage, workers=workers, runs=offers, inboxes=answers, producer=producer)


def _until_held(crowd: Crowd, runs: int) -> None:
    deadline_s = time.monotonic() + GRANT_TIMEOUT_S
    while (held := crowd.take()) < runs:
        crowd.beat(HEARTBEAT_MS)
        if time.monotonic() > deadline_s:
            raise BenchError(f"only {held:,} of {runs:,} runs were granted after {GRANT_TIMEOUT_S:.0f} s")


def _hold(crowd: Crowd, heartbeat_ms: int, seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        crowd.beat(heartbeat_ms)
        crowd.take()
        crowd.stage.scheduler.pause(POLL_S)
