"""Who may work on what, until when: claims, grants, heartbeats, ends, and expiry. One per slot.

    queued ──claim──> running ──end──> closed │ retry_wait │ pending (handed back)
       │                 │
       └─ nobody came    └─ silent for the lease, or too long: the attempt is lost

The first claim in log order wins. A token names each grant and only grows; what comes with another one is ignored.
Deadlines are in lease time (`core.lease`), so an owner that was away, or a broker outage, expires nobody.
What is held is memory only: a new owner gives every live run one whole lease more.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.actors.closing import Answered, Closing, Failure
from noontide.actors.effects import Effects, Hold, Scene
from noontide.actors.live_runs import LiveRuns
from noontide.actors.settings import SchedulerSettings
from noontide.core.errors import NoontideError
from noontide.core.lease import LeaseClock
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.records import rows
from noontide.records.worker_events import ERROR_MAX_CHARS, End, Frame, Outcome


class Heard(NamedTuple):
    """A frame of events as it was read."""

    lane: str
    offset: int
    appended_ms: int
    frame: Frame


class Unheard(NoontideError):
    """Deciding a frame failed; the rest is decided again without it. Its worker repeats what matters."""

    def __init__(self, heard: Heard, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.heard = heard


class Homes(NamedTuple):
    """Where the runs of a partition are kept and closed."""

    live: LiveRuns
    closing: Closing


@dataclass(slots=True)
class _Held:
    """A published or granted run. until_ms: lease time at which it is lost; ends_ms: at which its time is over."""

    hold: Hold
    lane: str
    running: bool
    until_ms: int
    ends_ms: int


@dataclass(slots=True)
class _Lane:
    """One lane of this slot. unanswered: offers that lapsed since the last claim; nobody seems to listen."""

    clock: LeaseClock = field(default_factory=LeaseClock)
    deadlines: list[tuple[int, str]] = field(default_factory=list)
    queued: int = 0
    held: int = 0
    window: int = 0
    unanswered: int = 0
    last_claim_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class KeeperWork:
    """What the keeper decides in one cycle: events, then runs whose deadline has passed."""

    heard: list[Heard] = field(default_factory=list)
    overdue: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.heard or self.overdue)


class LeaseKeeper:
    """The leases of one slot. `homes`: by partition."""

    def __init__(self, homes: Mapping[int, Homes], settings: SchedulerSettings) -> None:
        self.inbox: deque[Heard] = deque()
        self._homes = homes
        self._settings = settings
        self._held: dict[str, _Held] = {}
        self._lanes: defaultdict[str, _Lane] = defaultdict(lambda: _Lane(window=settings.window_min))

    # --- gather

    def rooms(self) -> dict[str, int]:
        """How many more runs each lane's window takes; lanes nobody has asked for begin with the smallest window."""
        return defaultdict(
            lambda: self._settings.window_min, {name: self._room(lane) for name, lane in self._lanes.items()}
        )

    def _room(self, lane: _Lane) -> int:
        deaf = lane.last_claim_ms is None or lane.clock.now_ms - lane.last_claim_ms > self._settings.window_lapse_ms
        window = self._settings.window_min - lane.unanswered if deaf else lane.window
        return max(0, window - lane.queued)

    def collect(self) -> KeeperWork:
        """Take what is to be decided now."""
        count = min(len(self.inbox), self._settings.frames_max)
        heard = [self.inbox.popleft() for _ in range(count)]
        for each in heard:
            self._lanes[each.lane].clock.heard(each.appended_ms)
        # Lease time is that of the last event taken: whatever was said before a deadline is in this work or earlier.
        overdue = [run_id for lane in self._lanes.values() for run_id in self._overdue(lane)]
        return KeeperWork(heard=heard, overdue=overdue)

    def _overdue(self, lane: _Lane) -> Iterable[str]:
        now_ms, limit = lane.clock.now_ms, self._settings.expiries_max
        while lane.deadlines and lane.deadlines[0][0] <= now_ms and limit:
            _, run_id = heapq.heappop(lane.deadlines)
            held = self._held.get(run_id)
            if held is None:
                continue
            at_ms = min(held.until_ms, held.ends_ms)
            if at_ms > now_ms:
                heapq.heappush(lane.deadlines, (at_ms, run_id))
            else:
                limit -= 1
                yield run_id

    def wanted(self, work: KeeperWork) -> Iterable[bytes]:
        """Keys of the rows that deciding reads: of runs that end or are lost, not of those that begin or go on."""
        ends = (end.run_id for heard in work.heard for end in heard.frame.ends)
        for run_id in (*ends, *work.overdue):
            held = self._held.get(run_id)
            if held is not None:
                partition, job_id = held.hold.partition, run_id.rpartition(":")[0].encode()
                yield rows.job_key(partition, job_id)
                yield rows.cursor_key(partition, job_id)
                yield rows.claimed_key(partition, run_id.encode())

    def silent_lanes(self, now_ms: int, silence_ms: int) -> list[str]:
        """Lanes with leases in which nothing was heard for a while: a probe moves their time on."""
        found = []
        for name, lane in self._lanes.items():
            last_ms = lane.clock.last_appended_ms
            if lane.held and (last_ms is None or now_ms - last_ms >= silence_ms):
                found.append(name)
        return found

    # --- decide

    def decide(self, work: KeeperWork, scene: Scene) -> None:
        """Events in log order, then deadlines: what was said in time is never late. Raises Unheard for a bad frame."""
        for heard in work.heard:
            try:
                self._hear(heard, scene)
            except Exception as error:
                raise Unheard(heard, error) from error
        said = {run_id for heard in work.heard for run_id, _ in heard.frame.beats}
        for run_id in work.overdue:
            if run_id not in said:
                self._expire(run_id, scene)

    def _hear(self, heard: Heard, scene: Scene) -> None:
        frame = heard.frame
        for run_id, attempt in frame.claims:
            self._claim(run_id, attempt, heard, scene)
        for run_id, token in frame.beats:
            self._beat(run_id, token, heard, scene)
        for end in frame.ends:
            self._end(end, heard, scene)

    def _current(self, run_id: str, scene: Scene) -> Run | None:
        held = self._held.get(run_id)
        run = None if held is None else self._homes[held.hold.partition].live.by_id.get(run_id)
        return None if run is None else scene.effects.current(run)

    def _claim(self, run_id: str, attempt: int, heard: Heard, scene: Scene) -> None:
        frame, effects = heard.frame, scene.effects
        run = self._current(run_id, scene)
        if run is None or run.lane != heard.lane:
            effects.answer(frame.worker, frame.inbox).denied.append((run_id, attempt, "closed"))
            effects.counts["denied"] += 1
        elif run.state is RunState.RUNNING and run.worker == frame.worker and run.attempt == attempt:
            self._grant(run, frame, effects)
        elif run.attempt + 1 == attempt and run.state is RunState.QUEUED:
            granted = run._replace(
                state=advance(run.state, RunEvent.GRANT),
                attempt=attempt,
                token=run.token + 1,
                worker=frame.worker,
                granted_ms=heard.appended_ms,
                reason=None,
            )
            effects.open_run(self._held[run_id].hold.partition, granted)
            self._grant(granted, frame, effects)
            effects.counts["granted"] += 1
        else:
            effects.answer(frame.worker, frame.inbox).denied.append((run_id, attempt, "taken"))
            effects.counts["denied"] += 1

    def _grant(self, run: Run, frame: Frame, effects: Effects) -> None:
        lease_ms = self._held[run.run_id].hold.lease_ms
        answer = effects.answer(frame.worker, frame.inbox)
        answer.grants.append((run.run_id, run.attempt, run.token, lease_ms))
        if run.cancel is not None:
            answer.cancels.append((run.run_id, run.token, run.cancel))

    def _beat(self, run_id: str, token: int, heard: Heard, scene: Scene) -> None:
        run, frame = self._current(run_id, scene), heard.frame
        if run is None or not _holds(run, token, heard):
            scene.effects.answer(frame.worker, frame.inbox).lost.append((run_id, token))
        elif run.cancel is not None:
            scene.effects.answer(frame.worker, frame.inbox).cancels.append((run_id, token, run.cancel))

    def _end(self, end: End, heard: Heard, scene: Scene) -> None:
        run = self._current(end.run_id, scene)
        if run is None or not _holds(run, end.token, heard):
            scene.effects.counts["stale_ends"] += 1
            return
        partition = self._held[end.run_id].hold.partition
        closing = self._homes[partition].closing
        match end.outcome:
            case Outcome.SUCCEEDED:
                answered = Answered(bytes(end.result), end.truncated)
                closing.close(run, scene, state=advance(run.state, RunEvent.SUCCEED), answered=answered)
            case Outcome.FAILED:
                closing.fail(run, _failure(end), scene)
            case Outcome.CANCELLED:
                state = advance(run.state, RunEvent.CANCEL)
                closing.close(run, scene, state=state, reason=run.cancel or "cancelled by the worker")
            case Outcome.HANDED_BACK if run.cancel is not None:
                closing.close(run, scene, state=advance(run.state, RunEvent.CANCEL), reason=run.cancel)
            case Outcome.HANDED_BACK:
                closing.requeue(run._replace(attempt=run.attempt - 1), scene, reason=end.error or "handed back")
            case Outcome.OPEN:
                scene.effects.open_run(partition, run._replace(worker=None, reason="waits for its completion"))
        closing.schedule_after_completion(run, scene)

    def _expire(self, run_id: str, scene: Scene) -> None:
        run = self._current(run_id, scene)
        held = self._held.get(run_id)
        if run is None or held is None:
            return
        closing = self._homes[held.hold.partition].closing
        if run.state is RunState.QUEUED:
            scene.effects.counts["queue_expired"] += 1
            closing.requeue(run, scene, reason="nobody claimed it in time")
        elif run.state is RunState.RUNNING:
            timed_out = held.ends_ms <= held.until_ms
            scene.effects.counts["timed_out" if timed_out else "leases_lost"] += 1
            reason = "timeout" if timed_out else "lease_lost"
            error = f"no end within {held.hold.timeout_ms} ms" if timed_out else f"{run.worker} was silent too long"
            self._lose(run, Failure(reason, error), closing, scene, at_once=not timed_out)
            closing.schedule_after_completion(run, scene)

    @staticmethod
    def _lose(run: Run, failure: Failure, closing: Closing, scene: Scene, *, at_once: bool) -> None:
        """An attempt is lost: the next one waits for nothing if only the worker was."""
        closing.fail(run, failure, scene)
        waiting = scene.effects.current(run)
        if at_once and waiting is not None and waiting.state is RunState.RETRY_WAIT:
            closing.requeue(waiting._replace(not_before_ms=0), scene, reason=failure.error)

    # --- apply

    def apply(self, changes: Iterable[tuple[int, str, Run | None]], effects: Effects, work: KeeperWork) -> None:
        """Take over what the commit made true, and what needed none: heartbeats."""
        for heard in work.heard:
            self._extend(heard)
        for _, run_id, run in changes:
            self._update(run_id, run, effects.holds.get(run_id))
        for run_id in work.overdue:
            self._note_overdue(run_id)
        for heard in work.heard:
            self._widen(heard)

    def load(self, run: Run, hold: Hold) -> None:
        """A live run that an earlier owner published or granted."""
        self._update(run.run_id, run, hold)

    def _extend(self, heard: Heard) -> None:
        lane = self._lanes[heard.lane]
        for run_id, token in heard.frame.beats:
            held = self._held.get(run_id)
            run = None if held is None else self._homes[held.hold.partition].live.by_id.get(run_id)
            if held is not None and run is not None and run.worker is not None and _holds(run, token, heard):
                held.until_ms = lane.clock.now_ms + held.hold.lease_ms

    def _note_overdue(self, run_id: str) -> None:
        """A deadline that came up and did not hold, because of what was said meanwhile, is set again."""
        held = self._held.get(run_id)
        if held is not None:
            heapq.heappush(self._lanes[held.lane].deadlines, (min(held.until_ms, held.ends_ms), run_id))

    def _update(self, run_id: str, run: Run | None, hold: Hold | None) -> None:
        held = self._held.get(run_id)
        if held is not None and (run is None or run.state not in (RunState.QUEUED, RunState.RUNNING)):
            self._drop(run_id, held)
        if run is None or not run.lane or (held is None and hold is None):
            return
        lane = self._lanes[run.lane]
        if run.state is RunState.QUEUED and hold is not None:
            until_ms = lane.clock.now_ms + hold.queue_ms
            self._hold(run_id, _Held(hold, run.lane, running=False, until_ms=until_ms, ends_ms=_NEVER_MS))
        elif run.state is RunState.RUNNING:
            if held is None or not held.running:
                held = self._begin(run, held, hold, lane)
            self._bound(run, held, lane)

    def _begin(self, run: Run, offered: _Held | None, hold: Hold | None, lane: _Lane) -> _Held:
        """A run was granted: its lease and its time begin."""
        known = hold or (None if offered is None else offered.hold)
        assert known is not None
        if offered is not None:
            self._drop(run.run_id, offered)
        now_ms = lane.clock.now_ms
        ends_ms = now_ms + known.timeout_ms + self._settings.timeout_grace_ms
        held = _Held(known, run.lane, running=True, until_ms=now_ms + known.lease_ms, ends_ms=ends_ms)
        self._hold(run.run_id, held)
        return held

    def _bound(self, run: Run, held: _Held, lane: _Lane) -> None:
        """An open run has no lease, only its time; a cancelled one has little time left."""
        if run.worker is None:
            held.until_ms = _NEVER_MS
        elif run.cancel is not None:
            ends_ms = lane.clock.now_ms + self._settings.cancel_grace_ms
            if ends_ms < held.ends_ms:
                held.ends_ms = ends_ms
                heapq.heappush(lane.deadlines, (ends_ms, run.run_id))

    def _hold(self, run_id: str, held: _Held) -> None:
        lane = self._lanes[held.lane]
        self._held[run_id] = held
        lane.held += 1
        lane.queued += not held.running
        heapq.heappush(lane.deadlines, (min(held.until_ms, held.ends_ms), run_id))

    def _drop(self, run_id: str, held: _Held) -> None:
        del self._held[run_id]
        lane = self._lanes[held.lane]
        lane.held -= 1
        lane.queued -= not held.running
        lane.unanswered += not held.running

    def _widen(self, heard: Heard) -> None:
        """A lane that claims fast gets a wide window, so that its workers never wait for a cycle of ours."""
        claims = len(heard.frame.claims)
        if claims:
            lane = self._lanes[heard.lane]
            lane.last_claim_ms, lane.unanswered = lane.clock.now_ms, 0
            if lane.queued < lane.window // 2:
                lane.window = min(self._settings.window_max, lane.window + 2 * claims)


_NEVER_MS = 1 << 62


def _holds(run: Run, token: int, heard: Heard) -> bool:
    """Whether a worker holds a run with this token. An open run is completed by whoever of its lane has the token."""
    is_its = run.worker in (heard.frame.worker, None) and run.lane == heard.lane
    return is_its and run.state is RunState.RUNNING and run.token == token


def _failure(end: End) -> Failure:
    error = (end.error or "failed")[:ERROR_MAX_CHARS]
    reason = "permanent" if end.permanent else "max_attempts"
    return Failure(reason, error, permanent=end.permanent, wait_ms=end.retry_after_ms or 0)
