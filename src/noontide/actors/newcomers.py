"""Definitions of new jobs, accepted the short way: for plain ones of kinds that were met before.

`admission` decides any request. Of a million new jobs nearly all are of a few kinds: nothing is known of the id, the
request asks for nothing but the job, and only id, payload and schedule are new. What the others share is worked out
once (`kinds`); here the parts are put together. Both ways write the same bytes, and whatever is not plain is left to
`admission`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from noontide.actors.admission import Admission
from noontide.actors.effects import Scene
from noontide.actors.guards import Accepted
from noontide.actors.kinds import Kind, Kinds
from noontide.actors.next_cursor import Terms as CursorTerms
from noontide.actors.poison import Poisoned
from noontide.actors.request_input import Input
from noontide.actors.settings import SchedulerSettings
from noontide.core.cursor import Cursor, JobState
from noontide.core.definition import known_envelope
from noontide.core.envelope import said_by
from noontide.core.errors import InvalidDefinition
from noontide.core.ids import is_job_id
from noontide.core.partitioner import murmur2_all
from noontide.core.payload import Texts, plain_texts
from noontide.ports.record_log import Headers, Record, quick_record
from noontide.records import rows
from noontide.records.job_row import Own
from noontide.records.jobs import time_headers
from noontide.records.request_headers import Terms, read_headers, read_terms
from noontide.records.requests import Define
from noontide.records.requests import Kind as Asked

_JSON = "application/json"
_cursor: Callable[..., Cursor] = tuple.__new__
_own: Callable[..., Own] = tuple.__new__


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
            is_plain=is_define and terms.if_match is None and terms.idempotency_key is None and not terms.traceparent,
            wants_more=terms.wants_verdict or terms.actor is not None,
            kinds=kinds,
        )


class Newcomers:
    """Accepts plain new jobs of one partition. kinds: those that its slot has met."""

    def __init__(self, partition: int, admission: Admission, kinds: Kinds, settings: SchedulerSettings) -> None:
        self._partition = partition
        self._admission = admission
        self._kinds = kinds
        self._settings = settings
        self._limits = settings.definition
        self._document_max_bytes = self._limits.definition_max_bytes
        self._row_key, self._cursor_key = rows.job_key(partition, b""), rows.cursor_key(partition, b"")
        self._times_ms, self._times = 0, time_headers(0)

    def accept(self, items: Sequence[Input], start: int, scene: Scene, hashes: Sequence[int]) -> int:
        """Accept requests from `start` on while they are plain; returns the place of the first that is not.

        Of that one nothing is in the effects, whatever went wrong with it. hashes: of all items, by `hashes_of`.
        Raises Poisoned.
        """
        sender: _Sender | None = None
        for place in range(start, len(items)):
            item = items[place]
            try:
                if sender is None or item.headers != sender.headers or item.origin.topic != sender.topic:
                    sender = _Sender.of(item, self._kinds.under(scene.world.config))
                if not sender.is_plain or item.forwarded or not self._accepted(item, hashes[place], sender, scene):
                    return place
            except Exception:  # noqa: BLE001 - by itself it will show what is wrong with it
                return place
            if sender.wants_more:
                self._conclude(item, sender, scene)
        return len(items)

    def _accepted(self, item: Input, key_hash: int, sender: _Sender, scene: Scene) -> bool:
        """Accept the job, when it can be made without a closer look. Adds all of it to the effects, or nothing."""
        key, value, at_ms = item.key, item.value, item.appended_ms
        if not key or value is None or len(value) > self._document_max_bytes:
            return False
        if not self._is_new(key, key_hash, scene):
            return False
        texts = plain_texts(value, depth_max=self._limits.depth_max)
        if texts is None or len(texts) > self._limits.fields_max:
            return False
        schedule, payload, named = _taken_schedule(texts), texts.pop("payload", None), texts.pop("id", None)
        if schedule is None or (named is not None and bytes(named) != b'"%b"' % key):
            return False
        kind = self._kind(texts, item, sender, scene)
        turn = None if kind is None else kind.turn(schedule, at_ms)
        if kind is None or turn is None:
            return False
        document, payload_at, size = kind.document(key, payload, turn)
        if size > self._limits.payload_max_bytes or len(document) > self._document_max_bytes:
            return False
        offset = item.origin.offset
        etag, spread_ms = b"%b%d" % (sender.etag, offset), turn.spread_ms(key)
        own = key, key_hash, spread_ms, turn.schedule_key, etag, at_ms, document, payload_at, size
        cursor = _cursor(Cursor, (JobState.ACTIVE, turn.due_ms, turn.due_ms + spread_ms, 0, 1, None, at_ms, None))
        if at_ms != self._times_ms:
            self._times_ms, self._times = at_ms, time_headers(at_ms)
        headers = [("etag", etag), ("origin", b"%b%d" % (sender.origin, offset)), kind.tenant, *self._times]
        row, record = turn.form.row(_own(Own, own)), quick_record(Record, (key, document, headers))
        scene.effects.put_job(self._partition, key, row=row, record=record)
        scene.effects.put_cursor(self._partition, key, cursor)
        scene.effects.counts["accepted"] += 1
        return True

    def _is_new(self, key: bytes, key_hash: int, scene: Scene) -> bool:
        """Whether the id is legal and at home here, and nothing is known of it, and nobody waits for it."""
        world, effects = scene
        return (
            key_hash % world.layout.partitions == self._partition
            and effects.read(self._cursor_key + key) is None
            and effects.read(self._row_key + key) is None
            and is_job_id(job_id := key.decode())
            and job_id not in world.ties.dependants
        )

    def _kind(self, shared: Texts, item: Input, sender: _Sender, scene: Scene) -> Kind | None:
        """The kind of a job, None when it was not met before or is not plain. shared: its texts without its own."""
        mark = (sender.topic, sender.terms.tenant, said_by(shared))
        kind = sender.kinds.get(mark)
        if kind is not None or mark in sender.kinds:
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

    def _conclude(self, item: Input, sender: _Sender, scene: Scene) -> None:
        assert item.key is not None
        assert item.value is not None
        request = Define(job_id=item.key.decode(), terms=sender.terms, document=item.value)
        try:
            self._admission.conclude(request, Accepted(item.origin.etag), item, scene, before=None)
        except Exception as error:
            raise Poisoned(self._partition, item, error) from error


def hashes_of(items: Sequence[Input]) -> list[int]:
    """The `key_hash` of each request, see `records.job_row.JobRow`."""
    return [hashed & 0x7FFFFFFF for hashed in murmur2_all([item.key or b"" for item in items])]


def _taken_schedule(texts: Texts) -> bytes | None:
    """Take the schedule, or the instant that is its short form, out of a definition's texts."""
    schedule, run_at = texts.pop("schedule", None), texts.pop("run_at", None)
    if schedule is None:
        return None if run_at is None else b'{"at":%b}' % bytes(run_at)
    return bytes(schedule) if run_at is None else None
