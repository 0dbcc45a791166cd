"""Jobs that wait for upstreams: how these ended so far, by logical time, and what follows.

    an upstream ended ──> join (job, logical time) ──all succeeded──> claim the run
    own time came     ──┘        │ └──one did not──> by rule: skipped, and its own dependants are told │ claimed
                                 └── deadline ──> skipped: it waited too long

A skipped join is kept for a while: an upstream that is redriven and succeeds sets it going after all.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from noontide.actors.effects import Effects, Scene
from noontide.actors.firing import Due
from noontide.actors.graph import Graph, put_after, put_fact, put_wave, tell_dependants
from noontide.actors.mailbox import Message, reading
from noontide.actors.partition import Partition
from noontide.actors.quota import release
from noontide.actors.settings import SchedulerSettings
from noontide.actors.ties import Ties
from noontide.actors.timelines import loaded
from noontide.core.cursor import Cursor, JobState
from noontide.core.dependencies import OWN_TIME, SUCCEEDED, Step, judge
from noontide.core.ids import run_id
from noontide.core.job import Job
from noontide.core.run import Decision
from noontide.records import executions
from noontide.records.dependencies import PASSED_MAX, Join, JoinKey, Upstreams, Wave, decode_join, encode_fact, join_key
from noontide.records.job_row import JobRow, decode_job_row
from noontide.records.signals import Ended
from noontide.records.state import decode_cursor

OVERDUE_MAX = 500
"""Waits whose deadline has passed, taken in one cycle."""


@dataclass(slots=True, kw_only=True)
class JoinWork:
    """What is decided in one cycle: ends of upstreams, and waits that are over."""

    ended: list[Message] = field(default_factory=list)
    overdue: list[JoinKey] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.ended or self.overdue)


class _End(NamedTuple):
    """How an upstream ended. life: see `records.dependencies.Join`."""

    source: str
    state: str
    members: tuple[str, ...] = ()
    life: int = 1


@dataclass(slots=True)
class _Waiter:
    """A job that waits, as this cycle sees it. life: see `records.dependencies.Join`."""

    key: JoinKey
    partition: int
    row: JobRow
    row_bytes: bytes
    job: Job
    cursor: Cursor
    life: int = 1

    @property
    def run_id(self) -> str:
        """Of its run at this logical time."""
        if self.key.wave:
            return f"{self.key.job_id}:{self.key.wave}"
        return run_id(self.key.job_id, self.key.due_ms, self.cursor.generation + self.life - 1)

    def needed(self, members: tuple[str, ...]) -> list[str]:
        """What it waits for. members: of a re-run; the others have run already."""
        if self.key.wave:
            return [each for each in self.job.after if each in members]
        return [*self.job.after, *([OWN_TIME] if self.row.schedule_key else [])]


class Joins:
    """The waits of one slot."""

    def __init__(
        self, partitions: Mapping[int, Partition], ties: Ties, graph: Graph, settings: SchedulerSettings
    ) -> None:
        self._partitions = partitions
        self._ties = ties
        self._graph = graph
        self._settings = settings
        self._deadlines: list[tuple[int, JoinKey]] = []

    # --- gather

    def collect(self, messages: Iterable[Message], now_ms: int) -> JoinWork:
        """Take ends of upstreams, and waits that are over."""
        work = JoinWork(ended=[each for each in messages if isinstance(each.signal, Ended)])
        while self._deadlines and self._deadlines[0][0] <= now_ms and len(work.overdue) < OVERDUE_MAX:
            at_ms, key = heapq.heappop(self._deadlines)
            known = self._ties.joins.get(key)
            if known is not None and known.until == at_ms:
                work.overdue.append(key)
        return work

    def wanted(self, work: JoinWork) -> Iterable[bytes]:
        """Keys of the rows that deciding reads."""
        for key in work.overdue:
            yield from self._graph.rows_of(key.job_id)

    def next_wake_ms(self) -> int | None:
        """When the next wait is over; None without one."""
        return self._deadlines[0][0] if self._deadlines else None

    # --- decide

    def decide(self, work: JoinWork, scene: Scene, set_aside: Collection[object] = ()) -> None:
        """Match what ended with what waits. Raises Misread, naming a message's source or a join."""
        for job_id in scene.effects.ties.follows if self._ties.joins else ():
            for key in [each for each in self._ties.joins if each.job_id == job_id and not each.wave]:
                self._look_again(key, scene)
        for own in scene.effects.ties.own_times:
            self._arrive(JoinKey(own.job_id, own.due_ms), _End(OWN_TIME, SUCCEEDED), scene)
        for message in work.ended:
            if message.source not in set_aside and isinstance(message.signal, Ended):
                with reading(message.source):
                    self._hear(message.signal, scene)
        for key in work.overdue:
            if key not in set_aside:
                with reading(key):
                    self._give_up(key, scene)

    def _hear(self, ended: Ended, scene: Scene) -> None:
        if ended.until is not None:
            self._pass_over(ended, scene)
        else:
            key = JoinKey(ended.downstream, ended.due, ended.wave)
            self._arrive(key, _End(ended.upstream, ended.state, ended.members, ended.life), scene)

    def _look_again(self, key: JoinKey, scene: Scene) -> None:
        """The definition is another one: what has come may be all that is needed now."""
        waiter, known = self._waiter(key, scene), self._known(key, scene)
        if waiter is None or known is None or known.skipped or not waiter.job.after:
            return
        if waiter.cursor.state is not JobState.ACTIVE:
            return
        waiter.life = known.life
        if judge(waiter.needed(()), known.got, waiter.job.on_upstream_failure).step is Step.RUN:
            self._settle(waiter, known, known, scene)

    def _waiter(self, key: JoinKey, scene: Scene) -> _Waiter | None:
        row_key, cursor_key = self._graph.rows_of(key.job_id)
        row, cursor = scene.effects.read(row_key), scene.effects.read(cursor_key)
        if row is None or cursor is None:
            return None
        job_row = decode_job_row(row)
        return _Waiter(key, row_key[0], job_row, row, loaded(job_row.document), decode_cursor(cursor))

    def _known(self, key: JoinKey, scene: Scene) -> Join | None:
        changes = scene.effects.ties.joins
        return changes[key] if key in changes else self._ties.joins.get(key)

    def _arrive(self, key: JoinKey, end: _End, scene: Scene) -> None:
        waiter, source = self._waiter(key, scene), end.source
        if waiter is None or source not in (OWN_TIME, *waiter.job.after):
            scene.effects.counts["ignored_ends"] += 1
            return
        known = self._known(key, scene)
        waiter.life = max(end.life, 1 if known is None else known.life)
        if known is not None and known.skipped and end.state != SUCCEEDED:
            return
        if not key.wave and source != OWN_TIME and self._is_over(waiter, known, scene):
            return
        got = {**self._got(waiter, scene), **({} if known is None else known.got), source: end.state}
        members = end.members or (() if known is None else known.members)
        self._settle(waiter, Join(got, 0, members=members, life=waiter.life), known, scene)

    def _is_over(self, waiter: _Waiter, known: Join | None, scene: Scene) -> bool:
        """Whether the job runs no more, or not now: what it waited for does not matter then.

        After its last own time a job is completed, and what waits since then goes on, up to `max_runs`.
        """
        state, most = waiter.cursor.state, waiter.row.max_runs
        is_spent = 0 < most <= waiter.cursor.runs
        if state is JobState.ACTIVE or (state is JobState.COMPLETED and known is not None and not is_spent):
            return False
        self._put(waiter.key, None, known, scene)
        if state is JobState.PAUSED and (known is None or not known.skipped):
            waiter.life = max(waiter.life, 1 if known is None else known.life)
            self._skip(waiter, "the job is paused", Join({}, 0), scene)
        return True

    def _got(self, waiter: _Waiter, scene: Scene) -> dict[str, str]:
        """What is known of upstreams that will not say anything about this logical time any more."""
        fact = scene.effects.ties.after.get(waiter.key.job_id, self._ties.after.get(waiter.key.job_id))
        if fact is None or waiter.key.wave:
            return {}
        return {each: "passed over" for each in waiter.job.after if fact.passed_over(each, waiter.key.due_ms)}

    def _settle(self, waiter: _Waiter, join: Join, known: Join | None, scene: Scene) -> None:
        verdict = judge(waiter.needed(join.members), join.got, waiter.job.on_upstream_failure)
        if verdict.step is Step.RUN:
            self._put(waiter.key, None, known, scene)
            self._run(waiter, join.members, scene)
        elif verdict.step is Step.WAIT:
            if known is None or known.skipped:
                until_ms = self._deadline_ms(waiter, scene)
                self._put(waiter.key, replace(join, until=until_ms), known, scene)
            else:
                self._put(waiter.key, replace(join, until=known.until), known, scene)
        elif known is None or not known.skipped:
            self._skip(waiter, verdict.because, join, scene)

    def _deadline_ms(self, waiter: _Waiter, scene: Scene) -> int:
        if waiter.job.complete_by_ms is not None and not waiter.key.wave:
            return max(scene.world.now_ms + 1, waiter.key.due_ms + waiter.job.complete_by_ms)
        return scene.world.now_ms + self._settings.upstream_wait_ms

    def _run(self, waiter: _Waiter, members: tuple[str, ...], scene: Scene) -> None:
        """All upstreams are well: claim the run, at once."""
        cursor, now_ms = waiter.cursor, scene.world.now_ms
        if waiter.key.wave:
            put_wave(scene.effects, waiter.run_id, Wave(waiter.key.wave, waiter.key.due_ms, members))
        due = Due(
            waiter.partition, waiter.key.job_id, waiter.key.due_ms, max(now_ms, waiter.key.due_ms), cursor.runs,
            cursor.generation, cursor.accepted_ms,
        )  # fmt: skip
        claimed = self._partitions[waiter.partition].firing.claim(due, waiter.run_id, waiter.row, scene)
        if not waiter.key.wave:
            self._count(waiter, claimed, scene)

    def _count(self, waiter: _Waiter, claimed: int, scene: Scene) -> None:
        """The job has come this far; after its last run it is completed."""
        cursor, effects = waiter.cursor, scene.effects
        last_ms = max(waiter.key.due_ms, cursor.last_due_ms or waiter.key.due_ms)
        moved = cursor._replace(runs=cursor.runs + claimed, last_due_ms=last_ms)
        if cursor.state is JobState.ACTIVE and 0 < waiter.row.max_runs <= moved.runs:
            removal_ms = scene.world.now_ms + self._settings.completed_retention_ms
            moved = moved._replace(state=JobState.COMPLETED, due_ms=None, start_ms=removal_ms)
            release(waiter.key.job_id, waiter.row, scene)
        effects.unschedule(waiter.partition, waiter.key.job_id.encode(), cursor)
        effects.put_cursor(waiter.partition, waiter.key.job_id.encode(), moved)

    def _skip(self, waiter: _Waiter, because: str, join: Join, scene: Scene) -> None:
        """It does not run; who waits for it hears so at once. Kept, in case an upstream succeeds after all."""
        effects, key, name = scene.effects, waiter.key, waiter.run_id
        line = executions.decided(
            name, key.job_id, tenant=waiter.row.tenant, due_ms=key.due_ms, at_ms=scene.world.now_ms,
            decision=Decision.SKIPPED, reason=f"upstream: {because}" if join.got else because,
        )  # fmt: skip
        effects.record(name.encode(), line)
        effects.counts[Decision.SKIPPED] += 1
        if key.wave:
            put_wave(effects, name, Wave(key.wave, key.due_ms, join.members))
        tell_dependants(name, key.due_ms, Decision.SKIPPED, scene)
        if join.got:
            until_ms = scene.world.now_ms + self._settings.upstream_wait_ms
            kept = replace(join, until=until_ms, skipped=True)
            self._put(key, kept, self._known(key, scene), scene)

    def _give_up(self, key: JoinKey, scene: Scene) -> None:
        """The deadline of a wait has passed, or a decision was kept long enough."""
        waiter, known = self._waiter(key, scene), self._known(key, scene)
        if known is None or known.until > scene.world.now_ms:
            return
        self._put(key, None, known, scene)
        has_schedule = waiter is not None and bool(waiter.row.schedule_key) and not key.wave
        if waiter is None or known.skipped or (has_schedule and OWN_TIME not in known.got):
            return
        waiter.life = known.life
        awaited = judge(waiter.needed(known.members), known.got, waiter.job.on_upstream_failure).because
        self._skip(waiter, f"waited too long for {awaited}", Join({}, 0, members=known.members), scene)

    def _pass_over(self, ended: Ended, scene: Scene) -> None:
        """Many occurrences of an upstream had no run: neither have those of the job that needs them."""
        waiter = self._waiter(JoinKey(ended.downstream, ended.due), scene)
        fact = scene.effects.ties.after.get(ended.downstream, self._ties.after.get(ended.downstream))
        if waiter is None or fact is None or ended.until is None or ended.upstream not in waiter.job.after:
            return
        span = (ended.due, ended.until)
        spans = [*fact.passed.get(ended.upstream, ()), span][-PASSED_MAX:]
        passed = Upstreams(fact.names, fact.missing, {**fact.passed, ended.upstream: spans})
        put_after(scene.effects, ended.downstream, passed)
        waiting = [key for key in self._ties.joins if key.job_id == ended.downstream and not key.wave]
        for key in waiting:
            if span[0] <= key.due_ms <= span[1]:
                self._arrive(key, _End(ended.upstream, "passed over", life=ended.life), scene)
        waiter.life = ended.life
        if len(waiter.job.after) == 1 and not waiter.row.schedule_key:
            self._skip_all(waiter, executions.Range(ended.until, ended.count), scene)

    def _skip_all(self, waiter: _Waiter, span: executions.Range, scene: Scene) -> None:
        name, due_ms = waiter.run_id, waiter.key.due_ms
        line = executions.decided(
            name, waiter.key.job_id, tenant=waiter.row.tenant, due_ms=due_ms, at_ms=scene.world.now_ms,
            decision=Decision.SKIPPED, reason=f"upstream: {waiter.job.after[0]} was passed over", span=span,
        )  # fmt: skip
        scene.effects.record(name.encode(), line)
        tell_dependants(name, due_ms, Decision.SKIPPED, scene, span=span)

    @staticmethod
    def _put(key: JoinKey, join: Join | None, known: Join | None, scene: Scene) -> None:
        if join is None and known is None:
            return
        scene.effects.ties.joins[key] = join
        scene.effects.put_note(join_key(key), None if join is None else encode_fact(join))

    # --- apply

    def apply(self, effects: Effects) -> None:
        """Take over what the commit made true."""
        for key, join in effects.ties.joins.items():
            put_fact(self._ties.joins, key, join)
            if join is not None:
                heapq.heappush(self._deadlines, (join.until, key))

    def load_note(self, key: bytes, value: bytes) -> None:
        """What waited when an earlier owner left."""
        of, join = decode_join(key, value)
        self._ties.joins[of] = join
        heapq.heappush(self._deadlines, (join.until, of))
