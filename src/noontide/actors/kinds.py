"""Kinds of jobs: what new jobs that differ in id, payload and schedule share, worked out once.

A system that brings a million jobs brings the same target and policies each time. What follows from them (the parts of
the document and of the row, and whether the configuration lets them in) is kept here, for one configuration at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import orjson
from msgspec import Raw

from noontide.actors.next_cursor import Terms, cursor_after
from noontide.core.cursor import JobState
from noontide.core.envelope import PAYLOAD_MARK, Envelope, opening
from noontide.core.job import Job
from noontide.core.limits import Limits
from noontide.core.occurrence import EXACT, spread_offset
from noontide.core.payload import NO_PAYLOAD
from noontide.core.schedule import OneOff, Schedule, one_off_key
from noontide.core.schedule_field import once_of, standing_shape
from noontide.records.config import ConfigView
from noontide.records.job_row import RowForm, row_form
from noontide.records.jobs import Header, tenant_header

KINDS_MAX, TURNS_MAX = 2_048, 1_024
"""Kinds remembered per slot, and schedules of one kind; beyond that it is begun anew."""
_MODEL_ID = "model"


class Turn(NamedTuple):
    """The schedule of new jobs, and when the first of them is due.

    ending: of their documents. due_ms: for jobs that are accepted from `since_ms` on and before `due_ms`; that of a
    one-off holds always. spread_like: one of them, if each starts at a distance of its own from when it is due.
    """

    form: RowForm
    schedule_key: bytes
    ending: bytes
    due_ms: int
    since_ms: int
    spread_like: Job | None

    def spread_ms(self, job_id: bytes) -> int:
        """What lies between due and start of one of them."""
        job = self.spread_like
        if job is None or job.schedule is None:
            return 0
        return spread_offset(job_id.decode(), timing=job.timing, period_ms=job.schedule.period_ms())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of job. model: one of them, a one-off; once: the form of the rows of one-offs."""

    envelope: Envelope
    model: Job
    once: RowForm
    tenant: Header
    limits: Limits
    terms: Terms
    _turns: dict[bytes, Turn] = field(default_factory=dict)

    @classmethod
    def of(cls, envelope: Envelope, *, limits: Limits, terms: Terms) -> Kind:
        """The kind of the jobs in an envelope."""
        model = _model(envelope, OneOff(at_ms=0))
        form, tenant = _form(envelope, model), tenant_header(model.tenant)
        return cls(envelope=envelope, model=model, once=form, tenant=tenant, limits=limits, terms=terms)

    @property
    def is_plain(self) -> bool:
        """Whether new jobs wait for their time and for nothing else."""
        calendar = self.model.calendar
        first = cursor_after(self.model, None, None, at_ms=0, terms=self.terms)
        return first.state is JobState.ACTIVE and not (calendar.include or calendar.exclude)

    def turn(self, schedule: bytes, at_ms: int) -> Turn | None:
        """The turn of new jobs accepted at `at_ms`; schedule: JSON text. None for one that is to be read with care."""
        once_ms = once_of(schedule)
        if once_ms is not None:
            spread_like = None if self.model.timing.mode == "exact" else self.model
            ending = self.envelope.ending(schedule)
            return _turn(Turn, (self.once, one_off_key(once_ms).encode(), ending, once_ms, 0, spread_like))
        turn = self._turns.get(schedule)
        if turn is None or not turn.since_ms <= at_ms < turn.due_ms:
            turn = self._recurring(schedule, at_ms)
            if len(self._turns) >= TURNS_MAX:
                self._turns.clear()
            if turn is not None:
                self._turns[schedule] = turn
        return turn

    def document(self, job_id: bytes, payload: Raw | None, turn: Turn) -> tuple[bytes, int, int]:
        """The normalised document, and where in it the payload is: place and length."""
        start = opening(job_id, self.envelope.tenant)
        if payload is None:
            return start + turn.ending, 0, 0
        start, text = start + PAYLOAD_MARK, bytes(payload)
        return b"%b%b%b" % (start, text, turn.ending), len(start), len(text)

    def _recurring(self, schedule: bytes, at_ms: int) -> Turn | None:
        shape = standing_shape(schedule, local=self.envelope.local, limits=self.limits)
        if shape is None:
            return None
        job = _model(self.envelope, cast("Schedule", shape.value))
        if job.timing == EXACT and job.tenant in self.terms.config.limits.exact_starts:
            return None
        cursor = cursor_after(job, None, None, at_ms=at_ms, terms=self.terms)
        if cursor.state is not JobState.ACTIVE or cursor.due_ms is None or job.schedule is None:
            return None
        return Turn(
            form=_form(self.envelope, job),
            schedule_key=job.schedule.key.encode(),
            ending=self.envelope.ending(orjson.dumps(shape.document)),
            due_ms=cursor.due_ms,
            since_ms=at_ms,
            spread_like=None if job.timing.mode == "exact" else job,
        )


_turn: Callable[..., Turn] = tuple.__new__


def _model(envelope: Envelope, schedule: Schedule) -> Job:
    return envelope.job(_MODEL_ID, NO_PAYLOAD, schedule)


def _form(envelope: Envelope, job: Job) -> RowForm:
    return row_form(job, envelope.document(_MODEL_ID, None, None))


class Kinds:
    """The kinds met by one slot, under one configuration. None stands for a kind that is never plain."""

    __slots__ = ("_config", "_known")

    def __init__(self) -> None:
        self._config: ConfigView | None = None
        self._known: dict[object, Kind | None] = {}

    def under(self, config: ConfigView) -> dict[object, Kind | None]:
        """The kinds known under a configuration, to look into and to add to."""
        if config is not self._config or len(self._known) >= KINDS_MAX:
            self._config, self._known = config, {}
        return self._known
