"""Reading `schedule` and its short form `run_at`, and settling the anchor of an interval."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import orjson

from noontide.core.dst import LAST_MS, DstRule
from noontide.core.durations import format_duration, parse_seconds
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.fields import Findings, known_duration_ms, members
from noontide.core.instants import FIRST_MS, format_instant, parse_instant
from noontide.core.limits import Limits
from noontide.core.schedule import (
    AfterCompletion,
    IntervalSchedule,
    OneOff,
    Schedule,
    ScheduleContext,
    parse_schedule,
)
from noontide.core.shapes import REMEMBERED_MAX, REMEMBERED_MAX_BYTES, Shape

FORMS = (
    'a cron expression such as "30 2 * * *", or one of {"cron": "..."}, {"every": "PT15M"}, '
    '{"at": "2026-12-24T18:00:00Z"}, {"after_completion": "PT5M"}'
)
_MEMBERS = ("cron", "seconds", "every", "every_sec", "anchor", "at", "after_completion", "after_completion_sec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_INSTANT = r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{3})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_matches_instant = re.compile(_INSTANT, re.ASCII).fullmatch
_matches_once = re.compile(rb'\{[ \t\r\n]*"at"[ \t\r\n]*:[ \t\r\n]*"(%b)"[ \t\r\n]*\}' % _INSTANT.encode()).fullmatch
_IN_SECONDS = ("every", "after_completion")


class LocalTime(NamedTuple):
    """How a definition reads local times: its zone (IANA name) and its rule for gaps and repetitions."""

    timezone: str
    dst: DstRule

    def instant(self, value: object, pointer: str) -> int:
        """The instant in ms; InvalidDefinition for anything but RFC 3339 or local text."""
        return parse_instant(value, zone=self.timezone, pointer=pointer, dst=self.dst)


class ScheduleQuestion(NamedTuple):
    """What a definition says about its schedule, and what the answer depends on besides.

    value, text: of `schedule`, decoded and as JSON text (None and empty when it was not given).
    required: whether a definition without a schedule is refused (it is unless it follows upstreams).
    created_ms: the anchor of an interval that has none. previous: the accepted schedule, in an update.
    """

    value: object
    text: bytes
    run_at: object
    required: bool
    job_id: str
    created_ms: int
    previous: Schedule | None


class _Form(NamedTuple):
    """The value in its long form; `said`: (pointer in the long form, pointer the sender would look for)."""

    value: object
    rewritten: bool
    said: tuple[str, str] | None = None


def schedule_shape(question: ScheduleQuestion, *, local: LocalTime, limits: Limits) -> Shape:
    """The schedule and its document; None for both when none is given and none required.

    Problems: it is missing, given twice, or not acceptable.
    """
    plain = _plain_shape(question, limits)
    if plain is not None:
        return plain
    if question.run_at is None and len(question.text) <= REMEMBERED_MAX_BYTES and _stands_alone(question):
        return _cron_shape(question.text, local, limits)
    return _shape(question, local, limits)


def once_of(text: bytes) -> int | None:
    """The instant of a schedule that is one, in its usual spelling (JSON); None for everything else."""
    found = _matches_once(text)
    return None if found is None else _instant_ms(found[1].decode())


def standing_shape(text: bytes, *, local: LocalTime, limits: Limits) -> Shape | None:
    """The schedule in a JSON text that means the same for every job; None for another one, or one with findings."""
    if len(text) > REMEMBERED_MAX_BYTES:
        return None
    question = ScheduleQuestion(orjson.loads(text), text, None, required=True, job_id="", created_ms=0, previous=None)
    shape = _plain_shape(question, limits)
    if shape is None and _stands_alone(question):
        shape = _cron_shape(text, local, limits)
    return None if shape is None or shape.problems or shape.unknown else shape


def _plain_shape(question: ScheduleQuestion, limits: Limits) -> Shape | None:
    """One instant, or an interval, in its usual spelling; None for everything that is read with more care."""
    value, run_at = question.value, question.run_at
    if value is None:
        at_ms = _plain_instant(run_at)
        return None if at_ms is None else Shape(OneOff(at_ms=at_ms), {"at": run_at}, (), ())
    if run_at is not None or not isinstance(value, dict):
        return None
    if "at" in value and len(value) == 1:
        at_ms = _plain_instant(value["at"])
        return None if at_ms is None else Shape(OneOff(at_ms=at_ms), orjson.Fragment(question.text), (), ())
    if "every" in value and "anchor" in value and len(value) == 2:
        every_ms, anchor_ms = known_duration_ms(value["every"]), _plain_instant(value["anchor"])
        if every_ms is not None and anchor_ms is not None and every_ms >= limits.interval_min_ms:
            interval = IntervalSchedule(every_ms=every_ms, anchor_ms=anchor_ms)
            return Shape(interval, orjson.Fragment(question.text), (), ())
    return None


def _plain_instant(value: object) -> int | None:
    """The instant of a text with all its parts and an offset; None for what `parse_instant` has to judge."""
    return _instant_ms(value) if isinstance(value, str) and _matches_instant(value) else None


def _instant_ms(text: str) -> int | None:
    try:
        instant_ms = (datetime.fromisoformat(text) - _EPOCH) // _MS
    except ValueError:
        return None  # no date of the calendar
    return instant_ms if FIRST_MS <= instant_ms <= LAST_MS else None


def _stands_alone(question: ScheduleQuestion) -> bool:
    """Whether the schedule depends on its text, zone and rule alone: a cron expression without `H`."""
    value = question.value
    is_cron = isinstance(value, str) or (isinstance(value, dict) and "cron" in value)
    return is_cron and b"h" not in question.text.lower()


@lru_cache(maxsize=REMEMBERED_MAX)
def _cron_shape(text: bytes, local: LocalTime, limits: Limits) -> Shape:
    value: object = orjson.loads(text)
    question = ScheduleQuestion(value, text, None, required=True, job_id="", created_ms=0, previous=None)
    return _shape(question, local, limits)


def _shape(question: ScheduleQuestion, local: LocalTime, limits: Limits) -> Shape:
    findings = Findings(limits)
    schedule: Schedule | None = None
    document: object = None
    try:
        schedule, document = _read(question, local, findings)
        if document is None and question.text:
            document = orjson.Fragment(question.text)
    except InvalidDefinition as refused:
        findings.problems.extend(refused.problems)
    return Shape(schedule, document, tuple(findings.problems), tuple(findings.unknown))


def _read(
    question: ScheduleQuestion, local: LocalTime, findings: Findings
) -> tuple[Schedule | None, dict[str, object] | None]:
    form = _long_form(question, findings)
    if form is None:
        return None, None
    context = ScheduleContext(
        timezone=local.timezone, dst=local.dst, job_id=question.job_id, created_ms=question.created_ms
    )
    try:
        schedule = parse_schedule(form.value, context=context)
    except InvalidDefinition as refused:
        raise _as_said(refused, form.said) from None
    if (problem := _too_often(schedule, findings.limits)) is not None:
        raise _as_said(problem, form.said)
    if isinstance(schedule, IntervalSchedule) and isinstance(form.value, dict) and "anchor" not in form.value:
        schedule = _anchored(schedule, question.previous)
        return schedule, {**form.value, "anchor": format_instant(schedule.anchor_ms)}
    if not form.rewritten:
        return schedule, None
    return schedule, form.value if isinstance(form.value, dict) else {"cron": form.value}


def _anchored(schedule: IntervalSchedule, previous: Schedule | None) -> IntervalSchedule:
    """An update that keeps the interval keeps its beat too."""
    if isinstance(previous, IntervalSchedule) and previous.every_ms == schedule.every_ms:
        return previous
    return schedule


def _too_often(schedule: Schedule, limits: Limits) -> InvalidDefinition | None:
    match schedule:
        case IntervalSchedule(every_ms=span_ms):
            pointer = "/schedule/every"
        case AfterCompletion(delay_ms=span_ms):
            pointer = "/schedule/after_completion"
        case _:
            return None
    if span_ms >= limits.interval_min_ms:
        return None
    return InvalidDefinition.of(pointer, f"must be at least {format_duration(limits.interval_min_ms)}")


def _long_form(question: ScheduleQuestion, findings: Findings) -> _Form | None:
    value, run_at = question.value, question.run_at
    if run_at is not None:
        if value is not None:
            raise InvalidDefinition.of("/run_at", 'is given beside "schedule": one of them')
        return _Form({"at": run_at}, rewritten=True, said=("/schedule/at", "/run_at"))
    match value:
        case None if question.required:
            raise InvalidDefinition.of("/schedule", f"is missing; {FORMS}")
        case None:
            return None
        case str():
            return _Form(value, rewritten=True)
        case list():
            _limit_union(value, "/schedule", findings)
            return _Form({"cron": value}, rewritten=True, said=("/schedule/cron", "/schedule"))
        case dict():
            return _object_form(value, findings)
        case _:
            raise InvalidDefinition.of("/schedule", f"must be {FORMS}")


def _object_form(value: dict[str, object], findings: Findings) -> _Form:
    given = members(value, "/schedule", _MEMBERS, findings)
    _limit_union(given.get("cron"), "/schedule/cron", findings)
    for long in _IN_SECONDS:
        short = f"{long}_sec"
        if short in given and long not in given:
            text = format_duration(parse_seconds(given.pop(short), pointer=f"/schedule/{short}"))
            return _Form({long: text, **given}, rewritten=True, said=(f"/schedule/{long}", f"/schedule/{short}"))
        if short in given:
            raise InvalidDefinition.of(f"/schedule/{short}", f'is given twice: as "{short}" and as "{long}"')
    return _Form(given, rewritten=False)


def _limit_union(crons: object, pointer: str, findings: Findings) -> None:
    if isinstance(crons, list) and len(crons) > findings.limits.crons_per_union_max:
        message = f"must be a list of at most {findings.limits.crons_per_union_max} expressions"
        raise InvalidDefinition.of(pointer, message)


def _as_said(refused: InvalidDefinition, said: tuple[str, str] | None) -> InvalidDefinition:
    """The same problems under the names the sender used."""
    if said is None:
        return refused
    long, short = said
    return InvalidDefinition(
        tuple(
            Problem(short + problem.pointer.removeprefix(long), problem.message)
            if problem.pointer.startswith(long)
            else problem
            for problem in refused.problems
        )
    )
