"""Records of the `leases` topic: one per live run, a tombstone when it is closed."""

from __future__ import annotations

import orjson

from noontide.core.run import Run, RunState

_NAMES = {
    "not_before_ms": "not_before",
    "reason": "reason",
    "waits_for": "waits_for",
    "worker": "worker",
    "granted_ms": "granted",
    "cancel": "cancel",
    "history": "history",
    "kept": "kept",
    "permits": "permits",
    "awaits": "awaits",
    "complete_by_ms": "complete_by",
}
"""Fields that are left out when they are empty, and their names in the record."""
_DEFAULTS = Run._field_defaults
_OPTIONAL = [(Run._fields.index(field), name, _DEFAULTS[field]) for field, name in _NAMES.items()]


def encode_lease(run: Run) -> bytes:
    """JSON of a live run; times are milliseconds since the epoch; empty fields are left out."""
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
    if run.etag:
        fields["etag"] = run.etag
    if run.lane:
        fields["lane"] = run.lane
        fields["priority"] = run.priority
    for index, name, default in _OPTIONAL:
        value = run[index]
        if value != default:
            fields[name] = value
    return orjson.dumps(fields)


def decode_lease(run_id: bytes, value: bytes) -> Run:
    """Inverse of `encode_lease`."""
    fields = orjson.loads(value)
    optional = {field: fields[name] for field, name in _NAMES.items() if name in fields}
    if "permits" in optional:
        optional["permits"] = tuple(optional["permits"])
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
        etag=fields.get("etag", ""),
        lane=fields.get("lane", ""),
        priority=fields.get("priority", 5),
        **optional,
    )
