"""A run is over: its line of history, its tombstones, and what waited for it."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from noontide.actors.effects import Scene
from noontide.actors.live_runs import LiveRuns
from noontide.actors.timelines import plan_of
from noontide.core.cursor import JobState
from noontide.core.definition import load_definition
from noontide.core.policies import Guarantee
from noontide.core.retry import backoff_ms, may_retry
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.ports.record_log import Record
from noontide.records import executions, rows
from noontide.records.job_row import JobRow, decode_job_row
from noontide.records.state import decode_cursor


class Delivered(NamedTuple):
    """What became of a record sent after a commit. error: None when the topic has it."""

    run_id: str
    error: str | None
    retriable: bool


class Closing:
    """Closes the runs of one partition."""

    def __init__(self, partition: int, live: LiveRuns) -> None:
        self._partition = partition
        self._live = live

    def close(self, run: Run, scene: Scene, *, state: RunState, reason: str | None = None) -> None:
        """Close a live run in a final state, and let go of those that waited for it."""
        world, effects = scene
        times = executions.Times(run.due_ms, run.start_ms, run.claimed_ms, world.now_ms)
        line = executions.closed(
            run.run_id, run.job_id, tenant=run.tenant, times=times, state=state, reason=reason,
            attempt=run.attempt, token=run.token, target=run.target, late_ms=max(0, world.now_ms - run.start_ms),
        )  # fmt: skip
        effects.record(run.run_id, line)
        effects.close_run(self._partition, run)
        effects.counts[state] += 1
        self._release(run, scene)

    def follow_up(self, run: Run, scene: Scene) -> None:
        """A live run was delivered and closed by its claim's own transaction: let go of what waited for it."""
        self._release(run, scene)
        self.schedule_after_completion(run, scene)

    def cancel(self, run: Run, scene: Scene, *, reason: str) -> None:
        """Close a run as cancelled; a record already under way to a topic may still arrive."""
        self.close(run, scene, state=advance(run.state, RunEvent.CANCEL), reason=reason)

    def settle(self, event: Delivered, scene: Scene) -> None:
        """Take note of a delivery: succeeded, to be tried again, or dead. One for a closed run changes nothing."""
        run = self._live.by_id.get(event.run_id)
        run = None if run is None else scene.effects.current(run)
        if run is None or run.state is not RunState.QUEUED:
            scene.effects.counts["ignored_deliveries"] += 1
            return
        if event.error is None:
            self.close(run, scene, state=advance(run.state, RunEvent.SUCCEED))
        else:
            self._failed(run, event, event.error, scene)
        self.schedule_after_completion(run, scene)

    def _failed(self, run: Run, event: Delivered, error: str, scene: Scene) -> None:
        row = self._claimed_row(run, scene)
        job = load_definition(row.document)
        once = job.guarantee is Guarantee.AT_MOST_ONCE
        if once or not event.retriable or not may_retry(job.retry, attempt=run.attempt):
            reason = "outcome unknown" if once else "max_attempts" if event.retriable else "permanent"
            _bury(run, row, scene, reason=reason, error=error)
            self.close(run, scene, state=advance(run.state, RunEvent.GIVE_UP), reason=f"{reason}: {error}")
            return
        wait_ms = backoff_ms(job.retry, run_id=run.run_id, attempt=run.attempt)
        retry = run._replace(
            state=advance(run.state, RunEvent.FAIL), not_before_ms=scene.world.now_ms + wait_ms, reason=error
        )
        scene.effects.open_run(self._partition, retry, None, None)

    def _release(self, closed: Run, scene: Scene) -> None:
        for run in self._live.of_job(closed.job_id, scene.effects):
            if run.waits_for == closed.run_id:
                free = run._replace(waits_for=None, reason=None)
                scene.effects.open_run(self._partition, free, None, None)

    def schedule_after_completion(self, run: Run, scene: Scene, row: JobRow | None = None) -> None:
        """A schedule that counts from the end of the run goes on when the job has no live run left.

        row: the job; None = as the run was claimed with it.
        """
        world, effects = scene
        job_id = run.job_id.encode()
        known = effects.read(rows.cursor_key(self._partition, job_id))
        if known is None or self._live.of_job(run.job_id, effects):
            return
        cursor = decode_cursor(known)
        if cursor.state is not JobState.ACTIVE or cursor.due_ms is not None:
            return
        plan = plan_of(row or self._claimed_row(run, scene), run.job_id, world.config)
        if plan.after_completion_ms is None:
            return
        following = plan.after_completion(world.now_ms)
        if following is not None:
            due_ms, start_ms = following
            effects.put_cursor(self._partition, job_id, cursor._replace(due_ms=due_ms, start_ms=start_ms))

    def _claimed_row(self, run: Run, scene: Scene) -> JobRow:
        row = scene.effects.fetched(rows.claimed_key(self._partition, run.run_id.encode()))
        if row is None:
            raise LookupError(f"run {run.run_id} is live without the definition it was claimed with")
        return decode_job_row(row)


def _bury(run: Run, row: JobRow, scene: Scene, *, reason: str, error: str) -> None:
    """Keep what a dead run would have done, so that it can be redriven."""
    letter = {
        "run_id": run.run_id,
        "job_id": run.job_id,
        "tenant": run.tenant,
        "due": run.due_ms,
        "attempt": run.attempt,
        "token": run.token,
        "reason": reason,
        "error": error,
        "at": scene.world.now_ms,
        "job": orjson.Fragment(row.document),
    }
    outputs = scene.effects.outputs
    outputs[scene.effects.names.dead_letters].append(Record(run.job_id.encode(), orjson.dumps(letter)))
