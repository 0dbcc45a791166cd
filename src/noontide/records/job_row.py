"""The job's row in the index: what a dispatch needs, ahead of the accepted document, so that firing parses nothing."""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import partial
from typing import NamedTuple

import orjson

from noontide.core.definition import load_definition
from noontide.core.envelope import PAYLOAD_MARK, opening
from noontide.core.job import Job
from noontide.core.occurrence import spread_offset
from noontide.core.partitioner import murmur2
from noontide.core.payload import NO_PAYLOAD, member_texts
from noontide.core.policies import Guarantee, MisfireRule, Overlap
from noontide.core.schedule import OneOff
from noontide.core.targets import HandlerTarget, HttpTarget, TopicTarget
from noontide.records.runs import standing_form, standing_part_of

_COMMON = struct.Struct(">BBBBBBBqII")  # with the spread after it, what `mark_of` compares
_OWN = struct.Struct(">IIIIII")
_OTHER, _END = struct.Struct(">IIII"), struct.Struct(">qI")
_HEADER = struct.Struct(_COMMON.format + _OWN.format[1:] + _OTHER.format[1:] + _END.format[1:])
_COMMON_BYTES, _HEADER_BYTES = _COMMON.size, _HEADER.size
_pack_own, _pack_end = _OWN.pack, _END.pack
_own_of = partial(_OWN.unpack_from, offset=_COMMON_BYTES)
_OTHER_AT = _COMMON_BYTES + _OWN.size
_END_AT = _OTHER_AT + _OTHER.size
_strings_bytes_of = partial(struct.Struct(">I").unpack_from, offset=_END_AT + 8)
_shape_bytes_of = partial(struct.Struct(">I").unpack_from, offset=_COMMON_BYTES + 8)
_new = tuple.__new__  # rows are made by the hundred thousand: half the cost of `_make`
_FOREVER_MS, _UINT_MAX = 2**62, 2**32 - 1
_MISFIRE = tuple(MisfireRule)
_OVERLAP = tuple(Overlap)
_CALENDARS = 1
_EXTRAS_AT = 6
KEYED, FOLLOWS, EXPECTED, COUNTED, TRACED = 1, 2, 4, 8, 16
"""Bits of `extras`: the job has a concurrency key, upstreams, a `complete_by`, a `pause_after_failures`, a trace."""
_TRACE = ',"traceparent":"'
_TRACE_CHARS = 55
_SCHEMES = ("kafka://", "", "handler:")


class TargetKind(IntEnum):
    """Where a run goes."""

    TOPIC = 0
    HTTP = 1
    HANDLER = 2


class JobRow(NamedTuple):
    """A job, ready to fire.

    calendars: 1 when occurrences have to be checked against calendars (then the document is parsed).
    once: 1 when a run must never start twice. priority: 0 .. 9.
    extras: bits for what few jobs have; then the document says more.
    timeout_ms, lease_ms, queue_ms: of runs that workers take. invitation: what their records have in common.
    misfire, overlap: positions in the enums; see `misfire_rule`, `overlap_rule`.
    spread_ms: fixed distance from due to start; ends_at_ms: last instant of the schedule; max_runs: 0 = no bound.
    key_hash: murmur2 of the record key, to be taken modulo the topic's partitions.
    payload: the bytes given by the user; document: the accepted definition (JSON).
    """

    target_kind: int
    misfire: int
    overlap: int
    calendars: int
    once: int
    priority: int
    extras: int
    ends_at_ms: int
    max_runs: int
    grace_ms: int
    spread_ms: int
    key_hash: int
    run_all_max: int
    timeout_ms: int
    lease_ms: int
    queue_ms: int
    created_ms: int
    tenant: str
    target: str
    schedule_key: str
    lane: str
    key: bytes
    etag: str
    invitation: str
    payload: bytes
    document: bytes

    @property
    def target_text(self) -> str:
        """The target as history names it: kafka://topic, a URL, or handler:name."""
        return target_text(self.target_kind, self.target)

    @property
    def misfire_rule(self) -> MisfireRule:
        """What happens to an occurrence later than its grace."""
        return _MISFIRE[self.misfire]

    @property
    def overlap_rule(self) -> Overlap:
        """What happens when an earlier run is still live."""
        return _OVERLAP[self.overlap]

    @property
    def follows_completion(self) -> bool:
        """Whether the next occurrence counts from the end of the run."""
        return self.schedule_key.startswith("after:")

    @property
    def trace(self) -> str:
        """Trace context of the request that its run follows from; "" = none."""
        return self.invitation[-_TRACE_CHARS - 1 : -1] if self.extras & TRACED else ""

    @property
    def standing(self) -> str:
        """The invitation without the trace, which each run has for itself."""
        return self.invitation.rpartition(_TRACE)[0] if self.extras & TRACED else self.invitation

    def traced(self, trace: str) -> JobRow:
        """As it is for a run that follows from another request; "" = one without a trace."""
        extras, standing = self.extras & ~TRACED, self.standing
        if trace:
            extras, standing = extras | TRACED, f'{standing}{_TRACE}{trace}"'
        return self._replace(extras=extras, invitation=standing)


def target_text(kind: int, target: str) -> str:
    """A target as history names it."""
    return _SCHEMES[kind] + target


def encode_job_row(job: Job, document: bytes, *, etag: str, created_ms: int, trace: str = "") -> bytes:
    """Row of an accepted job. `document` is the normalised definition, which holds the payload's bytes.

    trace: of the request, as `core.tracing` keeps it; for the one run of a one-off.
    """
    schedule_key, period_ms = ("", None) if job.schedule is None else (job.schedule.key, job.schedule.period_ms())
    job_id = job.id.encode()
    spread_ms = spread_offset(job.id, timing=job.timing, period_ms=period_ms)
    own = Own(
        job_id, hash_of(job_id), spread_ms, schedule_key.encode(), etag.encode(), created_ms,
        document, *_payload_in(document, job),
    )  # fmt: skip
    return row_form(job, document, trace if isinstance(job.schedule, OneOff) else "").row(own)


class RowForm(NamedTuple):
    """What the rows of jobs alike share, which may differ in id, payload and schedule; see `row_form`.

    common, other: parts of the header. before, behind: what stands around the schedule's key.
    key: of the record, None = the job's id. standing: see `records.runs.standing_form`; empty without invitations.
    """

    common: bytes
    other: bytes
    before: bytes
    behind: bytes
    key: bytes | None
    standing: bytes

    def row(self, own: Own) -> bytes:
        """The row of one job."""
        job_id, key_hash, spread_ms, schedule_key, etag, created_ms, document, payload_at, size = own
        shape, key = b"%b%b%b" % (self.before, schedule_key, self.behind), job_id
        if self.key is not None:
            key, key_hash = self.key, hash_of(self.key)
        standing = self.standing and standing_part_of(job_id, self.standing)
        strings = b"%b\0%b\0%b\0%b" % (shape, key, etag, standing)
        length = len(strings)
        middle = _pack_own(spread_ms, key_hash, len(shape), len(key), _HEADER_BYTES + length + payload_at, size)
        return b"%b%b%b%b%b%b" % (self.common, middle, self.other, _pack_end(created_ms, length), strings, document)


class Own(NamedTuple):
    """What a row's job has of its own among jobs alike.

    key_hash: of its id, see `JobRow`. payload_at, payload_size: where its payload is in the document; no size = none.
    """

    job_id: bytes
    key_hash: int
    spread_ms: int
    schedule_key: bytes
    etag: bytes
    created_ms: int
    document: bytes
    payload_at: int
    payload_size: int


def row_form(job: Job, document: bytes, trace: str = "") -> RowForm:
    """The form of a job's row and of those of jobs alike."""
    kind, target, key = _target(job)
    lane = "" if kind == TargetKind.TOPIC else job.lane
    common = _COMMON.pack(
        kind,
        _MISFIRE.index(job.misfire.rule),
        _OVERLAP.index(job.overlap),
        _CALENDARS if job.calendar.exclude or job.calendar.include else 0,
        1 if job.guarantee is Guarantee.AT_MOST_ONCE else 0,
        job.priority,
        _extras(job) | (TRACED if trace else 0),
        _FOREVER_MS if job.ends_at_ms is None else job.ends_at_ms,
        job.max_runs or 0,
        job.misfire.grace_ms,
    )
    other = _OTHER.pack(
        job.misfire.run_all_max,
        min(job.timeout_ms, _UINT_MAX),
        min(job.lease_ms, _UINT_MAX),
        min(job.queue_deadline_ms, _UINT_MAX),
    )
    return RowForm(
        common,
        other,
        before=b"%b\0%b\0" % (job.tenant.encode(), target.encode()),
        behind=b"\0" + lane.encode(),
        key=key,
        standing=(standing_form(job, document) if lane else b"") + (f'{_TRACE}{trace}"'.encode() if trace else b""),
    )


def hash_of(key: bytes) -> int:
    """The `key_hash` of a record key; see `JobRow`."""
    return murmur2(key) & 0x7FFFFFFF


def _payload_in(document: bytes, job: Job) -> tuple[int, int]:
    """(place, length) of the payload's bytes; no length when none was given."""
    place = len(opening(job.id.encode(), orjson.dumps(job.tenant))) + len(PAYLOAD_MARK)
    if document.startswith(PAYLOAD_MARK + job.payload, place - len(PAYLOAD_MARK)):
        return place, len(job.payload)
    place = -1 if job.payload == NO_PAYLOAD else document.rfind(job.payload)
    return (place, len(job.payload)) if place >= 0 else (0, 0)


def decode_job_row(row: bytes) -> JobRow:
    """Inverse of `encode_job_row`."""
    fields = _HEADER.unpack_from(row)
    payload_at, size, length = fields[14], fields[15], fields[21]
    start = _HEADER_BYTES + length
    tenant, target, schedule_key, lane, key, etag, invitation = row[_HEADER_BYTES:start].decode().split("\0")
    return _new(
        JobRow,
        (
            *fields[:12],
            *fields[16:21],
            tenant,
            target,
            schedule_key,
            lane,
            key.encode(),
            etag,
            invitation,
            row[payload_at : payload_at + size] or NO_PAYLOAD,
            row[start:],
        ),
    )


def has_calendars(row: bytes) -> bool:
    """Whether the occurrences of a row's job depend on calendars, without decoding it."""
    return row[3] == _CALENDARS


def has_extra(row: bytes, bit: int) -> bool:
    """Whether a row's job has one of the `extras`, without decoding it."""
    return len(row) > _EXTRAS_AT and bool(row[_EXTRAS_AT] & bit)


def _extras(job: Job) -> int:
    return (
        (KEYED if job.concurrency_key is not None else 0)
        | (FOLLOWS if job.after else 0)
        | (EXPECTED if job.complete_by_ms is not None else 0)
        | (COUNTED if job.pause_after_failures is not None else 0)
    )


class Likeness(NamedTuple):
    """What decides how a job fires and what its runs may do; see `JobRow`.

    Jobs alike differ in id, key, version and payload only.
    """

    target_kind: int
    calendars: int
    once: int
    priority: int
    extras: int
    ends_at_ms: int
    max_runs: int
    grace_ms: int
    spread_ms: int
    timeout_ms: int
    lease_ms: int
    queue_ms: int
    tenant: str
    target: str
    schedule_key: str
    lane: str

    @property
    def target_text(self) -> str:
        """See `JobRow.target_text`."""
        return _SCHEMES[self.target_kind] + self.target


def mark_of(row: bytes) -> bytes:
    """The likeness of a row, encoded: equal bytes are equal likenesses."""
    shape = row[_HEADER_BYTES : _HEADER_BYTES + _shape_bytes_of(row)[0]]
    return b"%b%b%b" % (row[: _COMMON_BYTES + 4], row[_OTHER_AT:_END_AT], shape)


def likeness_of(row: bytes) -> Likeness:
    """The likeness of a row."""
    kind, _, _, calendars, once, priority, extras, ends_at_ms, max_runs, grace_ms = _COMMON.unpack_from(row)
    spread_ms, _, shape, *_ = _own_of(row)
    _, timeout_ms, lease_ms, queue_ms = _OTHER.unpack_from(row, _OTHER_AT)
    tenant, target, schedule_key, lane = row[_HEADER_BYTES : _HEADER_BYTES + shape].decode().split("\0")
    return Likeness(
        kind, calendars, once, priority, extras, ends_at_ms, max_runs, grace_ms, spread_ms,
        timeout_ms, lease_ms, queue_ms, tenant, target, schedule_key, lane,
    )  # fmt: skip


class Outlook(NamedTuple):
    """What the times to come of a job depend on, and to whom they belong; see `JobRow`."""

    target_kind: int
    calendars: int
    ends_at_ms: int
    max_runs: int
    spread_ms: int
    tenant: str
    target: str
    schedule_key: str
    lane: str


def outlook_of(row: bytes) -> Outlook:
    """The outlook of a row, without decoding the rest."""
    kind, _, _, calendars, _, _, _, ends_at_ms, max_runs, _ = _COMMON.unpack_from(row)
    spread_ms, _, shape, *_ = _own_of(row)
    return Outlook(
        kind, calendars, ends_at_ms, max_runs, spread_ms,
        *row[_HEADER_BYTES : _HEADER_BYTES + shape].decode().split("\0"),
    )  # fmt: skip


def own_of(row: bytes) -> tuple[int, bytes, bytes]:
    """What is the job's own in a row: (key_hash, key, payload), see `JobRow`."""
    _, key_hash, shape, key, payload_at, size = _own_of(row)
    key_at = _HEADER_BYTES + shape + 1
    return key_hash, row[key_at : key_at + key], row[payload_at : payload_at + size] or NO_PAYLOAD


def offered_of(row: bytes) -> tuple[bytes, bytes, bytes]:
    """What workers are told of the job itself: (etag, invitation, payload), see `JobRow`."""
    _, _, shape, key, payload_at, size = _own_of(row)
    etag_at = _HEADER_BYTES + shape + key + 2
    etag, _, invitation = row[etag_at : _HEADER_BYTES + _strings_bytes_of(row)[0]].partition(b"\0")
    return etag, invitation, row[payload_at : payload_at + size] or NO_PAYLOAD


def _target(job: Job) -> tuple[TargetKind, str, bytes | None]:
    """Its kind, its name, and the record key if that is not the job's id."""
    match job.target:
        case TopicTarget(name=name, key=key):
            return TargetKind.TOPIC, name, None if key is None else key.encode()
        case HttpTarget(url=url):
            return TargetKind.HTTP, url.partition("?")[0], None  # for history: a query may hold secrets
        case HandlerTarget(name=name):
            return TargetKind.HANDLER, name, None


def with_payload(row: bytes, job_id: str, payload: bytes) -> bytes:
    """The same job with another payload, for one run by hand."""
    old = decode_job_row(row)
    members = {name: orjson.Fragment(bytes(text)) for name, text in member_texts(old.document).items()}
    document = orjson.dumps({**members, "payload": orjson.Fragment(payload)})
    return encode_job_row(
        load_definition(document), document, etag=old.etag, created_ms=old.created_ms, trace=old.trace
    )
