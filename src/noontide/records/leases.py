"""Records of the `leases` topic: one per live run, a tombstone when it is closed."""

from __future__ import annotations

import orjson

from noontide.core.run import Run, RunState


def encode_lease(run: Run) -> bytes:
    """JSON of a live run; times are milliseconds since the epoch; zero and absent fields are left out."""
    fields: dict[str, object] = {
        "state": run.state,
        "job_id": run.job_id,
        "tenant": run.tenant,
        "due": run.due_ms,
        "start": run.start_ms,
        "claimed": run.claimed_ms,
        "target": run.target,
        "attempt": run.attempt,
        "token": run.token,
    }
    if run.not_before_ms:
        fields["not_before"] = run.not_before_ms
    if run.reason is not None:
        fields["reason"] = run.reason
    if run.waits_for is not None:
        fields["waits_for"] = run.waits_for
    return orjson.dumps(fields)


def decode_lease(run_id: bytes, value: bytes) -> Run:
    """Inverse of `encode_lease`."""
    fields = orjson.loads(value)
    return Run(
        run_id=run_id.decode(),
        job_id=fields["job_id"],
        tenant=fields["tenant"],
        state=RunState(fields["state"]),
        due_ms=fields["due"],
        start_ms=fields["start"],
        claimed_ms=fields["claimed"],
        target=fields["target"],
        attempt=fields["attempt"],
        token=fields["token"],
        not_before_ms=fields.get("not_before", 0),
        reason=fields.get("reason"),
        waits_for=fields.get("waits_for"),
    )
