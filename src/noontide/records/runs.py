"""Records of `runs.<lane>`: invitations for workers to claim a run. The share group delivers them; the lease decides.

What is the same for every run of a job is prepared when the definition is accepted (`standing_part`), so that
publishing a run only puts bytes together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import orjson

from noontide.core.job import Job
from noontide.core.payload import member_texts
from noontide.core.policies import Guarantee
from noontide.core.tracing import parse_traceparent


class Invitation(NamedTuple):
    """A run to claim, as a worker reads it.

    slot: partition of `worker-events.<lane>` to answer on. due_ms, start_ms: nominal time and spread start.
    attempt: the attempt this invites to; max_attempts: attempts in all.
    target: {"handler": name} or {"http": {...}}. payload: JSON text of the user, byte for byte.
    timeout_ms: longest time of the attempt. lease_ms, heartbeat_ms: length of the lease, and how often to report.
    traceparent: trace context of the request that the run follows from, "" = none; see `core.tracing`.
    """

    run_id: str
    job_id: str
    tenant: str
    slot: int
    due_ms: int
    start_ms: int
    attempt: int
    max_attempts: int
    target: dict[str, object]
    payload: bytes
    timeout_ms: int
    lease_ms: int
    heartbeat_ms: int
    guarantee: Guarantee
    traceparent: str = ""


class _Wire(msgspec.Struct):
    run_id: str
    job_id: str
    tenant: str
    slot: int
    due: int
    attempt: int
    max_attempts: int
    target: dict[str, object]
    timeout_ms: int
    lease_ms: int
    heartbeat_ms: int
    payload: msgspec.Raw = msgspec.Raw(b"null")
    start_after: int | None = None
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    traceparent: str = ""


_decode = msgspec.json.Decoder(_Wire).decode


def standing_part(job: Job, document: bytes) -> bytes:
    """The members that all runs of a job have in common, as JSON text without braces."""
    return standing_part_of(job.id.encode(), standing_form(job, document))


def standing_part_of(job_id: bytes, form: bytes) -> bytes:
    """The standing part of a job among jobs alike. A legal id needs no escapes."""
    return b'"job_id":"%b",%b' % (job_id, form)


def standing_form(job: Job, document: bytes) -> bytes:
    """What the standing parts of jobs alike share."""
    common: dict[str, object] = {
        "tenant": job.tenant,
        "max_attempts": job.retry.max_attempts,
        "target": orjson.loads(bytes(member_texts(document)["target"])),
        "queue_ms": job.queue_deadline_ms,
        "timeout_ms": job.timeout_ms,
        "lease_ms": job.lease_ms,
        "heartbeat_ms": job.lease_ms // 3,
    }
    if job.guarantee is not Guarantee.AT_LEAST_ONCE:
        common["guarantee"] = job.guarantee
    return orjson.dumps(common)[1:-1]


def encode_invitation(
    run_id: str, *, slot: int, times: tuple[int, int], attempt: int, rest: bytes, payload: bytes
) -> bytes:
    """JSON of an invitation. times: due and start, ms; rest: the standing part; payload: spliced in unread."""
    return invitation_of(slot=slot, times=times, attempt=attempt)(run_id.encode(), rest, payload)


def invitation_of(*, slot: int, times: tuple[int, int], attempt: int) -> Callable[[bytes, bytes, bytes], bytes]:
    """As `encode_invitation`, for many runs of one instant: a function of run id, standing part and payload."""
    due_ms, start_ms = times
    start = b"" if start_ms == due_ms else b',"start_after":%d' % start_ms
    head = b'","slot":%d,"due":%d%b,"attempt":%d,' % (slot, due_ms, start, attempt)
    return lambda run_id, rest, payload: b'{"run_id":"%b%b%b,"payload":%b}' % (run_id, head, rest, payload)


def decode_invitation(value: bytes) -> Invitation:
    """Inverse of `encode_invitation`; raises ValueError for anything else."""
    wire = _decode(value)
    return Invitation(
        run_id=wire.run_id,
        job_id=wire.job_id,
        tenant=wire.tenant,
        slot=wire.slot,
        due_ms=wire.due,
        start_ms=wire.due if wire.start_after is None else wire.start_after,
        attempt=wire.attempt,
        max_attempts=wire.max_attempts,
        target=wire.target,
        payload=bytes(wire.payload),
        timeout_ms=wire.timeout_ms,
        lease_ms=wire.lease_ms,
        heartbeat_ms=wire.heartbeat_ms,
        guarantee=wire.guarantee,
        traceparent=parse_traceparent(wire.traceparent) if wire.traceparent else "",
    )
