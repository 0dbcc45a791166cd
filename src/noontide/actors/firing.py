"""An occurrence is due: claim it, or record why it does not run, and move the cursor. All in one transaction.

    late beyond its grace?  ── misfire rule ──┐
    an earlier run live?    ── overlap rule ──┼──> claim and hand out │ record the decision
    otherwise               ──────────────────┘    and, either way, the next occurrence

The next occurrence follows from the last scheduled time, never from now.
"""

from __future__ import annotations

from typing import NamedTuple

from noontide.actors.closing import Closing
from noontide.actors.effects import Effects, Scene
from noontide.actors.hand_out import Claim, hand_out
from noontide.actors.live_runs import LiveRuns
from noontide.actors.settings import SchedulerSettings
from noontide.actors.timelines import Plan, plan_of
from noontide.actors.world import World
from noontide.core.cursor import Cursor, JobState
from noontide.core.ids import run_id
from noontide.core.misfire import Passed, backlog, judge
from noontide.core.occurrence import Occurrence
from noontide.core.policies import MisfireRule, Overlap
from noontide.core.run import Decision, Run, RunState
from noontide.records import executions
from noontide.records.job_row import JobRow, decode_job_row


class Due(NamedTuple):
    """A job whose time has come. runs, generation, accepted_ms: from its cursor."""

    partition: int
    job_id: str
    occurrence: Occurrence
    runs: int
    generation: int
    accepted_ms: int


class Firing:
    """Claims the occurrences of one partition."""

    def __init__(self, live: LiveRuns, closing: Closing, settings: SchedulerSettings) -> None:
        self._live = live
        self._closing = closing
        self._settings = settings

    def fire(self, due: Due, row_bytes: bytes, scene: Scene) -> Cursor:
        """Decide one due occurrence; writes and returns the cursor that follows."""
        world, effects = scene
        row = decode_job_row(row_bytes)
        plan = plan_of(row, due.job_id, world.config)
        claim: Occurrence | None = due.occurrence
        last_ms, runs = due.occurrence.due_ms, due.runs
        if world.now_ms - due.occurrence.start_ms <= row.grace_ms:
            following = plan.following(last_ms)
        elif self._must_wait(due, row, effects):
            later = due.occurrence._replace(start_ms=world.now_ms + self._settings.catch_up_poll_ms)
            return self._write(due, later, effects, runs=runs, last_ms=None)
        else:
            claim, following, last_ms = self._catch_up(due, row, plan, scene)
        if claim is not None:
            last_ms = claim.due_ms
            due = due._replace(occurrence=claim)
            name = run_id(due.job_id, last_ms, due.generation)
            if plan.allows(last_ms):
                runs += self.claim(due, name, row, row_bytes, scene)
            else:
                _record_skip(due, name, row, "calendar", scene)
            if plan.after_completion_ms is not None and not self._live.of_job(due.job_id, effects):
                following = plan.after_completion(world.now_ms)
        if row.max_runs and runs >= row.max_runs:
            return self._complete(due, scene, runs=runs, last_ms=last_ms)
        if following is None and plan.after_completion_ms is None:
            return self._complete(due, scene, runs=runs, last_ms=last_ms)
        return self._write(due, following, effects, runs=runs, last_ms=last_ms)

    def _must_wait(self, due: Due, row: JobRow, effects: Effects) -> bool:
        """A catch-up in order starts a run only when the one before it is closed."""
        if row.misfire_rule is not MisfireRule.RUN_ALL or row.overlap_rule is Overlap.ALLOW:
            return False
        return bool(self._live.of_job(due.job_id, effects))

    def _catch_up(
        self, due: Due, row: JobRow, plan: Plan, scene: Scene
    ) -> tuple[Occurrence | None, Occurrence | None, int]:
        rule, now_ms = row.misfire_rule, scene.world.now_ms
        until_ms = now_ms - (row.grace_ms + 1 if rule is MisfireRule.SKIP else 0)
        found = backlog(due.occurrence, plan.following, until_ms=until_ms, limit=self._settings.missed_walk_max)
        verdict = judge(rule, found, run_all_max=row.run_all_max, now_ms=until_ms)
        last_ms = due.occurrence.due_ms
        if verdict.passed is not None:
            _record_passed(due, row, verdict.passed, scene)
            last_ms = verdict.passed.last_ms
        return verdict.claim, verdict.following, last_ms

    def claim(self, due: Due, name: str, row: JobRow, row_bytes: bytes, scene: Scene) -> int:
        """Claim an occurrence as run `name`, or record why not. Returns the number of runs claimed: 0 or 1."""
        world, effects = scene
        live = self._live.of_job(due.job_id, effects)
        if not live or row.overlap_rule is Overlap.ALLOW:
            hand_out(_claimed(due, name, row, row_bytes, world), world, effects)
            return 1
        oldest = next(iter(live))
        match row.overlap_rule:
            case Overlap.QUEUE if len(live) == 1:
                hand_out(_claimed(due, name, row, row_bytes, world, waits_for=oldest.run_id), world, effects)
                return 1
            case Overlap.REPLACE:
                for run in live:
                    self._closing.cancel(run, scene, reason=f"overlap: replaced by {name}")
                hand_out(_claimed(due, name, row, row_bytes, world), world, effects)
                return 1
            case _:
                _record_skip(due, name, row, f"overlap: {oldest.run_id} is {oldest.state}", scene)
                return 0

    def _complete(self, due: Due, scene: Scene, *, runs: int, last_ms: int) -> Cursor:
        removal_ms = scene.world.now_ms + self._settings.completed_retention_ms
        cursor = Cursor(JobState.COMPLETED, None, removal_ms, runs, due.generation, last_ms, due.accepted_ms)
        scene.effects.put_cursor(due.partition, due.job_id.encode(), cursor)
        return cursor

    @staticmethod
    def _write(due: Due, following: Occurrence | None, effects: Effects, *, runs: int, last_ms: int | None) -> Cursor:
        due_ms, start_ms = (None, None) if following is None else following
        cursor = Cursor(JobState.ACTIVE, due_ms, start_ms, runs, due.generation, last_ms, due.accepted_ms)
        effects.put_cursor(due.partition, due.job_id.encode(), cursor)
        return cursor


def _claimed(
    due: Due, name: str, row: JobRow, row_bytes: bytes, world: World, *, waits_for: str | None = None
) -> Claim:
    due_ms, start_ms = due.occurrence
    early = start_ms > world.now_ms
    reason = f"overlap: waits for {waits_for}" if waits_for else "waits for its spread start" if early else None
    run = Run(
        name,
        due.job_id,
        row.tenant,
        RunState.PENDING,
        due_ms,
        start_ms,
        world.now_ms,
        row.target_text,
        not_before_ms=start_ms if early else 0,
        reason=reason,
        waits_for=waits_for,
    )
    return Claim(due.partition, run, row, row_bytes, True)


def _record_skip(due: Due, name: str, row: JobRow, reason: str, scene: Scene) -> None:
    scene.effects.decide(
        name, job_id=due.job_id, tenant=row.tenant, due_ms=due.occurrence.due_ms, at_ms=scene.world.now_ms,
        state=Decision.SKIPPED, reason=reason,
    )  # fmt: skip


def _record_passed(due: Due, row: JobRow, passed: Passed, scene: Scene) -> None:
    span = executions.Range(passed.last_ms, passed.count) if passed.count > 1 else None
    world, effects = scene
    name = run_id(due.job_id, passed.first_ms, due.generation)
    reason = f"misfire: {row.misfire_rule}, grace {row.grace_ms} ms"
    line = executions.decided(
        run_id=name, job_id=due.job_id, tenant=row.tenant, due_ms=passed.first_ms, at_ms=world.now_ms,
        state=passed.decision, reason=reason, span=span,
    )  # fmt: skip
    effects.record(name, line)
    effects.counts[passed.decision] += passed.count
