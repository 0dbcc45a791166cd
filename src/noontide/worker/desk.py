"""The worker's decisions, without I/O: what is claimed, started, reported, stopped and handed back, and when.

    invited ──> claim ──(owner: denied)──> dropped
                  └─────(owner: granted)─> started ──> ended
    tick: heartbeats, timeouts, claims repeated, invitations let go

Times are ms of a monotonic clock. What has to be done is in `out`; frames are taken slot by slot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from noontide.core.policies import Guarantee
from noontide.ports.run_source import Delivered
from noontide.records.runs import Invitation, decode_invitation
from noontide.records.worker_events import NO_RESULT, End, Outcome
from noontide.records.worker_inbox import Answer
from noontide.worker.holding import Address, DeskSettings, Holding, Outbox, Outgoing, Phase, Stop, Way, handed_back
from noontide.worker.places import Places
from noontide.worker.tokens import Tokens
from noontide.worker.turns import Turns

TICK_MIN_MS: Final = 20
NEVER_MS: Final = float("inf")


class Desk:
    """What one worker process has in hand. Not thread-safe: for the event loop that talks to Kafka.

    worker: id of this incarnation; inbox: where answers are wanted. way_of: how an invitation can be carried out here.
    """

    def __init__(self, worker: str, inbox: int, *, settings: DeskSettings, way_of: Callable[[Invitation], Way]) -> None:
        self.out = Outbox()
        self.draining = False
        self.next_ms = NEVER_MS
        self._worker = worker
        self._inbox = inbox
        self._settings = settings
        self._way_of = way_of
        self._table: dict[tuple[str, int], Holding] = {}
        self._tokens = Tokens(settings.over_max)
        self._held = 0
        self._places = Places(settings.concurrency, ahead_ms=settings.ahead_ms, ahead_max=settings.ahead_max)
        self._turns = Turns(self._places)
        self._stuck: set[Holding] = set()
        self._lanes: set[str] = set()
        self._noted_ms: dict[str, float] = {}

    @property
    def busy(self) -> int:
        """Places taken: claimed, running, or lost to something that does not end."""
        return self._places.taken

    @property
    def stuck(self) -> int:
        """Places lost to attempts whose end does not count any more."""
        return len(self._stuck)

    @property
    def idle(self) -> bool:
        """Nothing is claimed, held or running, and nothing waits to be said."""
        return not self._table and not any(self.out.drafts.values())

    def wanted(self, now_ms: float) -> int:
        """How many more invitations are of use."""
        if self.draining or self._places.full_for_ms(now_ms) >= self._settings.hold_ms:
            return 0
        return max(0, self._places.room(now_ms) + self._settings.prefetch - self._held)

    # --- what comes in

    def invited(self, lane: str, delivered: list[Delivered], now_ms: float) -> None:
        """The group delivered records of a lane."""
        self._lanes.add(lane)
        for each in delivered:
            try:
                invitation = decode_invitation(each.value)
            except ValueError as error:
                self.out.note(logging.ERROR, f"{lane} {each.place}: not an invitation, passed over: {error}")
                self.out.accepted.append((lane, each.place))
                continue
            self._welcome(lane, each, invitation, now_ms)
        self._claim(now_ms)

    def _welcome(self, lane: str, each: Delivered, invitation: Invitation, now_ms: float) -> None:
        if self.draining:
            self.out.released.append((lane, each.place))
        elif (key := (invitation.run_id, invitation.attempt)) in self._table:
            self.out.accepted.append((lane, each.place))  # a second copy of what is in hand
        else:
            holding = Holding(lane, invitation, self._way_of(invitation), each.place, each.last, now_ms)
            self._table[key] = holding
            self._held += 1
            if holding.way is Way.NONE:
                self._enter(holding)
            else:
                self._turns.wait(holding)
                self._wake_at(now_ms + self._settings.hold_ms)

    def answered(self, answer: Answer, now_ms: float) -> None:
        """An owner answered."""
        for run_id, attempt, token, lease_ms in answer.grants:
            if not self._tokens.is_over(run_id, token):  # else what is claimed by now gets another token, or is denied
                self._granted(answer.slot, (run_id, attempt), token, lease_ms, now_ms)
        for run_id, attempt, _reason in answer.denied:
            holding = self._table.get((run_id, attempt))
            if holding is not None and holding.phase is Phase.CLAIMED:
                self.forget(holding)
        for run_id, token, reason in answer.cancels:
            self._cancelled(run_id, token, reason)
        for run_id, token in answer.lost:
            self._lost(run_id, token)
        self._claim(now_ms)

    def ended(self, holding: Holding, end: End, now_ms: float) -> None:
        """An attempt is over."""
        if holding in self._stuck:
            self._stuck.discard(holding)
            self._places.give_back(running=True)
            self.out.note(logging.WARNING, f"{holding.invitation.run_id} has returned; its place is free again")
        else:
            self._places.timed(now_ms - holding.started_ms, now_ms)
            self._report(holding, end, now_ms)
            self.forget(holding)
        self.resize(self._places.count, now_ms)

    def resize(self, places: int, now_ms: float) -> None:
        """From now on there are so many places; attempts that run keep theirs."""
        self._places.count = places
        for each in self._turns.to_begin():
            self._begin(each, now_ms)
        self._claim(now_ms)

    def progressed(self, holding: Holding, fraction: float | None, note: str) -> None:
        """A handler says how far it is."""
        if holding.phase is Phase.RUNNING:
            draft = self.out.draft(holding.lane, holding.invitation.slot)
            draft.progress[holding.invitation.run_id, holding.token] = fraction, note

    def logged(self, outgoing: Outgoing) -> None:
        """A frame is in the log. What was claimed in it is decided there now, so the group may forget it."""
        for holding in outgoing.claims:
            self._settle(holding)

    # --- what goes out

    def take(self, address: Address, now_ms: float) -> Outgoing | None:
        """The next frame for a slot; None when there is nothing to say. Claims count as sent now."""
        draft = self.out.drafts.pop(address, None)
        if draft is None or not draft:
            return None
        claims = [each for each in draft.claims if each.phase is Phase.CLAIMED]
        for holding in claims:
            holding.asked_ms = now_ms
            if not holding.claimed_ms:
                holding.claimed_ms = now_ms
                self._wake_at(now_ms + self._settings.claim_retry_ms)
        limits = self._settings
        ends, rest = draft.first_ends(events_max=limits.frame_max_events, bytes_max=limits.frame_max_bytes)
        if rest is not None:
            self.out.drafts[address] = rest
        return Outgoing(draft.frame(self._worker, self._inbox, claims=claims, ends=ends), claims)

    # --- time

    def tick(self, now_ms: float) -> None:
        """Let time pass; does nothing before `next_ms`."""
        if now_ms < self.next_ms:
            return
        self.next_ms = NEVER_MS
        for holding in tuple(self._table.values()):
            match holding.phase:
                case Phase.HELD:
                    self._tick_held(holding, now_ms)
                case Phase.CLAIMED:
                    self._tick_claimed(holding, now_ms)
                case Phase.RUNNING:
                    self._tick_running(holding, now_ms)
                case Phase.READY | Phase.WAITING:
                    self._tick_waiting(holding, now_ms)
        self._claim(now_ms)
        self.next_ms = max(self.next_ms, now_ms + TICK_MIN_MS)

    def _tick_held(self, holding: Holding, now_ms: float) -> None:
        if holding.place is None:
            return
        age_ms = now_ms - holding.arrived_ms
        if age_ms < self._settings.hold_max_ms and self._places.full_for_ms(now_ms) < self._settings.hold_ms:
            self._wake_at(now_ms + min(self._settings.hold_ms, self._settings.hold_max_ms - age_ms))
        elif holding.last:
            self._settle(holding)  # the group would give it up: nobody has it then until its queue deadline
        else:
            self._release(holding)
            self.forget(holding)

    def _tick_claimed(self, holding: Holding, now_ms: float) -> None:
        if not holding.claimed_ms:
            return
        late_ms = holding.claimed_ms + self._settings.start_within_ms(holding.invitation.lease_ms)
        if now_ms >= late_ms:
            self.out.note(logging.WARNING, f"{holding.invitation.run_id}: nobody answered the claim in time; dropped")
            self._release(holding)  # a claim that is not in the log yet may never be
            self.forget(holding)  # a grant that still comes is handed back
            return
        if holding.place is None and now_ms - holding.asked_ms >= self._settings.claim_retry_ms:
            holding.asked_ms = now_ms
            self.out.draft(holding.lane, holding.invitation.slot).claims.append(holding)
        self._wake_at(min(holding.asked_ms + self._settings.claim_retry_ms, late_ms))

    def _tick_running(self, holding: Holding, now_ms: float) -> None:
        if now_ms >= holding.until_ms:
            if holding.stop is None and holding.way is Way.TASK:
                self._stop(holding, Stop.TIMED_OUT)
                holding.until_ms = now_ms + self._settings.stop_grace_ms
            else:
                self._give_up(holding, holding.stop or Stop.TIMED_OUT, now_ms)
                return
        self._beat(holding, now_ms)

    def _tick_waiting(self, holding: Holding, now_ms: float) -> None:
        if now_ms >= holding.until_ms:
            missing = f"no handler {holding.invitation.target.get('handler')!r} in this worker"
            self._hand_back(holding, "no place was free" if holding.phase is Phase.READY else missing, now_ms)
        else:
            self._beat(holding, now_ms)

    def _beat(self, holding: Holding, now_ms: float) -> None:
        if now_ms >= holding.beat_ms:
            self.out.draft(holding.lane, holding.invitation.slot).beats.add(holding)
            holding.beat_ms = now_ms + holding.invitation.heartbeat_ms
        self._wake_at(min(holding.beat_ms, holding.until_ms))

    # --- the end

    def drain(self, now_ms: float) -> None:
        """Take nothing more: invitations go back, what is granted from now on is handed back, attempts go on."""
        self.draining = True
        for holding in tuple(self._table.values()):
            if holding.phase is Phase.HELD:
                self._release(holding)
                self.forget(holding)
            elif holding.phase in (Phase.READY, Phase.WAITING):
                self._hand_back(holding, "the worker stops", now_ms)

    def give_up(self, now_ms: float) -> None:
        """The drain time is over: tasks are cancelled, threads are left behind."""
        for holding in [each for each in self._table.values() if each.phase is Phase.RUNNING]:
            if holding.way is Way.THREAD:
                self._give_up(holding, Stop.SHUTDOWN, now_ms)
            else:
                self._stop(holding, Stop.SHUTDOWN)
                holding.until_ms = now_ms + self._settings.stop_grace_ms
                self._wake_at(holding.until_ms)

    # --- steps

    def _claim(self, now_ms: float) -> None:
        for holding in self._turns.to_claim(now_ms):
            self._enter(holding)
        if self._places.full_for_ms(now_ms) >= 0:
            self._wake_at(now_ms + self._settings.hold_ms)

    def _enter(self, holding: Holding) -> None:
        holding.phase = Phase.CLAIMED
        self._held -= 1
        self.out.draft(holding.lane, holding.invitation.slot).claims.append(holding)

    def _granted(self, slot: int, key: tuple[str, int], token: int, lease_ms: int, now_ms: float) -> None:
        holding = self._table.get(key)
        if holding is None or not holding.claimed_ms:
            for lane in self._lanes:  # the lane is not known any more; a wrong one is ignored
                self.out.draft(lane, slot).ends.append(handed_back(key[0], token, "granted too late"))
        elif holding.phase is not Phase.CLAIMED:
            if token != holding.token:
                self.out.draft(holding.lane, slot).ends.append(handed_back(key[0], token, "an older grant still runs"))
        else:
            self._start(holding, token, lease_ms, now_ms)

    def _start(self, holding: Holding, token: int, lease_ms: int, now_ms: float) -> None:
        holding.token = token
        if self.draining:
            self._hand_back(holding, "the worker stops", now_ms)
        elif now_ms - holding.claimed_ms >= self._settings.start_within_ms(lease_ms):
            self.out.note(logging.WARNING, f"{holding.invitation.run_id}: the grant came too late; handed back")
            self._hand_back(holding, "the grant came too late", now_ms)
        else:
            self._tokens.hold(holding)
            # The lease began at the grant, at some time after the claim was sent.
            holding.beat_ms = holding.claimed_ms + holding.invitation.heartbeat_ms
            if holding.way is Way.NONE:
                self._keep_for_others(holding, now_ms)
            elif self._places.is_open:
                self._begin(holding, now_ms)
            else:
                holding.phase = Phase.READY
                holding.until_ms = now_ms + self._settings.ready_ms
                self._turns.ready(holding)
            self._wake_at(min(holding.beat_ms, holding.until_ms))

    def _begin(self, holding: Holding, now_ms: float) -> None:
        self._places.begin(now_ms)
        holding.phase = Phase.RUNNING
        holding.started_ms = now_ms
        holding.until_ms = now_ms + holding.invitation.timeout_ms
        self.out.starts.append(holding)
        self._wake_at(min(holding.beat_ms, holding.until_ms))

    def _keep_for_others(self, holding: Holding, now_ms: float) -> None:
        holding.phase = Phase.WAITING
        # At most once: if this worker died meanwhile the run would be closed without ever having started.
        at_once = holding.invitation.guarantee is Guarantee.AT_MOST_ONCE
        holding.until_ms = now_ms if at_once else now_ms + self._settings.stranger_ms
        name = str(holding.invitation.target.get("handler", "http"))
        if now_ms - self._noted_ms.get(name, -NEVER_MS) >= self._settings.stranger_note_ms:
            self._noted_ms[name] = now_ms
            self.out.note(logging.WARNING, f"no handler {name!r} in this worker: its runs are handed back")

    def _cancelled(self, run_id: str, token: int, reason: str) -> None:
        holding = self._tokens.get(run_id, token)
        if holding is None or holding.stop is not None:
            return
        self.out.note(logging.INFO, f"{run_id}: cancelled ({reason})")
        if holding.phase is Phase.RUNNING:
            self._stop(holding, Stop.CANCELLED)
        else:
            end = End(run_id=run_id, token=token, outcome=Outcome.CANCELLED)
            self.out.draft(holding.lane, holding.invitation.slot).ends.append(end)
            self.forget(holding)

    def _lost(self, run_id: str, token: int) -> None:
        holding = self._tokens.get(run_id, token)
        if holding is None:
            return
        self.out.note(logging.WARNING, f"{run_id}: the lease is lost; whatever comes of it is ignored")
        if holding.phase is Phase.RUNNING:
            self._stop(holding, Stop.LOST)
            self._leave_behind(holding)
        else:
            self.forget(holding)

    def _stop(self, holding: Holding, why: Stop) -> None:
        holding.stop = why
        self.out.stops.append(holding)

    def _give_up(self, holding: Holding, why: Stop, now_ms: float) -> None:
        """Report an attempt as failed although it still runs."""
        still = "thread is still running" if holding.way is Way.THREAD else "task does not end"
        error = f"{why.value} after {(now_ms - holding.started_ms) / 1000:.1f} s; the {still}"
        self.out.note(logging.ERROR, f"{holding.invitation.run_id}: {error}; its place is lost until it returns")
        end = End(run_id=holding.invitation.run_id, token=holding.token, outcome=Outcome.FAILED, error=error)
        self._report(holding, end, now_ms)
        self._stop(holding, why)
        self._leave_behind(holding)

    def _leave_behind(self, holding: Holding) -> None:
        holding.phase = Phase.STUCK
        self._stuck.add(holding)
        self._table.pop(holding.key, None)
        self._tokens.let_go(holding)

    def _hand_back(self, holding: Holding, why: str, now_ms: float) -> None:
        self._report(holding, handed_back(holding.invitation.run_id, holding.token, why), now_ms)
        self.forget(holding)

    def _report(self, holding: Holding, end: End, now_ms: float) -> None:
        if holding.started_ms:
            end.duration_ms = int(now_ms - holding.started_ms)
        if not end.result:
            end.result = NO_RESULT  # any other empty Raw would be written, as nothing, and spoil the frame
        self.out.draft(holding.lane, holding.invitation.slot).ends.append(end)

    def forget(self, holding: Holding) -> None:
        """Nothing more is said about it here: it is over, or somebody else goes on with it."""
        self._settle(holding)
        self._table.pop(holding.key, None)
        self._tokens.let_go(holding)
        if holding.phase is Phase.HELD:
            self._held -= 1
        elif holding.way is not Way.NONE:
            self._places.give_back(running=holding.phase is Phase.RUNNING)
        holding.phase = Phase.STUCK  # nothing that still points to it may act on it

    def _settle(self, holding: Holding) -> None:
        if holding.place is not None:
            self.out.accepted.append((holding.lane, holding.place))
            holding.place = None

    def _release(self, holding: Holding) -> None:
        """Let the group give the record to somebody else, unless it would give it up."""
        if holding.place is not None and not holding.last:
            self.out.released.append((holding.lane, holding.place))
            holding.place = None

    def _wake_at(self, at_ms: float) -> None:
        if at_ms < self.next_ms:
            self.next_ms = at_ms
