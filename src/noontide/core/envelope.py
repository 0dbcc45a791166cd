"""What jobs of one kind share: a definition without its id, payload and schedule, read once and used again.

Systems that send many jobs send the same target and policies each time. Their texts together find what was read from
them; only ids, payloads and schedules are read for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import NamedTuple

import orjson

from noontide.core.job import Job
from noontide.core.limits import Limits
from noontide.core.occurrence import EXACT, RELAXED, Timing, lane_of
from noontide.core.payload import Texts
from noontide.core.schedule import OneOff, Schedule
from noontide.core.schedule_field import LocalTime

KEPT_MAX = 2_048
KEPT_MAX_BYTES = 1_024
"""Longer envelopes are read each time, so that what is kept stays within 16 MiB."""

VARYING = frozenset(("id", "payload", "schedule", "run_at"))
"""Members that are the job's own."""
_TIED = frozenset(("after", "idempotency_key"))
"""Members whose meaning depends on the id, or the id on them: definitions that have them are read whole."""
_SHARED: dict[str, Callable[[Job, object], None]] = {
    field.name: Job.__dict__[field.name].__set__ for field in fields(Job)
}
"""How each attribute that jobs of one kind share is set."""
_put_id, _put_payload, _put_schedule, _put_timing = (
    _SHARED.pop(name) for name in ("id", "payload", "schedule", "timing")
)
_put_lane = _SHARED["lane"]

Key = tuple[object, ...]
Said = tuple[tuple[str, ...], bytes]
PAYLOAD_MARK = b',"payload":'
"""What precedes the payload in a normalised document; there it follows id and tenant, which cannot contain this."""


class Envelope(NamedTuple):
    """One envelope. before, behind: the document's members on either side of the schedule, with their commas.

    values: of the attributes in _SHARED. timing: None = not said, which follows the schedule.
    free_lane: no lane was said, which then follows timing and schedule.
    local: how its local times are read.
    """

    values: tuple[object, ...]
    timing: Timing | None
    free_lane: bool
    local: LocalTime
    tenant: bytes
    before: bytes
    behind: bytes

    def job(self, job_id: str, payload: bytes, schedule: Schedule | None) -> Job:
        """A job in this envelope; its slots are filled directly, which is cheaper than the constructor."""
        job = object.__new__(Job)
        for put, value in zip(_SHARED.values(), self.values, strict=True):
            put(job, value)
        _put_id(job, job_id)
        _put_payload(job, payload)
        _put_schedule(job, schedule)
        timing = self.timing or (EXACT if isinstance(schedule, OneOff) else RELAXED)
        _put_timing(job, timing)
        if self.free_lane:
            _put_lane(job, lane_of(timing, schedule))
        return job

    def document(self, job_id: str, payload: bytes | None, schedule: object) -> bytes:
        """The normalised document; payload: None when none was given; schedule: as the document says it."""
        said = b"" if payload is None else PAYLOAD_MARK + payload
        return opening(job_id.encode(), self.tenant) + said + self.ending(orjson.dumps(schedule))

    def ending(self, schedule: bytes) -> bytes:
        """The document behind its payload; schedule: JSON text."""
        return b'%b,"schedule":%b%b}' % (self.before, schedule, self.behind)


def opening(job_id: bytes, tenant: bytes) -> bytes:
    """A normalised document up to its payload. tenant: JSON text. A legal id needs no escapes."""
    return b'{"id":"%b","tenant":%b' % (job_id, tenant)


class Envelopes:
    """The envelopes in use. One that was met once is only noted: a kind of job that never repeats is not worth it."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[Key, Envelope | None] = {}

    def find(self, key: Key | None) -> Envelope | None:
        """The envelope, None when it is not known."""
        return None if key is None else self._kept.get(key)

    def keep(self, key: Key, job: Job, document: Mapping[str, object]) -> None:
        """Remember the envelope of a job that was read whole without any finding, from its second time on."""
        if key in self._kept:
            self._kept[key] = _envelope(job, document)
            return
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[key] = None


def envelope_key(texts: Texts, *, limits: Limits, tenant: str | None, topic_prefix: str) -> Key | None:
    """Everything the envelope depends on; None when it must be read each time. texts: of the definition's members."""
    if len(texts) > limits.fields_max:
        return None
    shared = {name: text for name, text in texts.items() if name not in VARYING}
    names, said = said_by(shared)
    if not _TIED.isdisjoint(names) or len(said) + sum(map(len, names)) > KEPT_MAX_BYTES:
        return None
    return limits, tenant, topic_prefix, names, said


def said_by(shared: Texts) -> Said:
    """What the members of an envelope say, to tell it from others."""
    return tuple(shared), _BETWEEN.join(shared.values())


_BETWEEN = b"\0"
"""No JSON text contains it."""


def _envelope(job: Job, document: Mapping[str, object]) -> Envelope:
    members = list(document.items())
    place = list(document).index("schedule")
    return Envelope(
        values=tuple(getattr(job, name) for name in _SHARED),
        timing=job.timing if "timing" in document else None,
        free_lane="lane" not in document,
        local=LocalTime(job.timezone, job.dst),
        tenant=orjson.dumps(job.tenant),
        before=_joined(members[:place]),
        behind=_joined(members[place + 1 :]),
    )


def _joined(members: list[tuple[str, object]]) -> bytes:
    """The members as text, each behind a comma."""
    own = {name: value for name, value in members if name not in ("id", "tenant", "payload")}
    return b"," + orjson.dumps(own)[1:-1] if own else b""
