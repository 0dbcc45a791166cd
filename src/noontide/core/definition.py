"""From the bytes somebody sent to a job, or to everything that is wrong with them.

A definition is read field by field: FIELDS stand alone; the rest depend on one another or on the context and are
read after them. Beside the job a normalised document is written: what the sender said, with id, tenant and anchor
filled in and short forms expanded. Reading it again gives the same job and the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import orjson

from noontide.core.dst import DEFAULT_DST, DstRule, parse_dst
from noontide.core.durations import format_duration
from noontide.core.envelope import Envelope, Envelopes, envelope_key
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.field_table import LINKED, fields_within, known_names
from noontide.core.fields import Findings, Reader, members, name, several
from noontide.core.ids import JOB_ID_FORM, id_from_idempotency_key, is_job_id, parse_job_id
from noontide.core.job import Job
from noontide.core.limits import DEFAULT_LIMITS, Limits
from noontide.core.occurrence import EXACT, Timing, lane_of
from noontide.core.patch import merge_patch
from noontide.core.payload import Members, Texts, TooLarge, decode_members, payload_text
from noontide.core.policies import FixedDelays, Guarantee, MisfirePolicy, RetryPolicy
from noontide.core.policy_fields import read_retry, read_timing
from noontide.core.schedule import OneOff, Schedule
from noontide.core.schedule_field import LocalTime, ScheduleQuestion, schedule_shape
from noontide.core.shapes import Shape, Shaped, shape_of
from noontide.core.target_fields import FORMS as TARGET_FORMS
from noontide.core.target_fields import TargetReader
from noontide.core.zones import load_zone

__all__ = [
    "Definition",
    "DefinitionContext",
    "TooLarge",
    "known_envelope",
    "load_definition",
    "merge_patch",
    "parse_definition",
]

DEFAULT_TENANT = "default"
DEFAULT_TOPIC_PREFIX = "noontide."


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionContext:
    """What a definition is read against.

    key: record key, which the id must equal; None where there is none (HTTP).
    tenant: the tenant the credential or domain speaks for; None = the document says it ("default" when it does not).
    created_ms: append time of the request: the anchor of an interval that names none.
    previous: the accepted job that is updated; an interval that keeps its `every` and names no anchor keeps the anchor.
    unknown_fields: "warn" keeps them and says so, "refuse" makes them problems.
    new_id: the id when neither the document nor the key nor an idempotency key gives one.
    topic_prefix: topics that begin with it are the scheduler's own and refused as targets.
    """

    key: str | None
    tenant: str | None
    created_ms: int
    limits: Limits = DEFAULT_LIMITS
    previous: Job | None = None
    unknown_fields: Literal["warn", "refuse"] = "warn"
    new_id: str | None = None
    topic_prefix: str = DEFAULT_TOPIC_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """An acceptable definition. document: normalised JSON. warnings: one per unknown field."""

    job: Job
    document: bytes
    warnings: tuple[Problem, ...]


def parse_definition(raw: bytes, *, context: DefinitionContext) -> Definition:
    """Read a definition that nobody has checked before.

    Raises InvalidDefinition with every problem found (TooLarge when a size limit is among them), nothing else.
    """
    given = decode_members(raw, limits=context.limits)
    key = envelope_key(given.texts, limits=context.limits, tenant=context.tenant, topic_prefix=context.topic_prefix)
    envelope = _envelopes.find(key)
    definition = _enclosed(given, envelope, context) if envelope is not None else None
    if definition is not None:
        return definition
    reading = _Reading(given, context)
    job = reading.job()
    document = orjson.dumps(reading.document)
    if len(document) > context.limits.definition_max_bytes:
        raise TooLarge.of(
            "", f"is {len(document)} bytes when normalised, at most {context.limits.definition_max_bytes}"
        )
    if key is not None and not reading.findings.unknown:
        _envelopes.keep(key, job, reading.document)
    return Definition(job=job, document=document, warnings=tuple(reading.findings.unknown))


def _enclosed(given: Members, envelope: Envelope, context: DefinitionContext) -> Definition | None:
    """A definition in an envelope that is known; None when anything else about it has to be looked at closely."""
    values, key = given.values, context.key
    job_id = values.get("id")
    if job_id is None:
        job_id = key or context.new_id
    elif key is not None and job_id != key:
        return None
    if not isinstance(job_id, str) or not is_job_id(job_id):
        return None
    shape = schedule_shape(_question(given, job_id, context), local=envelope.local, limits=context.limits)
    raw = given.texts.get("payload")
    payload = None if raw is None else bytes(raw)
    if shape.problems or shape.unknown or (payload is not None and len(payload) > context.limits.payload_max_bytes):
        return None
    document = envelope.document(job_id, payload, shape.document)
    if len(document) > context.limits.definition_max_bytes:
        return None
    schedule = cast("Schedule", shape.value)  # there is one where there is no problem; a Shape cannot say so
    return Definition(job=envelope.job(job_id, payload or b"null", schedule), document=document, warnings=())


def _question(given: Members, job_id: str, context: DefinitionContext) -> ScheduleQuestion:
    value = given.values.get("schedule")
    return ScheduleQuestion(
        value,
        b"" if value is None else bytes(given.texts["schedule"]),
        given.values.get("run_at"),
        required=not given.values.get("after"),
        job_id=job_id,
        created_ms=context.created_ms,
        previous=context.previous.schedule if context.previous else None,
    )


_envelopes = Envelopes()


def known_envelope(texts: Texts, *, limits: Limits, tenant: str | None, topic_prefix: str) -> Envelope | None:
    """The envelope of a definition whose kind was accepted before; see `core.envelope`."""
    return _envelopes.find(envelope_key(texts, limits=limits, tenant=tenant, topic_prefix=topic_prefix))


def load_definition(document: bytes) -> Job:
    """The job of a normalised document that was accepted earlier, whatever the limits are today.

    Raises InvalidDefinition when it names what no longer exists (a time zone that was withdrawn).
    """
    return _Reading(decode_members(document, limits=_LOADING.limits), _LOADING).job()


_BOUNDLESS = 1 << 40
_LOADING = DefinitionContext(
    key=None,
    tenant=None,
    created_ms=0,
    topic_prefix="",
    limits=Limits(
        payload_max_bytes=_BOUNDLESS,
        envelope_max_bytes=_BOUNDLESS,
        depth_max=1_000,
        fields_max=_BOUNDLESS,
        name_max_chars=_BOUNDLESS,
        text_max_chars=_BOUNDLESS,
        note_max_chars=_BOUNDLESS,
        url_max_chars=_BOUNDLESS,
        labels_max=_BOUNDLESS,
        headers_max=_BOUNDLESS,
        header_max_chars=_BOUNDLESS,
        interval_min_ms=1,
        crons_per_union_max=_BOUNDLESS,
        upstreams_max=_BOUNDLESS,
        calendars_max=_BOUNDLESS,
        channels_max=_BOUNDLESS,
        attempts_max=_BOUNDLESS,
        delays_max=_BOUNDLESS,
        run_all_max=_BOUNDLESS,
        timeout_max_ms=_BOUNDLESS,
        delay_max_ms=_BOUNDLESS,
        warnings_max=0,
    ),
)


ONE_ATTEMPT = RetryPolicy(max_attempts=1)
_MISFIRE_PARTS = ("rule", "grace_ms", "run_all_max")


class _Reading:
    """One reading of one document: what was given, what is wrong so far, and the job and document so far."""

    __slots__ = ("attributes", "context", "document", "findings", "given", "members", "texts")

    def __init__(self, given: Members, context: DefinitionContext) -> None:
        self.members = given
        self.given, self.texts = given
        self.context = context
        self.findings = Findings(context.limits)
        self.attributes: dict[str, object] = {}
        self.document: dict[str, object] = {"id": None, "tenant": None}  # first, filled in later

    def job(self) -> Job:
        """The job; fills `document` on the way. Raises InvalidDefinition with all problems."""
        if len(self.given) > self.context.limits.fields_max:
            raise InvalidDefinition.of("", f"has more than {self.context.limits.fields_max} members")
        too_large = self._payload()
        self._fields_alone()
        self._identity()
        self._times()
        self._policies()
        self._target()
        problems = self.findings.problems
        if self.context.unknown_fields == "refuse":
            problems.extend(self.findings.unknown)
        if problems:
            raise (TooLarge if too_large else InvalidDefinition)(tuple(problems))
        # Every value was read by the reader of its attribute; a table cannot say that to the type checker.
        attributes: dict[str, Any] = self.attributes
        return Job(**attributes)

    def _fields_alone(self) -> None:
        plain, in_seconds, shaped = fields_within(self.context.limits)
        attributes, document, findings = self.attributes, self.document, self.findings
        for field, value in self.given.items():
            if field in plain:
                if value is not None:
                    attribute, reader = plain[field]
                    attributes[attribute] = findings.read(reader, value, f"/{field}")
                    document[field] = value
            elif field in shaped:
                attribute, shape = shaped[field]
                self._shaped(field, attribute, shape)
            elif field in in_seconds:
                self._in_seconds(field, *in_seconds[field])
            elif field not in LINKED:
                findings.note_unknown(field, "", known_names(self.context.limits))
                document[field] = orjson.Fragment(bytes(self.texts[field]))

    def _in_seconds(self, field: str, long: str, attribute: str, reader: Reader[int]) -> None:
        value = self.given[field]
        if value is None:
            return
        if self.given.get(long) is not None:
            self.findings.refuse(f"/{field}", f'is given twice: as "{field}" and as "{long}"')
        length_ms = self.findings.read(reader, value, f"/{field}")
        self.attributes[attribute] = length_ms
        self.document[long] = None if length_ms is None else format_duration(length_ms)

    def _shaped(self, field: str, attribute: str, reader: Shaped) -> None:
        """Read a value with parts; its text goes into the document as it is unless it has a longer form."""
        if self.given.get(field) is None:
            return
        text = bytes(self.texts[field])
        self._take(field, attribute, shape_of(text, reader=reader, pointer=f"/{field}", limits=self.context.limits))

    def _take(self, field: str, attribute: str, shape: Shape) -> None:
        self.attributes[attribute], self.document[field], problems, unknown = shape
        if problems:
            self.findings.problems.extend(problems)
        if unknown:
            self.findings.unknown.extend(unknown)

    def _identity(self) -> None:
        given, context, findings = self.given, self.context, self.findings
        tenant = given.get("tenant")
        if tenant is None:
            tenant = context.tenant or DEFAULT_TENANT
        elif context.tenant is not None and tenant != context.tenant:
            findings.refuse("/tenant", "is not the tenant that the sender may speak for")
        known = findings.read(name(context.limits.name_max_chars), tenant, "/tenant") or DEFAULT_TENANT
        self.attributes["tenant"] = self.document["tenant"] = known
        self.attributes["id"] = self.document["id"] = self._id(known)

    def _id(self, tenant: str) -> str | None:
        key, said = self.context.key, self.given.get("id")
        if said is not None:
            if key is not None and said != key:
                self.findings.refuse("/id", "differs from the key of the record")
            return self.findings.read(parse_job_id, said, "/id")
        guard = self.attributes.get("idempotency_key")
        if key is None and isinstance(guard, str):
            return id_from_idempotency_key(tenant, guard)
        named = key or self.context.new_id
        if named is None:
            self.findings.refuse("/id", f"is missing, and there is no idempotency_key to make it from: {JOB_ID_FORM}")
            return None
        return self.findings.read(parse_job_id, named, "/id")

    def _times(self) -> None:
        timezone = self.given.get("timezone")
        if timezone is not None:
            self.attributes["timezone"] = self.document["timezone"] = timezone
            if self.findings.read(_zone_name, timezone, "/timezone") is None:
                return  # nothing local can be read; one problem is enough
        self._shaped("dst", "dst", _read_dst)
        dst = self.attributes.get("dst")
        local = LocalTime(
            timezone if isinstance(timezone, str) else "UTC", dst if isinstance(dst, DstRule) else DEFAULT_DST
        )
        self._schedule(local)
        self._lifetime(local)

    def _schedule(self, local: LocalTime) -> None:
        job_id = self.attributes["id"]
        question = _question(self.members, job_id if isinstance(job_id, str) else "", self.context)
        shape = schedule_shape(question, local=local, limits=self.context.limits)
        self._take("schedule", "schedule", shape)
        if shape.document is None:
            del self.document["schedule"]  # nothing was said: it follows its upstreams
        if isinstance(shape.value, OneOff):
            self.attributes["timing"] = EXACT

    def _lifetime(self, local: LocalTime) -> None:
        for field in ("starts_at", "ends_at"):
            value = self.given.get(field)
            if value is not None:
                self.attributes[f"{field}_ms"] = self.findings.read(local.instant, value, f"/{field}")
                self.document[field] = value
        starts_ms, ends_ms = self.attributes.get("starts_at_ms"), self.attributes.get("ends_at_ms")
        if isinstance(starts_ms, int) and isinstance(ends_ms, int) and ends_ms < starts_ms:
            self.findings.refuse("/ends_at", "must not be earlier than starts_at")

    def _policies(self) -> None:
        self._shaped("timing", "timing", read_timing)
        self._lane()
        self._shaped("retry", "retry", read_retry)
        self._misfire()
        self._once()
        self._upstreams()

    def _lane(self) -> None:
        timing, schedule = self.attributes.get("timing"), self.attributes.get("schedule")
        if self.given.get("lane") is None and isinstance(timing, Timing):
            self.attributes["lane"] = lane_of(timing, cast("Schedule | None", schedule))

    def _misfire(self) -> None:
        parts = {part: value for part in _MISFIRE_PARTS if (value := self.attributes.pop(part, None)) is not None}
        if parts:
            # Read part by part by the readers of the same names; see `job` on why the checker cannot know.
            fields: dict[str, Any] = parts
            self.attributes["misfire"] = MisfirePolicy(**fields)

    def _once(self) -> None:
        """A run that may never start twice has one attempt."""
        if self.attributes.get("guarantee") is not Guarantee.AT_MOST_ONCE:
            return
        retry, said = self.attributes.get("retry"), self.given.get("retry")
        if isinstance(retry, RetryPolicy) and retry.max_attempts > 1 and isinstance(said, dict):
            at = "max_attempts" if said.get("max_attempts") is not None else "backoff"
            if at == "max_attempts" or isinstance(retry.backoff, FixedDelays):
                message = 'must allow one attempt only: with "at_most_once" no run starts again'
                self.findings.refuse(f"/retry/{at}", message)
        self.attributes["retry"] = ONE_ATTEMPT

    def _upstreams(self) -> None:
        value = self.given.get("after")
        if value is None:
            return
        reader = several(parse_job_id, self.context.limits.upstreams_max)
        upstreams = self.findings.read(reader, value, "/after")
        if upstreams and self.attributes["id"] in upstreams:
            self.findings.refuse("/after", "must not name the job itself: it would wait for itself")
        self.attributes["after"] = upstreams
        self.document["after"] = value

    def _target(self) -> None:
        if self.given.get("target") is None:
            self.findings.refuse("/target", f"is missing; {TARGET_FORMS}")
            return
        self._shaped("target", "target", _target_reader(self.context.limits, self.context.topic_prefix).read)

    def _payload(self) -> bool:
        """Keep the payload's bytes; True when they are too many."""
        try:
            payload = payload_text(self.texts.get("payload"), limits=self.context.limits)
        except TooLarge as refused:
            self.findings.problems.extend(refused.problems)
            return True
        if "payload" in self.texts:
            self.attributes["payload"] = payload
            self.document["payload"] = orjson.Fragment(payload)
        return False


_target_reader = lru_cache(maxsize=16)(TargetReader)


def _zone_name(value: object, pointer: str) -> str:
    return load_zone(value, pointer=pointer).name


def _read_dst(value: object, pointer: str, findings: Findings) -> tuple[DstRule, object]:
    return parse_dst(members(value, pointer, ("gap", "repeat"), findings), pointer), None
