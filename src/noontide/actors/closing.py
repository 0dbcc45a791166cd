"""A run is over, or an attempt of it is: the line of history, tombstones, the next attempt, and what waited for it."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from noontide.actors.effects import Scene
from noontide.actors.graph import tell_dependants
from noontide.actors.live_runs import LiveRuns
from noontide.actors.settings import SchedulerSettings
from noontide.actors.streaks import count_end
from noontide.actors.timelines import plan_of
from noontide.core.cursor import JobState
from noontide.core.definition import load_definition
from noontide.core.policies import Guarantee
from noontide.core.retry import backoff_ms, may_retry
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.core.tracing import result_context, result_span
from noontide.ports.record_log import Headers, Record
from noontide.records import executions, rows
from noontide.records.job_row import JobRow, decode_job_row
from noontide.records.results import encode_result
from noontide.records.state import decode_cursor

FAILED = "failed"
"""Reason of an attempt that failed and may be tried again."""
HISTORY_MAX = 20
"""Attempts of a run that its history names; of more, the first ones are left out."""


class Delivered(NamedTuple):
    """What became of a record sent after a commit. error: None when the topic has it."""

    run_id: str
    error: str | None
    retriable: bool


class Failure(NamedTuple):
    """Why an attempt failed. permanent: must not be tried again; wait_ms: the shortest wait the target asked for."""

    reason: str
    error: str
    permanent: bool = False
    wait_ms: int = 0


class Answered(NamedTuple):
    """What a worker brought back. result: JSON text."""

    result: bytes = b""
    truncated: bool = False
    error: str | None = None


NOTHING = Answered()


class Closing:
    """Closes the runs of one partition, and their attempts."""

    def __init__(self, partition: int, live: LiveRuns, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._partition = partition
        self._live = live

    def close(
        self,
        run: Run,
        scene: Scene,
        *,
        state: RunState,
        reason: str | None = None,
        answered: Answered = NOTHING,
        keep: bool = False,
    ) -> None:
        """Close a live run in a final state, and let go of those that waited for it. keep: its definition stays."""
        world, effects = scene
        run = effects.current(run) or run
        times = executions.Times(run.due_ms, run.start_ms, run.claimed_ms, world.now_ms)
        fields = executions.fields_of(run, state=state, ended_ms=world.now_ms, reason=reason)
        line = executions.closed(run.run_id, run.job_id, tenant=run.tenant, times=times, **fields)
        effects.record(run.run_id.encode(), line)
        if run.lane:
            self._publish_result(run, scene, state=state, answered=answered, reason=reason)
            if run.granted_ms:
                effects.ran.append((run.lane, world.now_ms - run.granted_ms))
        effects.close_run(self._partition, run, keep=keep)
        effects.counts[state] += 1
        if world.ties.dependants or world.ties.waves:
            tell_dependants(run.run_id, run.due_ms, state, scene)
        count_end(self._partition, run, state, self._live, scene)
        self._release(run, scene)

    def follow_up(self, run: Run, scene: Scene) -> None:
        """A live run was delivered and closed by its claim's own transaction: let go of what waited for it."""
        self._release(run, scene)
        self.schedule_after_completion(run, scene)

    def cancel(self, run: Run, scene: Scene, *, reason: str) -> None:
        """Close a run as cancelled; one that a worker holds is asked to stop first.

        A record already under way to a topic may still arrive.
        """
        if run.state is RunState.RUNNING and run.worker is not None:
            if run.cancel is None:
                scene.effects.open_run(self._partition, run._replace(cancel=reason))
                scene.effects.counts["cancels_requested"] += 1
            return
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
            reason = FAILED if event.retriable else "permanent"
            self.fail(run, Failure(reason, event.error, permanent=not event.retriable), scene)
        self.schedule_after_completion(run, scene)

    def fail(self, run: Run, failure: Failure, scene: Scene) -> None:
        """An attempt failed: wait for the next one, or give the run up. A run that was to be cancelled is."""
        row = decode_job_row(scene.effects.row_of(self._partition, run))
        job = load_definition(row.document)
        run = run._replace(history=_longer(run, failure, scene.world.now_ms))
        answered = Answered(error=failure.error)
        if run.cancel is not None:
            self.close(run, scene, state=advance(run.state, RunEvent.CANCEL), reason=run.cancel, answered=answered)
            return
        once = job.guarantee is Guarantee.AT_MOST_ONCE
        if once or failure.permanent or not may_retry(job.retry, attempt=run.attempt):
            last = "max_attempts" if failure.reason == FAILED else failure.reason
            reason = "outcome unknown" if once else last
            self._give_up(run, row, Failure(reason, failure.error), scene)
            return
        wait_ms = max(failure.wait_ms, backoff_ms(job.retry, run_id=run.run_id, attempt=run.attempt))
        self._retry(run, scene, at_ms=scene.world.now_ms + wait_ms, reason=failure.error)

    def _give_up(self, run: Run, row: JobRow, failure: Failure, scene: Scene) -> None:
        effects, forget_ms = scene.effects, scene.world.now_ms + self._settings.dead_retention_ms
        effects.keep_definition(self._partition, run, row, effects.row_of(self._partition, run))
        _dead_letter(run, row, scene, reason=failure.reason, error=failure.error)
        state, reason = advance(run.state, RunEvent.GIVE_UP), f"{failure.reason}: {failure.error}"
        self.close(run, scene, state=state, reason=reason, answered=Answered(error=failure.error), keep=True)
        effects.bury(self._partition, run, forget_ms=forget_ms)

    def _retry(self, run: Run, scene: Scene, *, at_ms: int, reason: str) -> None:
        state = advance(run.state, RunEvent.FAIL)
        waiting = run._replace(state=state, not_before_ms=at_ms, reason=reason[:500], worker=None, permits=())
        scene.effects.open_run(self._partition, waiting)
        scene.effects.counts["retries"] += 1

    def requeue(self, run: Run, scene: Scene, *, reason: str) -> None:
        """Nobody works on a run any more: ready again, by its place in the queue."""
        again = run._replace(state=advance(run.state, RunEvent.REQUEUE), worker=None, reason=reason, permits=())
        scene.effects.open_run(self._partition, again)

    def _publish_result(
        self, run: Run, scene: Scene, *, state: RunState, answered: Answered, reason: str | None
    ) -> None:
        value = encode_result(
            run,
            state=state,
            ended_ms=scene.world.now_ms,
            result=answered.result,
            error=answered.error or (reason if state is not RunState.SUCCEEDED else None),
            truncated=answered.truncated,
        )
        headers: Headers = ()
        if run.trace:
            context = result_context(run.run_id.encode(), run.token, run.trace)
            headers = (("traceparent", context.encode()),)
            span = result_span(run.run_id, state, scene.world.now_ms, token=run.token, trace=run.trace)
            scene.effects.spans.append(span)
        scene.effects.outputs[scene.effects.names.results].append(Record(run.job_id.encode(), value, headers))

    def _release(self, closed: Run, scene: Scene) -> None:
        for run in self._live.of_job(closed.job_id, scene.effects):
            if run.waits_for == closed.run_id:
                scene.effects.open_run(self._partition, run._replace(waits_for=None, reason=None))

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
        row = row or decode_job_row(effects.row_of(self._partition, run))
        plan = plan_of(row, run.job_id, world.config)
        if plan.after_completion_ms is None:
            return
        following = plan.after_completion(world.now_ms)
        if following is not None:
            due_ms, start_ms = following
            effects.put_cursor(self._partition, job_id, cursor._replace(due_ms=due_ms, start_ms=start_ms))


class Homes(NamedTuple):
    """Where the runs of a partition are kept and closed."""

    live: LiveRuns
    closing: Closing


def _longer(run: Run, failure: Failure, at_ms: int) -> str:
    """The history with one more attempt; the oldest go when there are too many."""
    attempt = {
        "attempt": run.attempt,
        "token": run.token,
        "worker": run.worker,
        "queued": run.queued_ms,
        "granted": run.granted_ms,
        "ended": at_ms,
        "reason": failure.reason,
        "error": failure.error[:300],
    }
    earlier = orjson.loads(f"[{run.history}]")[-HISTORY_MAX + 1 :]
    return orjson.dumps([*earlier, attempt]).decode()[1:-1]


def _dead_letter(run: Run, row: JobRow, scene: Scene, *, reason: str, error: str) -> None:
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
        "attempts": f"[{run.history}]",
        "at": scene.world.now_ms,
        "job": orjson.Fragment(row.document),
    }
    outputs = scene.effects.outputs
    outputs[scene.effects.names.dead_letters].append(Record(run.job_id.encode(), orjson.dumps(letter)))
