"""Bugs planted on purpose, to see that the simulation finds them. Each patches the product while it is planted.

with planted("reuse-a-token"):
    simulate(seed)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec import structs

from noontide.actors import admission, bulk, firing, joins, lease_keeper, timelines
from noontide.actors.closing import Closing
from noontide.actors.effects import Effects
from noontide.actors.firing import Firing
from noontide.actors.inputs import Inputs
from noontide.actors.lease_keeper import LeaseKeeper
from noontide.actors.limiters import Limiters
from noontide.actors.permits import Permits
from noontide.actors.restore import Restorer
from noontide.actors.runner import Phase, SlotRunner
from noontide.actors.slot import Slot
from noontide.actors.timelines import Plan
from noontide.actors.timers import DueWindow
from noontide.actors.volley import Volley
from noontide.adapters.memory.log import MemoryLog
from noontide.core.dependencies import SUCCEEDED
from noontide.core.lease import LeaseClock
from noontide.core.run import RunState
from noontide.records.rows import due_key, due_key_parts
from noontide.worker.desk import Desk
from noontide.worker.holding import Phase as HoldingPhase

Change = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the wrong function out of the right one."""


class Bug(NamedTuple):
    """What is wrong, and where it is planted: (owner, attribute, change)."""

    about: str
    places: tuple[tuple[Any, str, Change], ...]


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a bug for as long as the context lasts; None plants nothing. Raises KeyError for an unknown one."""
    with ExitStack() as stack:
        for owner, attribute, change in () if name is None else BUGS[name].places:
            stack.enter_context(patch.object(owner, attribute, change(getattr(owner, attribute))))
        yield


# --- the log and the cycle


def _nobody_is_fenced(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, session: None


def _rows_first(right: Callable[..., Any]) -> Callable[..., Any]:
    async def commit(self: Any, plan: Any) -> Any:
        if plan.effects.outputs:
            self._ports.index.write(plan.effects.index)
        return await right(self, plan)

    return commit


def _answers_first(right: Callable[..., Any]) -> Callable[..., Any]:
    async def commit(self: Any, plan: Any) -> Any:
        self._ports.answer(list(plan.effects.answers.values()))
        return await right(self, plan)

    return commit


def _no_position(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, partition, name, position: None


def _one_too_far(right: Callable[..., Any]) -> Callable[..., Any]:
    def position(self: Any, at: Any, positions: Any) -> int:
        found = int(right(self, at, positions))
        return found + 1 if found and ".requests." in at.topic else found

    return position


def _no_tombstone(right: Callable[..., Any]) -> Callable[..., Any]:
    def close(self: Any, *args: Any, **more: Any) -> None:
        right(self, *args, **more)
        leases = self.outputs[self.names.leases]
        while leases and leases[-1].value is None:
            leases.pop()

    return close


# --- restoring


def _old_due_rows_stay(right: Callable[..., Any]) -> Callable[..., Any]:
    def cursor_rows(self: Any, records: Any) -> Any:
        return [row for row in right(self, records) if row[1] is not None or row[0][1:2] != b"d"]

    return cursor_rows


def _any_copy_will_do(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, ends, identity, now_ms: None


def _deaf_at_first(right: Callable[..., Any]) -> Callable[..., Any]:
    def delivered(self: Any, partition: int, event: Any) -> None:
        if self.phase is not Phase.TAKING_OVER:
            right(self, partition, event)

    return delivered


# --- what is due


def _drains_too_much(right: Callable[..., Any]) -> Callable[..., Any]:
    def drained(self: Any, taken: Any) -> tuple[bytes, bytes]:
        start, _ = right(self, taken)
        until_ms = due_key_parts(taken[-1][0])[0] + 5_000
        return start, due_key(taken[-1][0][0], until_ms, b"")

    return drained


def _due_rows_stay(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, key: None


def _from_now(right: Callable[..., Any]) -> Callable[..., Any]:
    """The next occurrence is the first after now, not after the last one."""

    def fire(self: Any, due: Any, row_bytes: Any, scene: Any, **more: Any) -> Any:
        class Hasty(Plan):
            def following(self, after_ms: int) -> Any:
                return Plan.following(self, max(after_ms, scene.world.now_ms))

        def plan_of(*args: Any) -> Plan:
            return Hasty(*right_plan(*args))

        right_plan = timelines.plan_of
        with patch.object(firing, "plan_of", plan_of):
            return right(self, due, row_bytes, scene, **more)

    return fire


def _goes_back(right: Callable[..., Any]) -> Callable[..., Any]:
    def cursor_after(job: Any, previous: Any, old: Any, **more: Any) -> Any:
        return right(job, previous, None if old is None else old._replace(last_due_ms=None), **more)

    return cursor_after


def _nobody_is_let_go(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, closed, scene: None


# --- leases and limits


def _beats_do_not_count(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, heard: None


def _deadlines_first(right: Callable[..., Any]) -> Callable[..., Any]:
    def decide(self: Any, work: Any, scene: Any) -> None:
        for run_id in work.overdue:
            self._decide(run_id, work, scene, partial(self._expire, run_id, scene))
        right(self, replace(work, overdue=[]), scene)

    return decide


def _silence_is_silence(_right: Callable[..., Any]) -> Callable[..., Any]:
    """Lease time is the broker's: what an owner was away for counts, too."""

    def heard(self: LeaseClock, appended_ms: int) -> None:
        last = self._last_appended_ms
        self.now_ms += max(0, appended_ms - (appended_ms if last is None else last))
        self._last_appended_ms = appended_ms if last is None else max(last, appended_ms)

    return heard


def _as_if_it_were_over(right: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any, run: Any, hold: Any) -> None:
        right(self, run, hold)
        held = self._held[run.run_id]
        if held.running:
            held.until_ms = 0
            self._lanes[held.lane].watch(run.run_id, held)

    return load


def _old_token(right: Callable[..., Any]) -> Callable[..., Any]:
    def granted(run: Any, heard: Any) -> Any:
        return right(run._replace(token=run.token - 1) if run.token else run, heard)

    return granted


def _any_token(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda run, token, heard: run.state is RunState.RUNNING and run.lane == heard.lane


def _lost_when_granted(right: Callable[..., Any]) -> Callable[..., Any]:
    def expire(self: Any, run_id: str, scene: Any) -> None:
        held = self._held.get(run_id)
        if held is not None:
            held.running = True
        right(self, run_id, scene)

    return expire


def _starts_again(right: Callable[..., Any]) -> Callable[..., Any]:
    def granted(self: Any, slot: int, key: Any, token: int, lease_ms: int, now_ms: float) -> None:
        holding = self._table.get(key)
        if holding is not None and holding.phase is HoldingPhase.RUNNING:
            self.out.starts.append(holding)
        else:
            right(self, slot, key, token, lease_ms, now_ms)

    return granted


def _permits_stay(right: Callable[..., Any]) -> Callable[..., Any]:
    def tell(self: Any, key: Any, ask: Any, scene: Any) -> None:
        if ask.count:
            right(self, key, structs.replace(ask, back=0), scene)

    return tell


def _given_is_not_entered(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, limiter, stands, changed, scene: right(self, limiter, stands, dict(changed), scene)


def _nobody_holds(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, partition, run: None


def _permits_are_kept(right: Callable[..., Any]) -> Callable[..., Any]:
    def retry(self: Any, run: Any, scene: Any, **more: Any) -> None:
        write = Effects.open_run

        def keep(effects: Effects, partition: int, waiting: Any) -> None:
            write(effects, partition, waiting._replace(permits=run.permits))

        with patch.object(Effects, "open_run", keep):
            right(self, run, scene, **more)

    return retry


# --- short ways, and jobs that wait for others


def _a_row_less(right: Callable[..., Any]) -> Callable[..., Any]:
    def move(self: Any, plan: Any, claims: Any) -> None:
        right(self, plan, claims)
        claims.rows.pop(plan.due[0] + plan.members[0][0])

    return move


def _every_end_is_well(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda needed, got, rule: right(needed, dict.fromkeys(got, SUCCEEDED), rule)


def _in_both(name: str, change: Change) -> tuple[tuple[Any, str, Change], ...]:
    """A rule of leases where it is used: one run at a time, and in bulk."""
    return (lease_keeper, name, change), (bulk, name, change)


BUGS: Final[Mapping[str, Bug]] = {
    "skip-the-fence": Bug(
        "a session that was replaced may still write", ((MemoryLog, "_require_current", _nobody_is_fenced),)
    ),
    "apply-before-commit": Bug("rows are written before the transaction", ((Slot, "_commit", _rows_first),)),
    "answer-before-commit": Bug("workers hear of grants that may not hold", ((Slot, "_commit", _answers_first),)),
    "forget-the-position": Bug("`__pos` is not written", ((Effects, "put_position", _no_position),)),
    "skip-a-request": Bug("inputs are read from one too far", ((Inputs, "position", _one_too_far),)),
    "forget-a-tombstone": Bug(
        "a closed run stays in `leases`",
        ((Effects, "close_run", _no_tombstone), (Effects, "close_runs", _no_tombstone)),
    ),
    "claim-twice-at-replay": Bug(
        "a replay leaves the due rows of old cursors", ((Restorer, "_cursor_rows", _old_due_rows_stay),)
    ),
    "trust-any-copy": Bug("a local copy is used however old it is", ((Restorer, "_unusable", _any_copy_will_do),)),
    "deaf-at-take-over": Bug(
        "acknowledgements during a take-over are lost", ((SlotRunner, "_delivered", _deaf_at_first),)
    ),
    "lose-the-window": Bug("a drain deletes what is due next, too", ((DueWindow, "drained", _drains_too_much),)),
    "keep-a-void-due-row": Bug("what was unscheduled stays in memory", ((DueWindow, "remove", _due_rows_stay),)),
    "next-due-from-now": Bug("the next occurrence is counted from now", ((Firing, "fire", _from_now),)),
    "claim-again-after-update": Bug(
        "another schedule begins before what was claimed", ((admission, "cursor_after", _goes_back),)
    ),
    "wait-for-ever": Bug("runs that wait for another are not let go", ((Closing, "_release", _nobody_is_let_go),)),
    "drop-heartbeats": Bug("heartbeats extend nothing", ((LeaseKeeper, "_extend", _beats_do_not_count),)),
    "expire-before-inputs": Bug(
        "leases expire before what was said is heard", ((LeaseKeeper, "decide", _deadlines_first),)
    ),
    "count-time-away": Bug(
        "a lease ends by a silence in which its owner was away", ((LeaseClock, "heard", _silence_is_silence),)
    ),
    "no-time-after-take-over": Bug(
        "a new owner gives a lease no time to be heard of", ((LeaseKeeper, "load", _as_if_it_were_over),)
    ),
    "reuse-a-token": Bug("the next attempt gets the token of the last", _in_both("granted", _old_token)),
    "accept-a-stale-end": Bug("an end counts whatever its token", _in_both("holds", _any_token)),
    "lose-what-is-granted": Bug(
        "a claim read late is granted and lost at once", ((LeaseKeeper, "_expire", _lost_when_granted),)
    ),
    "start-twice": Bug("a worker starts again when the grant is repeated", ((Desk, "_granted", _starts_again),)),
    "leak-a-permit": Bug("permits are not given back", ((Permits, "_tell", _permits_stay),)),
    "give-a-permit-twice": Bug("a permit that is given counts as free", ((Limiters, "_give", _given_is_not_entered),)),
    "forget-who-holds": Bug("a new owner takes permits that are in use for free", ((Permits, "load", _nobody_holds),)),
    "keep-a-permit": Bug(
        "a run that is lost or failed waits with its permit", ((Closing, "_retry", _permits_are_kept),)
    ),
    "forget-a-row-of-a-volley": Bug(
        "of jobs that fire together one has no next time", ((Volley, "_move", _a_row_less),)
    ),
    "follow-a-failure": Bug("a job runs although its upstream failed", ((joins, "judge", _every_end_is_well),)),
}
