"""Who may work on what, until when: claims, grants, heartbeats, ends, and expiry. One per slot.

    queued ──claim──> running ──end──> closed │ retry_wait │ pending (handed back)
       │                 │
       └─ nobody came    └─ silent for the lease, or too long: the attempt is lost

The first claim in log order wins. A token names each grant and only grows; what comes with another one is ignored.
Deadlines are in lease time (`core.lease`), so an owner that was away, or a broker outage, expires nobody.
What is held is memory only: a new owner gives every live run one whole lease more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from noontide.actors.bulk import Roll, Successes, grant_alike, granted, holds
from noontide.actors.closing import FAILED, Answered, Closing, Failure, Homes
from noontide.actors.effects import Effects, Hold, Scene
from noontide.actors.heard import Heard
from noontide.actors.lane import NEVER_MS, Held, Lane
from noontide.actors.paces import OVERLOADED, note_success, note_trouble
from noontide.actors.settings import SchedulerSettings
from noontide.core.errors import NoontideError
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.records import rows
from noontide.records.worker_events import ERROR_MAX_CHARS, RESULT_MAX_BYTES, End, Frame, Outcome

QUEUED, RUNNING = RunState.QUEUED, RunState.RUNNING  # a member of an enumeration takes 0.1 us to look up
TIMED_OUT = "timed out"
"""How the errors of attempts begin that took longer than they may."""


class Unheard(NoontideError):
    """Deciding the end or the loss of an attempt failed; all is decided again with that run set aside."""

    def __init__(self, run_id: str, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.run_id = run_id


@dataclass(slots=True, kw_only=True)
class KeeperWork:
    """What the keeper decides in one cycle: events, then runs whose deadline has passed.

    set_aside: runs that cannot be decided about, and why.
    """

    heard: list[Heard] = field(default_factory=list)
    overdue: list[str] = field(default_factory=list)
    set_aside: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.heard or self.overdue)


class LeaseKeeper:
    """The leases of one slot. `homes`: by partition."""

    def __init__(self, homes: Mapping[int, Homes], settings: SchedulerSettings) -> None:
        self.inbox: deque[Heard] = deque()
        self._homes = homes
        self._settings = settings
        self._held: dict[str, Held] = {}
        self._roll = Roll(self._held, homes)
        self._lanes: defaultdict[str, Lane] = defaultdict(lambda: Lane(settings.window_min))

    # --- gather

    def room(self, name: str, now_ms: int) -> int:
        """How many more runs a lane's window takes; one nobody has asked for begins with the smallest window."""
        lane = self._lanes.get(name)
        return self._settings.window_min if lane is None else lane.room(self._settings, now_ms)

    def loads(self) -> dict[str, tuple[int, int]]:
        """Runs offered and running, by lane. May be asked in any thread."""
        return {name: (lane.queued, lane.held - lane.queued) for name, lane in list(self._lanes.items())}

    def lease_of(self, run_id: str) -> tuple[int, int] | None:
        """(ms since its worker was heard of, ms until it is lost) of a run that a worker holds. In any thread."""
        held = self._held.get(run_id)
        if held is None or not held.running or held.until_ms == NEVER_MS:
            return None
        left_ms = held.until_ms - self._lanes[held.lane].clock.now_ms
        return max(0, held.hold.lease_ms - left_ms), max(0, left_ms)

    def collect(self, frames_max: int) -> KeeperWork:
        """Take what is to be decided now, `frames_max` frames at most."""
        count, left = min(frames_max, self._settings.frames_max), self._settings.inputs_max_bytes
        heard: list[Heard] = []
        while self.inbox and len(heard) < count and left > 0:
            heard.append(self.inbox.popleft())
            left -= heard[-1].size_bytes
        for each in heard:
            self._time(each)
        # Lease time is that of the last event taken: whatever was said before a deadline is in this work or earlier.
        limit = self._settings.expiries_max
        overdue = [run_id for lane in self._lanes.values() for run_id in lane.overdue(self._held, limit)]
        return KeeperWork(heard=heard, overdue=overdue)

    def wanted(self, work: KeeperWork) -> Iterable[bytes]:
        """Keys of the rows that deciding reads: of attempts that fail, and of jobs that go on when their run ends."""
        ends = ((end.run_id, end.outcome is Outcome.FAILED) for heard in work.heard for end in heard.frame.ends)
        for run_id, failed in (*ends, *((run_id, True) for run_id in work.overdue)):
            held = self._held.get(run_id)
            if held is None or not (failed or held.hold.follows):
                continue
            run = self._homes[held.hold.partition].live.by_id.get(run_id)
            if run is not None:
                yield Effects.row_key(held.hold.partition, run)
                yield rows.cursor_key(held.hold.partition, run.job_id.encode())

    def silent_lanes(self, now_ms: int, silence_ms: int) -> list[str]:
        """Lanes with leases in which nothing was heard for a while: a probe moves their time on."""
        found = []
        for name, lane in self._lanes.items():
            last_ms = lane.clock.last_appended_ms
            if lane.held and (last_ms is None or now_ms - last_ms >= silence_ms):
                found.append(name)
        return found

    def _time(self, heard: Heard) -> None:
        """Lease time moves on; with the first event it is known how much time runs of earlier owners have left."""
        lane = self._lanes[heard.lane]
        is_first = lane.clock.last_appended_ms is None and lane.held
        lane.clock.heard(heard.appended_ms)
        for run_id, held in self._held.items() if is_first else ():
            if held.lane == heard.lane and held.granted_ms:
                left_ms = held.ends_ms - max(0, heard.appended_ms - held.granted_ms)
                held.ends_ms = min(held.ends_ms, max(held.hold.lease_ms, left_ms))
                lane.watch(run_id, held)

    # --- decide

    def decide(self, work: KeeperWork, scene: Scene) -> None:
        """Events in log order, then deadlines: what was said in time is never late. Raises Unheard."""
        successes = Successes(self._roll, scene, result_of=_plain_result)
        for heard in work.heard:
            self._hear(heard, work, successes, scene)
        said = {run_id for heard in work.heard for run_id, _ in heard.frame.beats}
        for run_id in work.overdue:
            if run_id not in said:
                self._decide(run_id, work, scene, partial(self._expire, run_id, scene))

    def _hear(self, heard: Heard, work: KeeperWork, successes: Successes, scene: Scene) -> None:
        frame = heard.frame
        for run_id, attempt in grant_alike(heard, self._roll, scene):
            self._claim(run_id, attempt, heard, scene)
        for run_id, token in frame.beats:
            self._beat(run_id, token, heard, scene)
        place, ends = 0, frame.ends
        while place < len(ends):
            if not work.set_aside:
                place = successes.close(ends, place, heard)
            for end in ends[place : place + 1]:
                self._decide(end.run_id, work, scene, partial(self._end, end, heard, scene))
            place += 1

    def _decide(self, run_id: str, work: KeeperWork, scene: Scene, act: Callable[[], None]) -> None:
        """Let an attempt end. One run that cannot be handled holds up neither the others nor the slot: it is dead."""
        if run_id in work.set_aside:
            run = self._current(run_id, scene)
            if run is not None:
                closing = self._homes[self._held[run_id].hold.partition].closing
                reason = f"could not be handled: {work.set_aside[run_id]}"
                closing.close(run, scene, state=advance(run.state, RunEvent.GIVE_UP), reason=reason)
            return
        try:
            act()
        except Exception as error:
            raise Unheard(run_id, error) from error

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
            now = granted(run, heard)
            effects.open_run(self._held[run_id].hold.partition, now)
            self._grant(now, frame, effects)
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
        if run is None or not holds(run, token, heard):
            scene.effects.answer(frame.worker, frame.inbox).lost.append((run_id, token))
        elif run.cancel is not None:
            scene.effects.answer(frame.worker, frame.inbox).cancels.append((run_id, token, run.cancel))

    def _end(self, end: End, heard: Heard, scene: Scene) -> None:
        run = self._current(end.run_id, scene)
        if run is None or not holds(run, end.token, heard):
            scene.effects.counts["stale_ends"] += 1
            return
        partition = self._held[end.run_id].hold.partition
        closing = self._homes[partition].closing
        match end.outcome:
            case Outcome.SUCCEEDED:
                note_success(run, scene)
                answered = _answered(end)
                closing.close(run, scene, state=advance(run.state, RunEvent.SUCCEED), answered=answered)
            case Outcome.FAILED:
                if end.status in OVERLOADED or (end.error or "").startswith(TIMED_OUT):
                    why = f"HTTP {end.status}" if end.status in OVERLOADED else TIMED_OUT
                    note_trouble(run, scene, wait_ms=self._failure(end).wait_ms, why=why)
                closing.fail(run, self._failure(end), scene)
            case Outcome.CANCELLED:
                state = advance(run.state, RunEvent.CANCEL)
                closing.close(run, scene, state=state, reason=run.cancel or "cancelled by the worker")
            case Outcome.HANDED_BACK if run.cancel is not None:
                closing.close(run, scene, state=advance(run.state, RunEvent.CANCEL), reason=run.cancel)
            case Outcome.HANDED_BACK:
                reason = (end.error or "handed back")[:ERROR_MAX_CHARS]
                closing.requeue(run._replace(attempt=run.attempt - 1), scene, reason=reason)
            case Outcome.OPEN:
                scene.effects.open_run(partition, run._replace(worker=None, reason="waits for its completion"))
        if self._held[end.run_id].hold.follows:
            closing.schedule_after_completion(run, scene)

    def _failure(self, end: End) -> Failure:
        error = (end.error or "failed")[:ERROR_MAX_CHARS]
        reason = "permanent" if end.permanent else FAILED
        wait_ms = min(end.retry_after_ms or 0, self._settings.definition.delay_max_ms)
        return Failure(reason, error, permanent=end.permanent, wait_ms=wait_ms)

    def _expire(self, run_id: str, scene: Scene) -> None:
        run = self._current(run_id, scene)
        held = self._held.get(run_id)
        if run is None or held is None:
            return
        closing = self._homes[held.hold.partition].closing
        if run.state is RunState.QUEUED:
            scene.effects.counts["queue_expired"] += 1
            closing.requeue(run, scene, reason="nobody claimed it in time")
        elif run.state is RunState.RUNNING and held.running:  # else it was granted in this very cycle
            timed_out = held.ends_ms < held.until_ms
            if timed_out:
                note_trouble(run, scene, wait_ms=0, why=TIMED_OUT)
            scene.effects.counts["timed_out" if timed_out else "leases_lost"] += 1
            reason = "timeout" if timed_out else "lease_lost"
            error = f"no end within {held.hold.timeout_ms} ms" if timed_out else f"{run.worker} was silent too long"
            self._lose(run, Failure(reason, error), closing, scene, at_once=not timed_out)
            if held.hold.follows:
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
        for run_id in work.overdue:  # one that came up and did not hold, because of what was said meanwhile
            if (held := self._held.get(run_id)) is not None:
                self._lanes[held.lane].watch(run_id, held)
        for heard in work.heard:
            if heard.frame.claims:
                self._lanes[heard.lane].claimed(len(heard.frame.claims), heard.appended_ms, self._settings)

    def load(self, run: Run, hold: Hold) -> None:
        """A live run that an earlier owner published or granted."""
        self._update(run.run_id, run, hold)
        self._held[run.run_id].granted_ms = run.granted_ms

    def _extend(self, heard: Heard) -> None:
        lane = self._lanes[heard.lane]
        for run_id, token in heard.frame.beats:
            held = self._held.get(run_id)
            run = None if held is None else self._homes[held.hold.partition].live.by_id.get(run_id)
            if held is not None and run is not None and run.worker is not None and holds(run, token, heard):
                held.until_ms = lane.clock.now_ms + held.hold.lease_ms

    def _update(self, run_id: str, run: Run | None, hold: Hold | None) -> None:
        held = self._held.get(run_id)
        if run is None:
            if held is not None:
                self._drop(run_id, held)
            return
        state = run.state
        if state is QUEUED:
            if hold is not None and held is None and run.lane:
                until_ms = self._lanes[run.lane].clock.now_ms + hold.queue_ms
                self._hold(run_id, Held(hold, run.lane, running=False, until_ms=until_ms, ends_ms=NEVER_MS))
        elif state is not RUNNING:
            if held is not None:
                self._drop(run_id, held)
        elif run.lane and (held is not None or hold is not None):
            lane = self._lanes[run.lane]
            if held is None or not held.running:
                held = self._begin(run, held, hold, lane)
            self._bound(run, held, lane)

    def _begin(self, run: Run, held: Held | None, hold: Hold | None, lane: Lane) -> Held:
        """A run was granted: its lease and its time begin."""
        if held is None:
            assert hold is not None
            held = Held(hold, run.lane, running=True, until_ms=NEVER_MS, ends_ms=NEVER_MS)
            self._hold(run.run_id, held)
        else:
            held.hold = hold or held.hold
            lane.start(held)
        now_ms, known = lane.clock.now_ms, held.hold
        held.until_ms = now_ms + known.lease_ms
        held.ends_ms = now_ms + known.timeout_ms + self._settings.timeout_grace_ms
        lane.watch(run.run_id, held)
        return held

    def _bound(self, run: Run, held: Held, lane: Lane) -> None:
        """An open run has no lease, only its time; a cancelled one has little time left."""
        if run.worker is None:
            held.until_ms = NEVER_MS
        elif run.cancel is not None:
            held.ends_ms = min(held.ends_ms, lane.clock.now_ms + self._settings.cancel_grace_ms)
            lane.watch(run.run_id, held)

    def _hold(self, run_id: str, held: Held) -> None:
        self._held[run_id] = held
        self._lanes[held.lane].add(run_id, held)

    def _drop(self, run_id: str, held: Held) -> None:
        del self._held[run_id]
        self._lanes[held.lane].remove(held)


def _answered(end: End) -> Answered:
    """What a worker brought back; what is too large, or no text, is left out."""
    result = bytes(end.result)
    if len(result) > RESULT_MAX_BYTES or not _is_text(result):
        return Answered(truncated=True)
    return Answered(result, end.truncated)


def _plain_result(end: End) -> bytes | None:
    """As `_answered`, of an end whose result is whole; None for another."""
    result = bytes(end.result)
    is_whole = not end.truncated and len(result) <= RESULT_MAX_BYTES and (not result or _is_text(result))
    return result if is_whole else None


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode()) or not data
    except UnicodeDecodeError:
        return False
