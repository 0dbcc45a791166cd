"""An occurrence is due: claim it, or record why it does not run, and move the cursor. All in one transaction.

    late beyond its grace?  ── misfire rule ──┐
    an earlier run live?    ── overlap rule ──┼──> claim and hand out │ record the decision
    otherwise               ──────────────────┘    and, either way, the next occurrence

The next occurrence follows from the last scheduled time, never from now.
"""

from __future__ import annotations

from typing import NamedTuple

from noontide.actors.closing import Closing
from noontide.actors.effects import Scene
from noontide.actors.expectations import say_overdue
from noontide.actors.graph import tell_dependants
from noontide.actors.hand_out import Claim, deliver_now, hand_out
from noontide.actors.live_runs import LiveRuns
from noontide.actors.quota import release
from noontide.actors.settings import SchedulerSettings
from noontide.actors.ties import OwnTime
from noontide.actors.timelines import NO_DATES, Plan, loaded, plan_of
from noontide.actors.world import World
from noontide.core.cursor import Cursor, JobState
from noontide.core.ids import run_id
from noontide.core.misfire import Passed, backlog, judge
from noontide.core.occurrence import Occurrence
from noontide.core.policies import MisfireRule, Overlap
from noontide.core.run import Decision, Run, RunState
from noontide.records import executions
from noontide.records.job_row import EXPECTED, FOLLOWS, JobRow, decode_job_row


class Due(NamedTuple):
    """A job whose time has come: the occurrence, and from its cursor: runs so far, generation, accepted_ms."""

    partition: int
    job_id: str
    due_ms: int
    start_ms: int
    runs: int
    generation: int
    accepted_ms: int

    @property
    def occurrence(self) -> Occurrence:
        """The occurrence that is due."""
        return Occurrence(self.due_ms, self.start_ms)


class _Outcome(NamedTuple):
    """What happens to a due job. claim: the occurrence to run; following: the one after; last_ms: the last decided."""

    claim: Occurrence | None
    following: Occurrence | None
    last_ms: int


class Firing:
    """Claims the occurrences of one partition."""

    def __init__(self, live: LiveRuns, closing: Closing, settings: SchedulerSettings) -> None:
        self._live = live
        self._closing = closing
        self._settings = settings

    def fire(self, due: Due, row_bytes: bytes, scene: Scene, *, until_ms: int | None = None) -> Cursor:
        """Decide one due occurrence; writes and returns the cursor that follows.

        until_ms: a catch-up goes no further than this (a request that came then); None = to this moment.
        """
        row = decode_job_row(row_bytes)
        plan = plan_of(row, due.job_id, scene.world.config)
        if due.start_ms > due.due_ms + row.spread_ms:  # put off while a catch-up waited; it is as late as ever
            due = due._replace(start_ms=due.due_ms + row.spread_ms)
        if scene.world.now_ms - due.start_ms <= row.grace_ms:
            outcome = _Outcome(due.occurrence, plan.following(due.due_ms), due.due_ms)
        elif self._must_wait(due, row, scene):
            later_ms = scene.world.now_ms + self._settings.catch_up_poll_ms
            before_ms = due.due_ms - 1  # all there was before it is decided, whatever the last one was
            return self._move(due, Occurrence(due.due_ms, later_ms), scene, runs=due.runs, last_ms=before_ms)
        else:
            outcome = self._catch_up(due, row, plan, scene, until_ms=until_ms)
        return self._carry_out(due, outcome, plan, row, scene)

    def _carry_out(self, due: Due, outcome: _Outcome, plan: Plan, row: JobRow, scene: Scene) -> Cursor:
        claim, following, last_ms = outcome
        runs = due.runs
        if claim is not None:
            last_ms = claim.due_ms
            name = run_id(due.job_id, last_ms, due.generation)
            if last_ms != due.due_ms:
                due = due._replace(due_ms=last_ms, start_ms=claim.start_ms)
            if not plan.allows(last_ms):
                _record_skip(due, name, row, "calendar", scene)
            elif row.extras & FOLLOWS:
                scene.effects.ties.own_times.append(OwnTime(due.partition, due.job_id, last_ms))
            else:
                runs += self.claim(due, name, row, scene)
        waits = plan.after_completion_ms is not None and bool(self._live.of_job(due.job_id, scene.effects))
        if plan.after_completion_ms is not None and not waits:
            following = plan.after_completion(scene.world.now_ms)
        if following is None and not waits and not 0 < row.max_runs <= runs and plan.waits_for_dates(last_ms):
            cursor = Cursor(JobState.ACTIVE, None, None, runs, due.generation, last_ms, due.accepted_ms, NO_DATES)
            scene.effects.put_cursor(due.partition, due.job_id.encode(), cursor)
            return cursor
        if (following is None and not waits) or 0 < row.max_runs <= runs:
            if scene.world.config.limits.exact_starts:
                release(due.job_id, row, scene)
            return self._complete(due, scene, runs=runs, last_ms=last_ms)
        return self._move(due, following, scene, runs=runs, last_ms=last_ms)

    def pass_over(self, due: Due, row_bytes: bytes, scene: Scene, *, until_ms: int, reason: str) -> None:
        """Record what is due up to an instant as skipped; the cursor goes elsewhere."""
        row = decode_job_row(row_bytes)
        plan = plan_of(row, due.job_id, scene.world.config)

        def following(after_ms: int) -> Occurrence | None:
            found = plan.following(after_ms)
            return None if found is None else Occurrence(found.due_ms, found.due_ms)

        current: Occurrence | None = due.occurrence
        while current is not None and current.due_ms <= until_ms:
            late, current = backlog(current, following, until_ms=until_ms, limit=self._settings.missed_walk_max)
            passed = Passed(late[0].due_ms, late[-1].due_ms, len(late), Decision.SKIPPED)
            _record_passed(due, row, passed, scene, reason=reason)

    def claim(self, due: Due, name: str, row: JobRow, scene: Scene) -> int:
        """Claim an occurrence as run `name`, or record why not. Returns the number of runs claimed: 0 or 1."""
        world, effects = scene
        complete_by_ms = _time_of(due, name, row, scene) if row.extras & EXPECTED else 0
        live = self._live.of_job(due.job_id, effects)
        if not live or row.overlap_rule is Overlap.ALLOW:
            if due.start_ms <= world.now_ms:
                times = executions.Times(due.due_ms, due.start_ms, world.now_ms, world.now_ms)
                if deliver_now(name, due.job_id, row, times, scene, trace=row.trace):
                    return 1
            hand_out(_claimed(due, name, row, world, complete_by_ms=complete_by_ms), scene)
            return 1
        oldest = next(iter(live))
        match row.overlap_rule:
            case Overlap.QUEUE if len(live) == 1:
                hand_out(_claimed(due, name, row, world, complete_by_ms=complete_by_ms, waits_for=oldest.run_id), scene)
                return 1
            case Overlap.REPLACE:
                for run in live:
                    self._closing.cancel(run, scene, reason=f"overlap: replaced by {name}")
                stopping = next(iter(self._live.of_job(due.job_id, effects)), None)
                waits_for = None if stopping is None else stopping.run_id
                hand_out(_claimed(due, name, row, world, complete_by_ms=complete_by_ms, waits_for=waits_for), scene)
                return 1
            case _:
                _record_skip(due, name, row, f"overlap: {oldest.run_id} is {oldest.state}", scene)
                return 0

    def _must_wait(self, due: Due, row: JobRow, scene: Scene) -> bool:
        """A catch-up in order starts a run only when the one before it is closed."""
        if row.misfire_rule is not MisfireRule.RUN_ALL or row.overlap_rule is Overlap.ALLOW:
            return False
        return bool(self._live.of_job(due.job_id, scene.effects))

    def _catch_up(self, due: Due, row: JobRow, plan: Plan, scene: Scene, *, until_ms: int | None) -> _Outcome:
        rule, now_ms = row.misfire_rule, scene.world.now_ms
        last_start_ms = now_ms - (row.grace_ms + 1 if rule is MisfireRule.SKIP else 0)
        until_ms = last_start_ms if until_ms is None else min(until_ms, last_start_ms)
        limit = self._settings.missed_walk_max
        if rule is MisfireRule.RUN_ALL:
            limit = max(limit, row.run_all_max + 1)  # one more than may run, or nothing would ever be dropped
        found = backlog(due.occurrence, plan.following, until_ms=until_ms, limit=limit)
        verdict = judge(rule, found, run_all_max=row.run_all_max, now_ms=until_ms)
        last_ms = due.due_ms
        if verdict.passed is not None:
            reason = f"misfire: {row.misfire_rule}, grace {row.grace_ms} ms"
            _record_passed(due, row, verdict.passed, scene, reason=reason)
            last_ms = verdict.passed.last_ms
        return _Outcome(verdict.claim, verdict.following, last_ms)

    def _complete(self, due: Due, scene: Scene, *, runs: int, last_ms: int) -> Cursor:
        removal_ms = scene.world.now_ms + self._settings.completed_retention_ms
        cursor = Cursor(JobState.COMPLETED, None, removal_ms, runs, due.generation, last_ms, due.accepted_ms)
        scene.effects.put_cursor(due.partition, due.job_id.encode(), cursor)
        return cursor

    @staticmethod
    def _move(due: Due, following: Occurrence | None, scene: Scene, *, runs: int, last_ms: int | None) -> Cursor:
        due_ms, start_ms = (None, None) if following is None else following
        cursor = Cursor(JobState.ACTIVE, due_ms, start_ms, runs, due.generation, last_ms, due.accepted_ms)
        scene.effects.put_cursor(due.partition, due.job_id.encode(), cursor)
        return cursor


def _time_of(due: Due, name: str, row: JobRow, scene: Scene) -> int:
    """When a run counts as overdue; 0 when that is now: then it is said at once."""
    complete_by_ms = due.due_ms + (loaded(row.document).complete_by_ms or 0)
    if complete_by_ms > scene.world.now_ms:
        return complete_by_ms
    say_overdue(name, due.job_id, row, scene, state="not started")
    return 0


def _claimed(
    due: Due, name: str, row: JobRow, world: World, *, complete_by_ms: int, waits_for: str | None = None
) -> Claim:
    early = due.start_ms > world.now_ms
    reason = f"overlap: waits for {waits_for}" if waits_for else "waits for its spread start" if early else None
    run = Run(
        run_id=name,
        job_id=due.job_id,
        tenant=row.tenant,
        state=RunState.PENDING,
        due_ms=due.due_ms,
        start_ms=due.start_ms,
        claimed_ms=world.now_ms,
        target=row.target_text,
        not_before_ms=due.start_ms if early else 0,
        reason=reason,
        waits_for=waits_for,
        lane=row.lane,
        priority=row.priority,
        etag=row.etag,
        complete_by_ms=complete_by_ms,
        trace=row.trace,
    )
    return Claim(due.partition, run, row, recorded=None)


def _record_skip(due: Due, name: str, row: JobRow, reason: str, scene: Scene) -> None:
    line = executions.decided(
        name, due.job_id, tenant=row.tenant, due_ms=due.due_ms, at_ms=scene.world.now_ms,
        decision=Decision.SKIPPED, reason=reason,
    )  # fmt: skip
    scene.effects.record(name.encode(), line)
    scene.effects.counts[Decision.SKIPPED] += 1
    tell_dependants(name, due.due_ms, Decision.SKIPPED, scene)


def _record_passed(due: Due, row: JobRow, passed: Passed, scene: Scene, *, reason: str) -> None:
    name = run_id(due.job_id, passed.first_ms, due.generation)
    span = executions.Range(passed.last_ms, passed.occurrences) if passed.occurrences > 1 else None
    line = executions.decided(
        name, due.job_id, tenant=row.tenant, due_ms=passed.first_ms, at_ms=scene.world.now_ms,
        decision=passed.decision, reason=reason, span=span,
    )  # fmt: skip
    scene.effects.record(name.encode(), line)
    scene.effects.counts[passed.decision] += passed.occurrences
    tell_dependants(name, passed.first_ms, passed.decision, scene, span=span)
