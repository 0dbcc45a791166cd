"""Records of the `leases` topic: one per live run, a tombstone when it is closed.

Most runs differ from many others in three fields only; what all of those have in common is in a `RunForm`.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from noontide.core.run import Run, RunState

_NAMES = {
    "not_before_ms": "not_before",
    "reason": "reason",
    "waits_for": "waits_for",
    "queued_ms": "queued",
    "worker": "worker",
    "granted_ms": "granted",
    "cancel": "cancel",
    "history": "history",
    "kept": "kept",
    "permits": "permits",
    "awaits": "awaits",
    "complete_by_ms": "complete_by",
    "trace": "trace",
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


_run: Callable[..., Run] = tuple.__new__
_ETAG = Run._fields.index("etag")
assert Run._fields[:2] == ("run_id", "job_id")


def run_likeness(run: Run) -> object:
    """What runs alike have in common: all but the ids of run and job, and the version of the job. Equal = alike."""
    return run[2:_ETAG], run[_ETAG + 1 :]


class RunForm:
    """Live runs alike, each of a version of its job: as they are remembered, and as their leases say it.

    model: one of them; its own ids and version do not matter.
    """

    __slots__ = ("_before", "_behind", "_between", "_fields", "_rest")

    def __init__(self, model: Run) -> None:
        self._fields: tuple[object, ...] = model[2:_ETAG]
        self._rest: tuple[object, ...] = model[_ETAG + 1 :]
        lease = encode_lease(model._replace(job_id="", etag="-"))
        self._before, _, rest = lease.partition(b'"job_id":"')
        self._before += b'"job_id":"'
        self._between, _, self._behind = rest.partition(b'"etag":"-')  # in a text its quotes would be escaped
        self._between += b'"etag":"'

    def run(self, run_id: str, job_id: str, etag: str) -> Run:
        """One of them."""
        return _run(Run, (run_id, job_id) + self._fields + (etag,) + self._rest)  # faster than a display  # noqa: RUF005

    def lease(self, job_id: bytes, etag: bytes) -> bytes:
        """Its lease. Legal ids and versions need no escapes."""
        return b"%b%b%b%b%b" % (self._before, job_id, self._between, etag, self._behind)


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
