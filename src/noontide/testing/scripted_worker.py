"""Workers on a stage: they take runs, claim them, report and end them by virtual time, and fail when told to.

    crew = Crew(stage)
    worker = crew.hire("w-1", does=lambda invitation: Work(5_000))
    await stage.advance(60_000)
    assert [start.run_id for start in worker.starts] == [...]

They keep the contract of workers: start once per (run, token), and only while the lease they were granted still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.core.partitioner import partition_for
from noontide.ports.record_log import TopicPartition
from noontide.records.runs import Invitation, decode_invitation
from noontide.records.worker_events import End, Frame, Outcome
from noontide.records.worker_inbox import INBOX_PARTITIONS, Answer, decode_answer
from noontide.testing.memory_stage import MemoryStage

CLAIM_RETRY_MS, MARGIN_MS = 2_000, 3_000


class Work(NamedTuple):
    """What comes of an attempt. duration_ms: None = it never ends by itself. The rest is what its end says."""

    duration_ms: int | None = 1_000
    outcome: Outcome = Outcome.SUCCEEDED
    error: str | None = None
    permanent: bool = False
    retry_after_ms: int | None = None


class Start(NamedTuple):
    """A run began to work."""

    run_id: str
    token: int
    attempt: int
    at_ms: int


@dataclass(slots=True)
class _Holding:
    """A run that a worker has claimed; token 0 = not granted yet."""

    invitation: Invitation
    asked_ms: int
    token: int = 0
    beat_ms: int = 0
    work: Work = field(default_factory=Work)
    ends_ms: int | None = None


class Crew:
    """The group of a lane: each invitation goes to one of its workers."""

    def __init__(self, stage: MemoryStage, lane: str = "default") -> None:
        self.stage = stage
        self.lane = lane
        self.workers: list[ScriptedWorker] = []
        self._positions = dict.fromkeys(range(stage.layout.slots), 0)

    def hire(
        self, worker_id: str = "w-1", *, does: Callable[[Invitation], Work] = lambda _run: Work(), capacity: int = 100
    ) -> ScriptedWorker:
        """A worker begins to take runs."""
        worker = ScriptedWorker(self, worker_id, does=does, capacity=capacity)
        self.workers.append(worker)
        self.stage.performers.append(worker)
        return worker

    def take(self, limit: int) -> list[Invitation]:
        """The next invitations, at most `limit`."""
        found: list[Invitation] = []
        topic = self.stage.layout.name("runs", lane=self.lane)
        for slot, position in self._positions.items():
            at = TopicPartition(topic, slot)
            records, self._positions[slot] = self.stage.log.read(at, position, max_records=limit - len(found))
            found += [decode_invitation(record.value or b"") for record in records]
        return found


class ScriptedWorker:
    """One worker process.

    starts: the attempts it began. capacity: runs at a time. is_silent: it says and hears nothing (killed, cut off).
    obeys_cancels: it stops when told to. reports: whether it heartbeats.
    """

    def __init__(self, crew: Crew, worker_id: str, *, does: Callable[[Invitation], Work], capacity: int) -> None:
        self.id = worker_id
        self.capacity = capacity
        self.is_silent = False
        self.obeys_cancels = True
        self.reports = True
        self.starts: list[Start] = []
        self.cancels: list[tuple[str, str]] = []
        self.lost: list[str] = []
        self._crew = crew
        self._stage = crew.stage
        self._does = does
        self._holdings: dict[str, _Holding] = {}
        self._inbox = partition_for(worker_id.encode(), INBOX_PARTITIONS)
        self._heard = self._inbox_end()

    @property
    def held(self) -> dict[str, int]:
        """Tokens of the runs it works on."""
        return {run_id: holding.token for run_id, holding in self._holdings.items() if holding.token}

    def kill(self) -> None:
        """It is gone, with all it held."""
        self.is_silent = True
        self._holdings.clear()

    def step(self) -> bool:
        """See `Performer.step`."""
        if self.is_silent:
            return False
        before = self._heard
        for answer in self._read_inbox():
            self._take_in(answer)
        frames = self._frames()
        for slot, frame in frames.items():
            self._stage.say(frame, lane=self._crew.lane, slot=slot)
        return bool(frames) or self._heard != before

    def next_wake_ms(self) -> int | None:
        """See `Performer.next_wake_ms`."""
        if self.is_silent:
            return None
        return min((at_ms for each in self._holdings.values() for at_ms in self._times(each)), default=None)

    def end(self, run_id: str, outcome: Outcome = Outcome.SUCCEEDED, *, error: str | None = None) -> None:
        """End a run at once."""
        holding = self._holdings[run_id]
        holding.work, holding.ends_ms = Work(0, outcome, error), self._stage.clock.now_ms()

    # --- hearing

    def _inbox_end(self) -> int:
        return self._stage.log.end_offset(self._inbox_at())

    def _inbox_at(self) -> TopicPartition:
        return TopicPartition(self._stage.layout.name("worker-inbox"), self._inbox)

    def _read_inbox(self) -> list[Answer]:
        records, self._heard = self._stage.log.read(self._inbox_at(), self._heard, max_records=1 << 20)
        answers = [decode_answer(record.value or b"") for record in records]
        return [answer for answer in answers if answer.worker == self.id]

    def _take_in(self, answer: Answer) -> None:
        for run_id, attempt, token, lease_ms in answer.grants:
            self._start(run_id, attempt, token, lease_ms)
        for run_id, attempt, _ in answer.denied:
            holding = self._holdings.get(run_id)
            if holding is not None and holding.invitation.attempt == attempt and not holding.token:
                del self._holdings[run_id]
        for run_id, token, reason in answer.cancels:
            if self.held.get(run_id) == token:
                self.cancels.append((run_id, reason))
                if self.obeys_cancels:
                    self.end(run_id, Outcome.CANCELLED)
        for run_id, token in answer.lost:
            if self.held.get(run_id) == token:
                self.lost.append(run_id)
                del self._holdings[run_id]

    def _start(self, run_id: str, attempt: int, token: int, lease_ms: int) -> None:
        holding, now_ms = self._holdings.get(run_id), self._stage.clock.now_ms()
        if holding is None or holding.token or holding.invitation.attempt != attempt:
            return
        if now_ms - holding.asked_ms >= lease_ms - MARGIN_MS:
            del self._holdings[run_id]
            return
        holding.token, holding.beat_ms, holding.work = token, now_ms, self._does(holding.invitation)
        holding.ends_ms = None if holding.work.duration_ms is None else now_ms + holding.work.duration_ms
        self.starts.append(Start(run_id, token, attempt, now_ms))

    # --- saying

    def _frames(self) -> dict[int, Frame]:
        frames: dict[int, Frame] = {}
        now_ms = self._stage.clock.now_ms()
        free = self.capacity - len(self._holdings)
        for invitation in self._crew.take(free) if free > 0 else []:
            self._holdings[invitation.run_id] = _Holding(invitation, now_ms)
            self._frame(invitation.slot, frames).claims.append((invitation.run_id, invitation.attempt))
        for run_id, holding in list(self._holdings.items()):
            self._report(run_id, holding, now_ms, frames)
        return frames

    def _report(self, run_id: str, holding: _Holding, now_ms: int, frames: dict[int, Frame]) -> None:
        slot = holding.invitation.slot
        if not holding.token:
            if now_ms - holding.asked_ms >= CLAIM_RETRY_MS:
                holding.asked_ms = now_ms
                self._frame(slot, frames).claims.append((run_id, holding.invitation.attempt))
        elif holding.ends_ms is not None and now_ms >= holding.ends_ms:
            self._frame(slot, frames).ends.append(_end(run_id, holding))
            del self._holdings[run_id]
        elif self.reports and now_ms - holding.beat_ms >= holding.invitation.heartbeat_ms:
            holding.beat_ms = now_ms
            self._frame(slot, frames).beats.append((run_id, holding.token))

    def _frame(self, slot: int, frames: dict[int, Frame]) -> Frame:
        return frames.setdefault(slot, Frame(worker=self.id, inbox=self._inbox))

    def _times(self, holding: _Holding) -> list[int]:
        if not holding.token:
            return [holding.asked_ms + CLAIM_RETRY_MS]
        ends = [] if holding.ends_ms is None else [holding.ends_ms]
        return [*ends, holding.beat_ms + holding.invitation.heartbeat_ms] if self.reports else ends


def _end(run_id: str, holding: _Holding) -> End:
    work = holding.work
    return End(
        run_id=run_id,
        token=holding.token,
        outcome=work.outcome,
        error=work.error,
        permanent=work.permanent,
        retry_after_ms=work.retry_after_ms,
    )
