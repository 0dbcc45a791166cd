"""Where a claimed run goes: into its topic within this transaction, to its topic after the commit, or into a wait.

    registered topic, healthy      record and closed execution in the claim's own transaction: exactly once
    registered topic, sick         pending, with the reason; delivered in one transaction when it recovers
    any other topic                queued; sent after the commit by an idempotent producer: at least once
    HTTP target or handler         pending for the workers of its lane
"""

from __future__ import annotations

from typing import NamedTuple

from noontide.actors.effects import Effects, Send
from noontide.actors.world import Route, World
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.ports.record_log import Record, TopicPartition
from noontide.records import executions, state
from noontide.records.delivery import RECORD_OVERHEAD_BYTES, delivery_headers
from noontide.records.job_row import JobRow, TargetKind


class Claim(NamedTuple):
    """A run and what it was claimed with. fresh: it is not recorded as live yet (a claim of this very cycle)."""

    partition: int
    run: Run
    row: JobRow
    row_bytes: bytes
    fresh: bool


def hand_out(claim: Claim, world: World, effects: Effects) -> None:
    """Send a run on its way, or let it wait with a reason."""
    run, row = claim.run, claim.row
    if run.not_before_ms > world.now_ms or run.waits_for is not None:
        wait(claim, effects, reason=run.reason)
    elif row.target_kind != TargetKind.TOPIC:
        wait(claim, effects, reason="waits for a worker")
    elif (route := world.routes.get(row.target)) is None:
        _send_after_commit(claim, effects)
    elif (problem := _problem(route, row, used=effects.used[row.target])) is not None:
        wait(claim, effects, reason=f"topic {row.target}: {problem}")
    else:
        _deliver(claim, route, world, effects)


def wait(claim: Claim, effects: Effects, *, reason: str | None) -> None:
    """Keep a run live and say why. A wait that is already recorded with the same reason costs a memory change only."""
    run = claim.run._replace(reason=reason)
    if not claim.fresh and run.state is RunState.PENDING and reason == claim.run.reason:
        effects.run_changes.append((claim.partition, run.run_id, run))
    else:
        _open(claim, run, effects)


def _problem(route: Route, row: JobRow, *, used: int) -> str | None:
    if route.problem is not None:
        return route.problem
    if used >= route.allowance:
        return "one record at a time until it has recovered"
    size = len(row.key) + len(row.payload) + RECORD_OVERHEAD_BYTES
    if size > route.max_message_bytes:
        return f"a record of up to {size} bytes is larger than max.message.bytes = {route.max_message_bytes}"
    return None


def _deliver(claim: Claim, route: Route, world: World, effects: Effects) -> None:
    partition, run, row, _, fresh = claim
    effects.used[row.target] += 1
    effects.outputs[TopicPartition(row.target, row.key_hash % route.partitions)].append(user_record(run, row, attempt=1))
    times = {"due": run.due_ms, "start": run.start_ms, "claimed": run.claimed_ms, "ended": world.now_ms}
    line = executions.delivered(run_id=run.run_id, job_id=run.job_id, tenant=row.tenant, times=times, target=run.target)
    effects.record(run.run_id, line)
    effects.counts["succeeded"] += 1
    if not fresh:
        effects.close_run(partition, run)


def _send_after_commit(claim: Claim, effects: Effects) -> None:
    run = claim.run
    queued = run._replace(
        state=advance(run.state, RunEvent.HAND_OUT), attempt=run.attempt + 1, token=run.token + 1, not_before_ms=0, reason=None
    )
    _open(claim, queued, effects)
    effects.sends.append(send_of(claim.partition, queued, claim.row))


def send_of(partition: int, run: Run, row: JobRow) -> Send:
    """The record of a queued run, to be sent (again) outside of the transaction."""
    return Send(partition, run.run_id, row.target, user_record(run, row, attempt=run.attempt))


def user_record(run: Run, row: JobRow, *, attempt: int) -> Record:
    """What the target topic receives."""
    headers = delivery_headers(
        run_id=run.run_id.encode(), job_id=run.job_id.encode(), due_ms=run.due_ms, attempt=attempt
    )
    return Record(row.key, row.payload, headers)


def _open(claim: Claim, run: Run, effects: Effects) -> None:
    if not claim.fresh:
        effects.open_run(claim.partition, run, None, None)
        return
    headers = [("etag", claim.row.etag.encode()), ("created", b"%d" % claim.row.created_ms)]
    document = Record(state.RUN + run.run_id.encode(), claim.row.document, headers)
    effects.open_run(claim.partition, run, claim.row_bytes, document)
