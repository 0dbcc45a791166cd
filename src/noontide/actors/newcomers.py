"""Definitions of new jobs, accepted the short way: for plain ones of kinds that were met before.

`admission` decides any request. Of a million new jobs nearly all are of a few kinds: nothing is known of the id, the
request asks for nothing but the job, and only id, payload and schedule are new. What the others share is worked out
once (`kinds`); here the parts are put together. Both ways write the same bytes, and whatever is not plain is left to
`admission`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noontide.actors.admission import Admission
from noontide.actors.effects import Scene
from noontide.actors.guards import Accepted
from noontide.actors.kinds import Kind, Kinds, Turn
from noontide.actors.next_cursor import Terms as CursorTerms
from noontide.actors.request_input import Input
from noontide.actors.settings import SchedulerSettings
from noontide.core.cursor import Cursor, JobState
from noontide.core.definition import known_envelope
from noontide.core.envelope import PAYLOAD_MARK, opening, said_by
from noontide.core.errors import InvalidDefinition
from noontide.core.ids import is_job_id
from noontide.core.limits import DEFAULT_LIMITS
from noontide.core.payload import Texts, plain_texts
from noontide.ports.record_log import Headers, Record, TopicPartition
from noontide.records import rows, state
from noontide.records.job_row import hash_of
from noontide.records.jobs import time_headers
from noontide.records.request_headers import Terms, read_headers, read_terms
from noontide.records.requests import Define
from noontide.records.requests import Kind as Asked

_JSON = "application/json"


class _Sender(NamedTuple):
    """What requests of one topic with the same headers share. origin, etag: theirs, up to the offset.

    is_plain: their headers ask for nothing that depends on what was before. wants_more: besides the job they want an
    answer, or are somebody's.
    """

    topic: str
    headers: Headers
    terms: Terms
    origin: bytes
    etag: bytes
    is_plain: bool
    wants_more: bool
    kinds: dict[object, Kind | None]

    @classmethod
    def of(cls, item: Input, kinds: dict[object, Kind | None]) -> _Sender:
        """The sender of a request. Raises InvalidDefinition for headers that are refused."""
        said = read_headers(item.headers)
        terms, at = read_terms(said), item.origin._replace(offset=0)
        is_define = said.get("kind", Asked.DEFINE) == Asked.DEFINE and said.get("content-type", _JSON) == _JSON
        return cls(
            topic=at.topic,
            headers=item.headers,
            terms=terms,
            origin=at.text.encode()[:-1],
            etag=at.etag.encode()[:-1],
            is_plain=is_define and terms.if_match is None and terms.idempotency_key is None,
            wants_more=terms.wants_verdict or terms.actor is not None,
            kinds=kinds,
        )


class _Newcomer(NamedTuple):
    """A new job, ready to be written."""

    key: bytes
    row: bytes
    record: Record
    cursor: bytes
    due: tuple[bytes, bytes]


class Newcomers:
    """Accepts plain new jobs of one partition. kinds: those that its slot has met."""

    def __init__(self, partition: int, admission: Admission, kinds: Kinds, settings: SchedulerSettings) -> None:
        self._partition = partition
        self._admission = admission
        self._kinds = kinds
        self._settings = settings
        self._limits = settings.definition
        self._value_max_bytes = min(self._limits.definition_max_bytes, DEFAULT_LIMITS.definition_max_bytes)
        self._times_ms, self._times = 0, time_headers(0)

    def accept(self, items: Sequence[Input], start: int, scene: Scene) -> int:
        """Accept requests from `start` on while they are plain; returns the place of the first that is not.

        Of that one nothing is in the effects, whatever went wrong with it.
        """
        sender: _Sender | None = None
        for place in range(start, len(items)):
            item = items[place]
            try:
                if sender is None or item.headers != sender.headers or item.origin.topic != sender.topic:
                    sender = _Sender.of(item, self._kinds.under(scene.world.config))
                newcomer = self._newcomer(item, sender, scene) if sender.is_plain and not item.forwarded else None
            except Exception:  # noqa: BLE001 - by itself it will show what is wrong with it
                return place
            if newcomer is None:
                return place
            self._put(newcomer, scene)
            if sender.wants_more:
                self._conclude(item, sender, scene)
        return len(items)

    def _newcomer(self, item: Input, sender: _Sender, scene: Scene) -> _Newcomer | None:
        """The job, when it can be made without a closer look."""
        key, value = item.key, item.value
        if not key or value is None or len(value) > self._value_max_bytes or not self._is_new(key, scene):
            return None
        texts = plain_texts(value, limits=self._limits)
        if texts is None or len(texts) > self._limits.fields_max:
            return None
        schedule, payload, named = _taken_schedule(texts), texts.pop("payload", None), texts.pop("id", None)
        if schedule is None or (named is not None and bytes(named) != b'"%b"' % key):
            return None
        kind = self._kind(texts, item, sender, scene)
        turn = None if kind is None else kind.turn(schedule, item.appended_ms)
        if kind is None or turn is None:
            return None
        return self._made(item, sender, kind, turn, payload=None if payload is None else bytes(payload))

    def _is_new(self, key: bytes, scene: Scene) -> bool:
        """Whether the id is legal and at home here, and nothing is known of it, and nobody waits for it."""
        (world, effects), number, job_id = scene, self._partition, key.decode()
        return (
            hash_of(key) % world.layout.partitions == number
            and effects.read(rows.cursor_key(number, key)) is None
            and effects.read(rows.job_key(number, key)) is None
            and is_job_id(job_id)
            and job_id not in world.ties.dependants
        )

    def _kind(self, shared: Texts, item: Input, sender: _Sender, scene: Scene) -> Kind | None:
        """The kind of a job, None when it was not met before or is not plain. shared: its texts without its own."""
        said = said_by(shared)
        mark = (sender.topic, sender.terms.tenant, said)
        kind = sender.kinds.get(mark)
        if kind is not None or said is None or mark in sender.kinds:
            return kind
        prefix = scene.world.layout.prefix
        envelope = known_envelope(shared, limits=self._limits, tenant=sender.terms.tenant, topic_prefix=prefix)
        if envelope is None:
            return None
        terms = CursorTerms(scene.world.config, self._settings.completed_retention_ms)
        kind = Kind.of(envelope, limits=self._limits, terms=terms)
        try:
            self._admission.check_names(kind.model, item, scene)
        except InvalidDefinition:
            kind = None
        sender.kinds[mark] = kind if kind is not None and kind.is_plain else None
        return sender.kinds[mark]

    def _made(self, item: Input, sender: _Sender, kind: Kind, turn: Turn, *, payload: bytes | None) -> _Newcomer | None:
        key, offset, at_ms = item.key, item.origin.offset, item.appended_ms
        assert key is not None
        start = opening(key, kind.envelope.tenant)
        place, size = 0, 0
        if payload is not None:
            start += PAYLOAD_MARK
            place, size = len(start), len(payload)
        document = b"%b%b%b" % (start, payload or b"", turn.ending)
        if size > self._limits.payload_max_bytes or len(document) > self._limits.definition_max_bytes:
            return None
        etag, spread_ms = b"%b%d" % (sender.etag, offset), turn.spread_ms(key)
        cursor = Cursor(JobState.ACTIVE, turn.due_ms, turn.due_ms + spread_ms, accepted_ms=at_ms)
        due = rows.due_row_of(self._partition, key, cursor)
        if due is None:
            return None
        row = turn.form.row(
            key, key_hash=hash_of(key), spread_ms=spread_ms, schedule_key=turn.schedule_key, version=(etag, at_ms),
            document=document, payload=(place, size),
        )  # fmt: skip
        if at_ms != self._times_ms:
            self._times_ms, self._times = at_ms, time_headers(at_ms)
        headers = [("etag", etag), ("origin", b"%b%d" % (sender.origin, offset)), kind.tenant, *self._times]
        return _Newcomer(key, row, Record(key, document, headers), state.encode_cursor(cursor), due)

    def _put(self, new: _Newcomer, scene: Scene) -> None:
        effects, number = scene.effects, self._partition
        outputs, changed, names = effects.outputs, effects.index.puts, effects.names
        outputs[TopicPartition(names.jobs, number)].append(new.record)
        outputs[names.state].append(Record(state.CURSOR + new.key, new.cursor))
        changed[rows.job_key(number, new.key)] = new.row
        changed[rows.cursor_key(number, new.key)] = new.cursor
        changed[new.due[0]] = new.due[1]
        effects.due_changes[number].append(new.due)
        effects.counts["accepted"] += 1

    def _conclude(self, item: Input, sender: _Sender, scene: Scene) -> None:
        assert item.key is not None
        assert item.value is not None
        request = Define(job_id=item.key.decode(), terms=sender.terms, document=item.value)
        self._admission.conclude(request, Accepted(item.origin.etag), item, scene, before=None)


def _taken_schedule(texts: Texts) -> bytes | None:
    """Take the schedule, or the instant that is its short form, out of a definition's texts."""
    schedule, run_at = texts.pop("schedule", None), texts.pop("run_at", None)
    if schedule is None:
        return None if run_at is None else b'{"at":%b}' % bytes(run_at)
    return bytes(schedule) if run_at is None else None
