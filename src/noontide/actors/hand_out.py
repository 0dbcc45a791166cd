"""Where a run goes: into its topic within this transaction, to its topic after the commit, or into a wait.

registered topic, healthy      record and closed execution in the claim's own transaction: exactly once
registered topic, sick         pending, with the reason; delivered in one transaction when it recovers
any other topic                queued; sent after the commit by an idempotent producer: at least once
HTTP target or handler         queued: offered on `runs.<lane>`, as long as the lane's window has room; else pending
"""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from noontide.actors.effects import Effects, Hold, Scene, Send
from noontide.actors.graph import tell_dependants
from noontide.actors.paces import put_off
from noontide.actors.timelines import loaded
from noontide.actors.world import Route
from noontide.core.run import Run, RunEvent, RunState, advance
from noontide.core.tracing import dispatch_span
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.delivery import RECORD_OVERHEAD_BYTES, delivery_headers, traceparent
from noontide.records.executions import Times, delivered
from noontide.records.job_row import KEYED, JobRow, TargetKind
from noontide.records.runs import encode_invitation

TOPIC = int(TargetKind.TOPIC)


class Claim(NamedTuple):
    """A run and what it was claimed with. recorded: as its lease has it; None for a claim of this very cycle."""

    partition: int
    run: Run
    row: JobRow
    recorded: Run | None


def deliver_now(name: str, job_id: str, row: JobRow, times: Times, scene: Scene, *, trace: str) -> bool:
    """Write a run's record and its history into this transaction, if its topic is registered and takes it now.

    trace: see `core.run.Run`.
    """
    world, effects = scene
    if row.target_kind != TOPIC or (route := world.routes.get(row.target)) is None:
        return False
    if route.problem is not None or _obstacle(route, row, used=effects.used[row.target]) is not None:
        return False
    effects.used[row.target] += 1
    run_id = name.encode()
    headers = delivery_headers(run_id=run_id, job_id=job_id.encode(), due_ms=times.due_ms, attempt=1, trace=trace)
    to = TopicPartition(row.target, row.key_hash % route.partitions)
    effects.outputs[to].append(Record(row.key, row.payload, headers))
    effects.record(run_id, delivered(name, job_id, tenant=row.tenant, target=row.target_text, times=times))
    effects.counts["succeeded"] += 1
    if trace:
        effects.spans.append(dispatch_span(name, row.target_text, times.start_ms, times.ended_ms, trace=trace))
    if world.ties.dependants:
        tell_dependants(name, times.due_ms, RunState.SUCCEEDED, scene)
    return True


def hand_out(claim: Claim, scene: Scene) -> bool:
    """Send a run on its way, or let it wait with a reason. True: it is delivered, and no longer live."""
    run, row, world = claim.run, claim.row, scene.world
    if run.not_before_ms > world.now_ms or run.waits_for is not None:
        wait(claim, scene.effects, reason=run.reason)
        return False
    if run.not_before_ms:  # from here on it waits for its target, not for a time
        run = run._replace(not_before_ms=0)
        claim = claim._replace(run=run)
    if row.target_kind != TOPIC:
        _offer(claim, scene)
    elif (route := world.routes.get(row.target)) is None:
        _send_after_commit(claim, scene.effects, now_ms=world.now_ms)
    elif deliver_now(run.run_id, run.job_id, row, _times(run, world.now_ms), scene, trace=run.trace):
        if claim.recorded is not None:
            scene.effects.close_run(claim.partition, run)
        return True
    else:
        obstacle = _obstacle(route, row, used=scene.effects.used[row.target])
        wait(claim, scene.effects, reason=f"topic {row.target}: {route.problem or obstacle}")
    return False


def _offer(claim: Claim, scene: Scene) -> None:
    """Publish a run to the workers of its lane, if it has its permits and the window has room."""
    world, effects = scene
    if claim.row.extras & KEYED or world.config.limits.ceilings or claim.run.awaits or claim.run.permits:
        claim = with_permits(claim, scene)
        if claim.run.awaits is not None:
            wait(claim, effects, reason=f"waits for a permit of {claim.run.awaits}")
            return
    run, row = claim.run, claim.row
    if run.run_id not in world.promised and effects.published[run.lane] >= world.rooms.get(run.lane, 0):
        wait(claim, effects, reason=f"ready in lane {run.lane}")
        return
    if world.paces and (waiting := put_off(run, scene)) is not None:
        scene.effects.limited = scene.effects.limited or bool(run.permits)
        wait(claim._replace(run=waiting), effects, reason=waiting.reason)
        return
    queued = run._replace(state=advance(run.state, RunEvent.HAND_OUT), queued_ms=world.now_ms, reason=None)
    hold = hold_of(claim.partition, row)
    invitation = encode_invitation(
        run.run_id,
        slot=effects.names.slot,
        times=(run.due_ms, run.start_ms),
        attempt=run.attempt + 1,
        rest=(row.standing + (f',"traceparent":"{run.trace}"' if run.trace else "")).encode(),
        payload=row.payload,
    )
    context = traceparent(run.run_id.encode(), run.trace, run.attempt + 1)
    record = Record(run.job_id.encode(), invitation, [("traceparent", context)])
    if run.trace:
        effects.spans.append(
            dispatch_span(run.run_id, run.target, run.start_ms, world.now_ms, trace=run.trace, attempt=run.attempt + 1)
        )
    topic = effects.names.runs(run.lane)
    effects.publish(claim.partition, queued, hold, record, topic)
    effects.published[run.lane] += run.run_id not in world.promised
    effects.used[topic.topic] += 1


def with_permits(claim: Claim, scene: Scene) -> Claim:
    """The claim with the permits its run has under today's limits, and the one that it has to wait for, if any.

    Permits are taken in one order, and what comes behind a missing one is given back: no two runs wait for each other.
    """
    run, row = claim.run, claim.row
    key = loaded(row.document).concurrency_key if row.extras & KEYED else None
    limiters = scene.world.config.limits.limiters_of(run.tenant, run.target, key)
    has = (*run.permits, scene.world.permitted.get(run.run_id))
    held = tuple(takewhile(has.__contains__, limiters))
    awaits = limiters[len(held)] if len(held) < len(limiters) else None
    if held or awaits or run.permits:
        scene.effects.limited = True
    return claim._replace(run=run._replace(permits=held, awaits=awaits))


def hold_of(partition: int, row: JobRow) -> Hold:
    """What the lease keeper needs to know of a run of this job."""
    return Hold(partition, row.queue_ms, row.lease_ms, row.timeout_ms, row.once, row.follows_completion)


def wait(claim: Claim, effects: Effects, *, reason: str | None) -> None:
    """Keep a run live and say why. A wait that is recorded already, but for its time, costs a memory change only."""
    run, recorded = claim.run._replace(reason=reason), claim.recorded
    if recorded is not None and run.state is RunState.PENDING and _timeless(run) == _timeless(recorded):
        effects.run_changes.append((claim.partition, run.run_id, run))
    else:
        effects.open_run(claim.partition, run)


def _timeless(run: Run) -> Run:
    return run._replace(not_before_ms=0)


def send_of(partition: int, run: Run, row: JobRow) -> Send:
    """The record of a queued run, to be sent (again) outside of the transaction."""
    headers = delivery_headers(
        run_id=run.run_id.encode(), job_id=run.job_id.encode(), due_ms=run.due_ms, attempt=run.attempt, trace=run.trace
    )
    return Send(partition, run.run_id, row.target, Record(row.key, row.payload, headers))


def _obstacle(route: Route, row: JobRow, *, used: int) -> str | None:
    if used >= route.allowance:
        return "one record at a time until it has recovered"
    size = len(row.key) + len(row.payload) + RECORD_OVERHEAD_BYTES
    if size > route.max_message_bytes:
        return f"a record of up to {size} bytes is larger than max.message.bytes = {route.max_message_bytes}"
    return None


def _times(run: Run, ended_ms: int) -> Times:
    return Times(run.due_ms, run.start_ms, run.claimed_ms, ended_ms)


def _send_after_commit(claim: Claim, effects: Effects, *, now_ms: int) -> None:
    run = claim.run
    queued = run._replace(
        state=advance(run.state, RunEvent.HAND_OUT),
        attempt=run.attempt + 1,
        token=run.token + 1,
        queued_ms=now_ms,
        not_before_ms=0,
        reason=None,
    )
    effects.open_run(claim.partition, queued)
    effects.sends.append(send_of(claim.partition, queued, claim.row))
    if run.trace:
        effects.spans.append(dispatch_span(run.run_id, run.target, run.start_ms, now_ms, trace=run.trace))
