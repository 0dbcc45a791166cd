"""One partition of jobs: what it remembers, what it needs to know, and what it decides.

A cycle of its slot goes through here twice:

    gather   `collect` takes what is to be decided now: requests, deliveries, runs whose wait is over, due occurrences;
             `wanted` names the rows of the index that deciding will read
    decide   `decide` adds to the cycle's effects; it changes nothing here and reads no clock
    apply    `apply` takes over what the commit made true

Anything that goes wrong in between drops the whole partition; `restore` builds it anew from the log.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.actors.admission import Admission
from noontide.actors.closing import Closing, Delivered
from noontide.actors.effects import Effects, Scene
from noontide.actors.firing import Due, Firing
from noontide.actors.guards import wanted_guard
from noontide.actors.hand_out import Claim, hand_out
from noontide.actors.kinds import Kinds
from noontide.actors.live_runs import LiveRuns, is_free
from noontide.actors.newcomers import Newcomers, hashes_of
from noontide.actors.offers import offer_ready
from noontide.actors.poison import Poisoned
from noontide.actors.ready_queue import ReadyQueues
from noontide.actors.request_input import Input, named_run
from noontide.actors.review import review
from noontide.actors.settings import SchedulerSettings
from noontide.actors.timers import DueItem, DueWindow
from noontide.actors.volley import Volley
from noontide.actors.world import Route, World
from noontide.core.cursor import Cursor, JobState
from noontide.core.errors import InvalidDefinition
from noontide.core.run import Run, RunEvent, advance
from noontide.records import rows
from noontide.records.job_row import decode_job_row

KAFKA = "kafka://"
FRESH_PART = 4
"""When more is due than one cycle takes, a part of it (one in so many) goes to what fell due last."""
Item = Input | Delivered | Run | DueItem


@dataclass(slots=True, kw_only=True)
class Work:
    """What one partition has to decide in one cycle, in this order.

    reviews: ids of jobs whose next occurrence is worked out anew;
    job_keys: rows of the due jobs; drained: the key range of the due rows;
    fresh: due rows that were taken from behind a backlog;
    set_aside: items that are not to be tried (by their `id()`), and why.
    """

    inputs: list[Input] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)
    released: list[Run] = field(default_factory=list)
    reviews: list[bytes] = field(default_factory=list)
    due: list[DueItem] = field(default_factory=list)
    job_keys: list[bytes] = field(default_factory=list)
    fresh: list[DueItem] = field(default_factory=list)
    drained: tuple[bytes, bytes] | None = None
    set_aside: dict[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.inputs or self.deliveries or self.released or self.due or self.reviews)

    def items(self) -> Iterator[Item]:
        """Everything, in the order in which it is decided."""
        yield from self.inputs
        yield from self.deliveries
        yield from self.released
        yield from self.due
        yield from self.fresh


class Budget(NamedTuple):
    """How much a partition may take into one cycle. At least one request is taken, whatever its size."""

    inputs: int
    input_bytes: int
    due: int


def take_inputs(queue: deque[Input], budget: Budget) -> list[Input]:
    """Take the oldest requests off a queue, within the budget."""
    taken: list[Input] = []
    left = budget.input_bytes
    while queue and len(taken) < budget.inputs and (left > 0 or not taken):
        left -= queue[0].size_bytes
        taken.append(queue.popleft())
    return taken


class Partition:
    """The actor of one partition."""

    def __init__(self, number: int, settings: SchedulerSettings, ready: ReadyQueues, kinds: Kinds) -> None:
        self.number = number
        self.inbox: deque[Input] = deque()
        self.deliveries: deque[Delivered] = deque()
        self.live = LiveRuns(number, ready)
        self.window = DueWindow(number, preload_max=settings.preload_max, late_heap_max=settings.late_heap_max)
        self._stuck: dict[str, Route | None] = {}
        self._in_vain: Counter[str] = Counter()
        self.closing = Closing(number, self.live, settings)
        self.firing = Firing(self.live, self.closing, settings)
        self._volley = Volley(number, self.live, settings)
        self._admission = Admission(number, self.live, self.firing, self.closing, settings)
        self._newcomers = Newcomers(number, self._admission, kinds, settings)
        self._settings = settings

    # --- gather

    def collect(self, world: World, budget: Budget) -> Work:
        """Take what is to be decided now, within the budget."""
        inputs = take_inputs(self.inbox, budget)
        deliveries = [self.deliveries.popleft() for _ in range(min(len(self.deliveries), budget.inputs))]
        released = self.live.due(world.now_ms, budget.due)
        for target in self.live.targets_waited_for():
            released += self._freed(target, world, budget.due - len(released))
        due = self.window.take(world.now_ms, max(0, budget.due - len(released)))
        job_row = rows.job_key(self.number, b"")
        job_keys = [job_row + key[rows.DUE_KEY_FORM_BYTES :] for key, _ in due]
        fresh = self.window.take_fresh(world.now_ms, budget.due // FRESH_PART)
        return Work(inputs=inputs, deliveries=deliveries, released=released, due=due, job_keys=job_keys, fresh=fresh)

    def keep_one(self, work: Work, turn: int) -> Work:
        """One item of the work, another one each turn; the others are put back."""
        items = list(work.items())
        kept = items[turn % len(items)]
        for item in items:
            match item:
                case _ if item is kept:
                    pass
                case Input():
                    self.inbox.appendleft(item)
                case Delivered():
                    self.deliveries.appendleft(item)
                case Run():
                    self.live.put(item)
                case _:
                    self.window.give_back(1)
        return Work(
            inputs=[item for item in work.inputs if item is kept],
            deliveries=[item for item in work.deliveries if item is kept],
            released=[item for item in work.released if item is kept],
            due=[item for item in work.due if item is kept],
            job_keys=work.job_keys if work.due and work.due[0] is kept else [],
        )

    def _freed(self, target: str, world: World, limit: int) -> list[Run]:
        """Runs that wait for a topic which may be able to take them now."""
        route = world.routes.get(target.removeprefix(KAFKA))
        if not target.startswith(KAFKA) or limit <= 0 or self._stuck.get(target, ()) == route:
            return []
        if route is not None and (route.problem is not None or not route.allowance):
            return []
        return self.live.waiting_for(target, limit if route is None else min(limit, route.allowance))

    def wanted(self, work: Work) -> Iterable[bytes]:
        """Keys of the rows that deciding this work reads."""
        number = self.number
        job_row, cursor_row = rows.job_key(number, b""), rows.cursor_key(number, b"")
        for item in work.inputs:
            if item.key is not None:
                yield job_row + item.key
                yield cursor_row + item.key
                if item.headers:
                    yield from self._wanted_dead(item)
                    yield from wanted_guard(number, item)
        for event in work.deliveries:
            job_id = event.run_id.rpartition(":")[0].encode()
            yield rows.claimed_key(number, event.run_id.encode())
            yield rows.job_key(number, job_id)
            yield rows.cursor_key(number, job_id)
        for run in work.released:
            yield Effects.row_key(number, run)
            if not run.lane:  # it may be delivered and closed at once
                yield rows.cursor_key(number, run.job_id.encode())
        yield from work.job_keys
        yield from (rows.job_key(number, key[rows.DUE_KEY_FORM_BYTES :]) for key, _ in work.fresh)
        for job_id in work.reviews:
            yield rows.job_key(number, job_id)
            yield rows.cursor_key(number, job_id)

    def _wanted_dead(self, item: Input) -> Iterable[bytes]:
        """The row of the dead run that a request names, if it does."""
        if ("kind", b"redrive") in item.headers:
            run_id = named_run(item.value)
            if run_id is not None:
                yield rows.dead_key(self.number, run_id.encode())

    def trim(self, work: Work, fetched: Mapping[bytes, bytes | None], bytes_max: int) -> None:
        """Give back due rows whose jobs are more than `bytes_max` together (at least one stays)."""
        left, kept = bytes_max, 0
        for key in work.job_keys:
            left -= len(fetched[key] or b"")
            if left < 0 and kept:
                break
            kept += 1
        self.window.give_back(len(work.due) - kept)
        work.due = work.due[:kept]
        if work.due:
            work.drained = self.window.drained(work.due)

    # --- decide

    def decide(self, work: Work, scene: Scene) -> None:
        """Decide all of it, in order. Raises Poisoned for the first item that fails."""
        self._requests(work, scene)
        self._each(work.deliveries, work.set_aside, scene)
        self._each(self._not_alike(work, scene), work.set_aside, scene)
        self._each(self._not_plain(work, scene), work.set_aside, scene)
        self._each(work.fresh, work.set_aside, scene)
        for job_id in work.reviews:
            review(self.number, job_id, scene)
        gone = work.fresh  # in no range
        if len(work.due) < self._settings.range_delete_min:
            gone = [*work.due, *work.fresh]
        elif work.drained is not None:
            scene.effects.index.deleted_ranges.append(work.drained)
        for key, _ in gone:  # one that was written anew comes up again
            scene.effects.index.puts.setdefault(key, None)

    def admit(self, item: Input, scene: Scene) -> None:
        """Decide one request that was put aside before."""
        self._admission.admit(item, scene)

    def _requests(self, work: Work, scene: Scene) -> None:
        """Plain new jobs are accepted in a row, what stands between them one by one."""
        inputs, place = work.inputs, 0
        hashes = hashes_of(inputs)
        while place < len(inputs):
            if not work.set_aside:
                place = self._newcomers.accept(inputs, place, scene, hashes)
            self._each(inputs[place : place + 1], work.set_aside, scene)
            place += 1

    def _each(self, items: Iterable[Item], set_aside: Mapping[int, str], scene: Scene) -> None:
        for item in items:
            try:
                if id(item) in set_aside:
                    self._set_aside(item, set_aside[id(item)], scene)
                else:
                    self._decide(item, scene)
            except Poisoned:
                raise
            except Exception as error:
                raise Poisoned(self.number, item, error) from error

    def _not_alike(self, work: Work, scene: Scene) -> list[Run]:
        """Offer the runs whose turn it is together; returns those to be decided one by one."""
        if work.set_aside:
            return work.released
        try:
            return offer_ready(self.number, work.released, scene)
        except Exception:  # noqa: BLE001 - one by one it will show whose fault it is
            return work.released

    def _not_plain(self, work: Work, scene: Scene) -> list[DueItem]:
        """Claim due jobs that fire alike together; returns those to be decided one by one."""
        if work.set_aside:
            return work.due
        try:
            return self._volley.claim(work.due, work.job_keys, scene)
        except Exception:  # noqa: BLE001 - one by one it will show whose fault it is
            return work.due

    def _decide(self, item: Item, scene: Scene) -> None:
        match item:
            case Input():
                self._admission.admit(item, scene)
            case Delivered():
                self.closing.settle(item, scene)
            case Run():
                self._hand_out(item, scene)
            case key, value:
                self._due(key, value, scene)

    def _hand_out(self, run: Run, scene: Scene) -> None:
        now = scene.effects.current(run)
        if now is None or now.state is not run.state:
            return
        row = decode_job_row(scene.effects.row_of(self.number, now))
        if hand_out(Claim(self.number, now, row, recorded=now), scene):
            self.closing.follow_up(run, scene)

    def _due(self, key: bytes, value: bytes, scene: Scene) -> None:
        if scene.effects.is_changed(key):
            return
        start_ms, job_id = rows.due_key_parts(key)
        due = rows.decode_due_row(value)
        match due.purpose:
            case rows.Purpose.FIRE:
                row = scene.effects.read(rows.job_key(self.number, job_id))
                if row is None:
                    raise LookupError("due without a definition")
                at = Due(self.number, job_id.decode(), due.due_ms, start_ms, due.runs, due.generation, due.accepted_ms)
                self.firing.fire(at, row, scene)
            case rows.Purpose.REMOVE:
                self._keep_definitions(job_id, scene)
                scene.effects.delete_job(self.number, job_id, headers=[("reason", b"completed")])
                scene.effects.drop_cursor(self.number, job_id)
            case rows.Purpose.FORGET:
                scene.effects.drop_cursor(self.number, job_id)

    def _keep_definitions(self, job_id: bytes, scene: Scene) -> None:
        """A completed job goes; runs that are still live keep what they were claimed with."""
        row_bytes = scene.effects.read(rows.job_key(self.number, job_id))
        for run in self.live.of_job(job_id.decode(), scene.effects):
            if row_bytes is not None and not run.kept:
                scene.effects.keep_definition(self.number, run, decode_job_row(row_bytes), row_bytes)

    def _set_aside(self, item: Item, reason: str, scene: Scene) -> None:
        """Handling this item fails, here or at the broker: refuse the request, or quarantine the job."""
        scene.effects.counts["set_aside"] += 1
        match item:
            case Input():
                self._admission.refuse(item, InvalidDefinition.of("", f"could not be handled: {reason}"), scene)
            case Delivered() | Run():
                known = self.live.by_id.get(item.run_id)
                run = None if known is None else scene.effects.current(known)
                if run is not None:
                    state, reason = advance(run.state, RunEvent.GIVE_UP), f"could not be handled: {reason}"
                    self.closing.close(run, scene, state=state, reason=reason)
            case key, value:
                self._quarantine(key, value, reason, scene)

    def _quarantine(self, key: bytes, value: bytes, reason: str, scene: Scene) -> None:
        _, job_id = rows.due_key_parts(key)
        due = rows.decode_due_row(value)
        cursor = Cursor(
            JobState.QUARANTINED, due.due_ms, None, due.runs, due.generation, None, due.accepted_ms, reason[:500]
        )
        scene.effects.put_cursor(self.number, job_id, cursor)

    # --- apply

    def apply_runs(self, changes: Iterable[tuple[str, Run | None]], work: Work | None, world: World) -> None:
        """Runs were opened, changed (the run) or closed (None) by the cycle.

        A topic that took none of the runs that waited for it is left alone until its route changes, or more wait.
        """
        released = [] if work is None else work.released
        known, noticed, live = {run.run_id for run in released}, set[str](), self.live
        for run_id, run in changes:
            if run is None:
                live.remove(run_id)
                continue
            live.put(run)
            if run_id not in known:
                noticed.add(run.target)
        for target in noticed:
            self._notice(target)
        for target in {run.target for run in released}:
            tried = [run for run in released if run.target == target]
            if not all(self._still_waits(run) for run in tried):
                self._notice(target)
                continue
            self._in_vain[target] += len(tried)
            if self._in_vain[target] >= self.live.count_waiting(target):
                self._stuck[target] = world.routes.get(target.removeprefix(KAFKA))

    def _notice(self, target: str) -> None:
        """Something changed for the runs that wait for a target: try them all again."""
        self._stuck.pop(target, None)
        self._in_vain.pop(target, None)

    def _still_waits(self, run: Run) -> bool:
        now = self.live.by_id.get(run.run_id)
        return now is not None and is_free(now)

    def next_wake_ms(self) -> int | None:
        """When something is due by itself; None when nothing is in memory."""
        times = [at for at in (self.window.next_ms(), self.live.next_ms()) if at is not None]
        return min(times, default=None)

    def is_active(self, now_ms: int) -> bool:
        """Whether there may be something to decide now."""
        wake_ms = self.next_wake_ms()
        return bool(
            self.inbox
            or self.deliveries
            or (wake_ms is not None and wake_ms <= now_ms)
            or self.live.targets_waited_for()
        )
