"""Records on `requests.<domain>`: what the outside world asks for, told apart by the header `kind`.

    kind                value                                                      null value
    define (default)    the definition of the job                                  delete
    delete              nothing, or {"tenant"}                                     delete
    trigger             {"payload", "reason"}, both optional                       trigger
    cancel              {"run_id", "reason"}; without run_id every live run        cancel
    backfill            {"from", "to", "overlap", "reprocess", "dry_run", "max"}   refused
    redrive             {"run_id"}, or {"from", "to", "max"}: dead runs by time    refused

The key is the job id. Of a header that is given twice the last one counts; headers nobody knows are let pass.
CloudEvents: in binary mode (`ce_*` headers) the value is as above; in structured mode (`content-type:
application/cloudevents+json`) it is the text of the envelope's `data`, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from noontide.core.errors import InvalidDefinition
from noontide.core.fields import Findings, Reader, boolean, integer, members, one_of, prose, several, text
from noontide.core.ids import JOB_ID_FORM, is_job_id, parse_job_id, parse_run_id
from noontide.core.instants import parse_instant
from noontide.core.limits import DEFAULT_LIMITS, KIB, Limits
from noontide.core.payload import TooLarge, decode_members, member_texts, payload_text
from noontide.core.policies import Overlap
from noontide.records.request_headers import Terms, read_headers, read_terms

CLOUD_EVENT_MAX_BYTES = 16 * KIB  # the envelope of a structured CloudEvent, besides the definition
MEMBERS_MAX = 1_000
"""Jobs of one re-run of a subtree."""
T = TypeVar("T")
_JSON_TYPE = re.compile(r"(?:application|text)/(?:[a-z0-9.+-]+\+)?json", re.ASCII).fullmatch
_OFFSET_AT_END = re.compile(r"(?:[Zz]|[+-]\d\d:\d\d)\Z").search


class Kind(StrEnum):
    """What a request asks for."""

    DEFINE = "define"
    DELETE = "delete"
    TRIGGER = "trigger"
    CANCEL = "cancel"
    BACKFILL = "backfill"
    REDRIVE = "redrive"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What all requests have."""

    job_id: str
    terms: Terms

    @property
    def if_match(self) -> str | None:
        """ETag the job must have; see Terms."""
        return self.terms.if_match


@dataclass(frozen=True, slots=True, kw_only=True)
class Define(_Asked):
    """Create or replace the job. document: the definition as it was sent, still to be read by `parse_definition`."""

    document: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(_Asked):
    """Delete the job; live runs are finished, no new one is claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(_Asked):
    """Run it now, besides its schedule. payload: JSON text instead of the job's own; None = the job's own.

    due_ms: the logical time it runs for; None = now. members: jobs downstream that run again after it, for that time.
    """

    payload: bytes | None
    reason: str
    due_ms: int | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(_Asked):
    """End a live run. run_id: None = every live run of the job."""

    run_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill(_Asked):
    """Make the runs of past occurrences with from_ms <= due < to_ms.

    overlap: among the runs of the backfill; None = the job's own rule.
    reprocess: new run ids for occurrences that have run already. dry_run: only say what would be made.
    max_runs: refused when the range has more.
    """

    from_ms: int
    to_ms: int
    overlap: Overlap | None
    reprocess: bool
    dry_run: bool
    max_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive(_Asked):
    """Start dead runs again under their own ids: one by id, or those that ended with from_ms <= end < to_ms.

    run_id: None = by time. from_ms, to_ms: None = no bound. max_runs: at most so many, the oldest first.
    """

    run_id: str | None
    from_ms: int | None
    to_ms: int | None
    max_runs: int


Request = Define | Delete | Trigger | Cancel | Backfill | Redrive

_OTHER_WORDS = {"note": "reason", "max_runs": "max"}
"""Words of definitions that mean the same here."""
_COMMON = ("tenant", "idempotency_key")
_FIELDS: dict[Kind, tuple[str, ...]] = {
    Kind.DELETE: _COMMON,
    Kind.TRIGGER: (*_COMMON, "payload", "reason", "due", "members"),
    Kind.CANCEL: (*_COMMON, "run_id", "reason"),
    Kind.BACKFILL: (*_COMMON, "from", "to", "overlap", "reprocess", "dry_run", "max"),
    Kind.REDRIVE: (*_COMMON, "run_id", "from", "to", "max"),
}
_read_kind, _read_overlap = one_of(Kind), one_of(Overlap)


def decode_request(
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    limits: Limits = DEFAULT_LIMITS,
) -> Request:
    """The request that a record is. A definition's body is passed on unread.

    Raises InvalidDefinition, nothing else: problems of the key point to "/key", of headers to "/headers/<name>".
    Unknown members of commands are refused: nobody looks at a command again, so a misspelt bound must not be dropped.
    """
    job_id = _job_id(key)
    said = read_headers(headers)
    kind = _read_kind(said["kind"], "/headers/kind") if "kind" in said else Kind.DEFINE
    terms = read_terms(said)
    if value is None:
        return _without_value(job_id, kind, terms, limits)
    body = _body(value, said, limits)
    if kind is Kind.DEFINE:
        return Define(job_id=job_id, terms=terms, document=body)
    return _Command(job_id, kind, body, limits).request(terms)


def _job_id(key: bytes | None) -> str:
    if not key:
        raise InvalidDefinition.of("/key", f"is missing: the key of a request is the job id, {JOB_ID_FORM}")
    try:
        job_id = key.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidDefinition.of("/key", f"is not UTF-8: the key of a request is the job id, {JOB_ID_FORM}") from None
    if not is_job_id(job_id):
        raise InvalidDefinition.of("/key", f"is not a job id: {JOB_ID_FORM}")
    return job_id


def _without_value(job_id: str, kind: Kind, terms: Terms, limits: Limits) -> Request:
    if kind in (Kind.DEFINE, Kind.DELETE):
        return Delete(job_id=job_id, terms=terms)
    return _Command(job_id, kind, b"{}", limits).request(terms)


def _body(value: bytes, said: dict[str, str], limits: Limits) -> bytes:
    """The value, out of its CloudEvent if it came in one."""
    if "content-type" not in said:
        _check_size(value, limits.definition_max_bytes)
        return value
    media_type, _, parameters = said["content-type"].lower().partition(";")
    media_type = media_type.strip()
    charset = re.search(r'charset\s*=\s*"?([^";\s]+)', parameters)
    if charset and charset[1] not in ("utf-8", "utf8", "us-ascii"):
        raise InvalidDefinition.of("/headers/content-type", "must be JSON in UTF-8")
    if media_type == "application/cloudevents+json":
        return _cloud_event_data(value, limits)
    if not _JSON_TYPE(media_type) or media_type.startswith("application/cloudevents"):
        raise InvalidDefinition.of("/headers/content-type", "must be application/json or application/cloudevents+json")
    _check_size(value, limits.definition_max_bytes)
    return value


def _cloud_event_data(value: bytes, limits: Limits) -> bytes:
    _check_size(value, limits.definition_max_bytes + CLOUD_EVENT_MAX_BYTES)
    roomier = Limits(
        payload_max_bytes=limits.definition_max_bytes, envelope_max_bytes=CLOUD_EVENT_MAX_BYTES,
        depth_max=limits.depth_max + 1,
    )  # fmt: skip
    envelope = decode_members(value, limits=roomier)
    if "data_base64" in envelope.values:
        raise InvalidDefinition.of("/data_base64", 'is not accepted: put the definition into "data" as JSON')
    if "data" not in envelope.texts:
        raise InvalidDefinition.of("/data", "is missing: it holds the definition or the command")
    return bytes(envelope.texts["data"])


def _check_size(value: bytes, most: int) -> None:
    if len(value) > most:
        raise TooLarge.of("", f"is {len(value)} bytes, at most {most} are accepted")


class _Command:
    """The value of a request that is no definition."""

    __slots__ = ("_body", "_findings", "_given", "_job_id", "_kind", "_limits")

    def __init__(self, job_id: str, kind: Kind, body: bytes, limits: Limits) -> None:
        self._job_id, self._kind, self._body, self._limits = job_id, kind, body, limits
        self._findings = Findings(limits)
        values = decode_members(b"{}" if kind is Kind.DELETE and body == b"null" else body, limits=limits).values
        for other, word in _OTHER_WORDS.items():
            if word in _FIELDS[kind] and other in values and word not in values:
                values[word] = values.pop(other)
        self._given = members(values, "", _FIELDS[kind], self._findings)

    def request(self, terms: Terms) -> Request:
        """The request; InvalidDefinition with all its problems."""
        request = self._read(self._completed(terms))
        problems = (*self._findings.problems, *self._findings.unknown)
        if problems:
            raise InvalidDefinition(problems)
        return request

    def _completed(self, terms: Terms) -> Terms:
        """The terms with what the body says of them."""
        line = text(self._limits.text_max_chars)
        tenant = self._field("tenant", line, terms.tenant)
        key = self._field("idempotency_key", line, terms.idempotency_key)
        return Terms(
            if_match=terms.if_match, must_be_new=terms.must_be_new, tenant=tenant, idempotency_key=key,
            wants_verdict=terms.wants_verdict, actor=terms.actor, traceparent=terms.traceparent,
        )  # fmt: skip

    def _read(self, terms: Terms) -> Request:
        match self._kind:
            case Kind.TRIGGER:
                return self._trigger(terms)
            case Kind.CANCEL:
                return Cancel(job_id=self._job_id, terms=terms, run_id=self._run_id(), reason=self._reason())
            case Kind.BACKFILL:
                return self._backfill(terms)
            case Kind.REDRIVE:
                return self._redrive(terms)
            case _:
                return Delete(job_id=self._job_id, terms=terms)

    def _trigger(self, terms: Terms) -> Trigger:
        return Trigger(
            job_id=self._job_id,
            terms=terms,
            payload=self._payload(),
            reason=self._reason(),
            due_ms=self._field("due", _absolute_instant, None),
            members=self._field("members", several(parse_job_id, MEMBERS_MAX), None) or (),
        )

    def _backfill(self, terms: Terms) -> Backfill:
        from_ms, to_ms = self._range(required=True)
        return Backfill(
            job_id=self._job_id,
            terms=terms,
            from_ms=from_ms or 0,
            to_ms=to_ms or 0,
            overlap=self._field("overlap", _read_overlap, None),
            reprocess=self._flag("reprocess"),
            dry_run=self._flag("dry_run"),
            max_runs=self._max_runs(),
        )

    def _redrive(self, terms: Terms) -> Redrive:
        run_id = self._run_id()
        from_ms, to_ms = self._range(required=False)
        if run_id is not None and not {"from", "to", "max"}.isdisjoint(self._given):
            self._findings.refuse("/run_id", 'is given beside "from", "to" or "max": one run, or a range of time')
        if {"run_id", "from", "to"}.isdisjoint(self._given):
            self._findings.refuse("", 'must have "run_id", or "from" or "to" (when the runs ended)')
        return Redrive(
            job_id=self._job_id, terms=terms, run_id=run_id, from_ms=from_ms, to_ms=to_ms, max_runs=self._max_runs()
        )

    def _field(self, name: str, reader: Reader[T], default: T | None) -> T | None:
        if name not in self._given:
            return default
        return self._findings.read(reader, self._given[name], f"/{name}")

    def _flag(self, name: str) -> bool:
        return self._field(name, boolean, None) or False

    def _reason(self) -> str:
        return self._field("reason", prose(self._limits.note_max_chars), "") or ""

    def _max_runs(self) -> int:
        most = self._limits.backfill_max_runs
        return self._field("max", integer(1, most), most) or most

    def _payload(self) -> bytes | None:
        raw = member_texts(self._body).get("payload")
        return None if raw is None else payload_text(raw, limits=self._limits)

    def _run_id(self) -> str | None:
        return self._field("run_id", self._own_run_id, None)

    def _own_run_id(self, value: object, pointer: str) -> str:
        if parse_run_id(value, pointer).job_id != self._job_id:
            raise InvalidDefinition.of(pointer, "is a run of another job than the key names")
        return str(value)

    def _range(self, *, required: bool) -> tuple[int | None, int | None]:
        for bound in ("from", "to"):
            if required and bound not in self._given:
                self._findings.refuse(f"/{bound}", "is missing: an instant such as 2026-02-01T00:00:00Z")
        from_ms = self._field("from", _absolute_instant, None)
        to_ms = self._field("to", _absolute_instant, None)
        if from_ms is not None and to_ms is not None and to_ms <= from_ms:
            self._findings.refuse("/to", "must be later than from")
        return from_ms, to_ms


def _absolute_instant(value: object, pointer: str) -> int:
    """An instant with its offset: a command knows no zone in which it could be local."""
    instant_ms = parse_instant(value, zone=None, pointer=pointer)
    if not _OFFSET_AT_END(str(value)):
        raise InvalidDefinition.of(pointer, "must have an offset, such as 2026-02-01T00:00:00Z or ...+01:00")
    return instant_ms
