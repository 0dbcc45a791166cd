"""The permits of one slot: which its runs wait for, which it has, and which it gives back.

    run waits ──> ask ──> limiter ──> grant ──> the run takes it ──> published, running
                                        │                              │ closed, retry, lost
                                        └── nobody waits any more ─────┴──> back

Two numbers per limiter and tenant are durable: permits held (granted and not given back) and asked for. How many are in
use follows from the live runs. What is held and not used is given back, so no crash leaks one.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.actors.effects import Effects, Scene
from noontide.actors.mailbox import Message
from noontide.actors.ready_queue import place_ms
from noontide.core.run import Run
from noontide.records import state
from noontide.records.signals import Ask, Grant

Key = tuple[str, str]
"""(limiter, tenant)."""
Changes = Iterable[tuple[int, str, Run | None]]


@dataclass(slots=True)
class _Account:
    """One limiter and tenant. held, asked: durable; used: by live runs; waiting: runs in `queue` that still wait."""

    held: int = 0
    asked: int = 0
    used: int = 0
    waiting: int = 0
    queue: list[tuple[int, int, str, int]] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to remember."""
        return not (self.held or self.asked or self.used or self.waiting)


class _Stand(NamedTuple):
    """What a live run has and waits for."""

    has: tuple[Key, ...]
    awaits: Key | None


_NOTHING = _Stand((), None)


class _Shift(NamedTuple):
    """How a cycle's runs change the numbers of an account."""

    used: Counter[Key]
    waiting: Counter[Key]


@dataclass(slots=True, kw_only=True)
class PermitWork:
    """What is decided in one cycle. grants: permits that arrived; permitted: runs that take one now, and of whom."""

    grants: Counter[Key] = field(default_factory=Counter)
    permitted: dict[str, str] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    touched: set[Key] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.grants or self.permitted or self.touched)


class Permits:
    """The permits of one slot. ageing_ms: see `actors.ready_queue`."""

    def __init__(self, ageing_ms: int) -> None:
        self._ageing_ms = ageing_ms
        self._accounts: defaultdict[Key, _Account] = defaultdict(_Account)
        self._stands: dict[str, _Stand] = {}
        self._unsettled: set[Key] = set()
        self.waiting = 0
        """Runs that wait for a permit."""

    # --- gather

    def collect(self, messages: Iterable[Message], limit: int) -> PermitWork:
        """Take grants, and let the runs whose turn it is take what is in hand, at most `limit`."""
        work = PermitWork(touched=set(self._unsettled))
        for message in messages:
            if isinstance(signal := message.signal, Grant):
                work.grants[signal.limiter, signal.tenant] += signal.count
        work.touched.update(work.grants)
        for key in work.touched:
            account = self._accounts[key]
            free = account.held + work.grants[key] - account.used
            while free > 0 and account.queue and len(work.permitted) < limit:
                _, _, run_id, partition = heapq.heappop(account.queue)
                if self._stands.get(run_id, _NOTHING).awaits == key and run_id not in work.permitted:
                    work.permitted[run_id], work.homes[run_id] = key[0], partition
                    free -= 1
        return work

    # --- decide

    def decide(self, work: PermitWork, scene: Scene) -> None:
        """Ask for what is lacking and give back what is not needed, after everything else of the cycle is decided."""
        effects = scene.effects
        if not work and not self._stands and not effects.limited:
            return
        used, waiting = self._shift(effects.run_changes)
        for key in sorted(work.touched | used.keys() | waiting.keys()):
            account, granted = self._accounts[key], work.grants[key]
            held, asked = account.held + granted, account.asked - granted
            # What is free goes back even if others wait here: whose turn it is, and when, the limiter says.
            # Below 0 are runs that were with workers before there was this limit: they count from now on.
            back = held - account.used - used[key]
            lacking = account.waiting + waiting[key] - asked
            if back or lacking:
                self._tell(key, Ask(key[0], key[1], lacking, back), scene)
            if back or lacking or granted:
                value = state.encode_counts(held=held - back, asked=asked + lacking)
                effects.put_note(state.permits_record_key(*key), value)
                effects.permits[key] = (held - back, asked + lacking)

    def _tell(self, key: Key, ask: Ask, scene: Scene) -> None:
        layout = scene.world.layout
        scene.effects.signal(layout.slot_of(layout.partition_of(key[0])), ask)

    def _shift(self, changes: Changes) -> _Shift:
        """What becomes of the numbers when the cycle's runs are as it decided."""
        latest = {run_id: run for _, run_id, run in changes}
        shift = _Shift(Counter(), Counter())
        for run_id, run in latest.items():
            before, after = self._stands.get(run_id, _NOTHING), _stand(run)
            if before is after or before == after:
                continue
            shift.used.subtract(before.has)
            shift.used.update(after.has)
            if before.awaits is not None:
                shift.waiting[before.awaits] -= 1
            if after.awaits is not None:
                shift.waiting[after.awaits] += 1
        return shift

    # --- apply

    def apply(self, effects: Effects, work: PermitWork) -> None:
        """Take over what the commit made true."""
        if not work and not self._stands and not effects.limited:
            return
        for key, (held, asked) in effects.permits.items():
            self._accounts[key].held, self._accounts[key].asked = held, asked
        touched = self._take_over(effects.run_changes)
        touched |= work.touched
        for run_id, limiter in work.permitted.items():  # one that was not decided waits in its place again
            touched |= self._requeue(run_id, limiter, work.homes[run_id])
        for key in touched:
            account = self._accounts[key]
            if account.is_idle:
                del self._accounts[key]
            if not account.is_idle and account.held > account.used:
                self._unsettled.add(key)
            else:
                self._unsettled.discard(key)

    def totals(self) -> dict[str, int]:
        """Permits held, used and asked for, and runs that wait, over all limiters. May be asked in any thread."""
        accounts = list(self._accounts.values())
        return {
            "held": sum(each.held for each in accounts),
            "used": sum(each.used for each in accounts),
            "asked": sum(each.asked for each in accounts),
            "waiting": sum(each.waiting for each in accounts),
        }

    def load(self, partition: int, run: Run) -> None:
        """A live run of an earlier owner."""
        if run.permits or run.awaits is not None:
            self._unsettled |= self._take_over([(partition, run.run_id, run)])

    def load_note(self, key: bytes, value: bytes) -> None:
        """What an earlier owner had in hand."""
        account = state.permits_key_parts(key)
        self._accounts[account].held, self._accounts[account].asked = state.decode_counts(value, "held", "asked")
        self._unsettled.add(account)

    def _take_over(self, changes: Changes) -> set[Key]:
        touched: set[Key] = set()
        for partition, run_id, run in changes:
            before, after = self._stands.get(run_id, _NOTHING), _stand(run)
            if before == after:
                continue
            for key in before.has:
                self._accounts[key].used -= 1
            for key in after.has:
                self._accounts[key].used += 1
            if before.awaits is not None and before.awaits != after.awaits:
                self._accounts[before.awaits].waiting -= 1
                self.waiting -= 1
            if run is not None and after.awaits is not None and before.awaits != after.awaits:
                self._accounts[after.awaits].waiting += 1
                self.waiting += 1
                self._queue(after.awaits, partition, run)
            touched.update(before.has, after.has, {each for each in (before.awaits, after.awaits) if each})
            if after == _NOTHING:
                self._stands.pop(run_id, None)
            else:
                self._stands[run_id] = after
        return touched

    def _queue(self, key: Key, partition: int, run: Run) -> None:
        entry = (place_ms(run, self._ageing_ms), run.due_ms, run.run_id, partition)
        heapq.heappush(self._accounts[key].queue, entry)

    def _requeue(self, run_id: str, limiter: str, partition: int) -> set[Key]:
        awaits = self._stands.get(run_id, _NOTHING).awaits
        if awaits is None or awaits[0] != limiter:
            return set()
        heapq.heappush(self._accounts[awaits].queue, (0, 0, run_id, partition))
        return {awaits}


def _stand(run: Run | None) -> _Stand:
    if run is None or not (run.permits or run.awaits):
        return _NOTHING
    tenant = run.tenant
    awaits = None if run.awaits is None else (run.awaits, tenant)
    return _Stand(tuple((limiter, tenant) for limiter in run.permits), awaits)
