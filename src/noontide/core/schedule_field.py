"""Reading `schedule` and its short form `run_at`, and settling the anchor of an interval."""

from __future__ import annotations

from typing import NamedTuple

from noontide.core.dst import DstRule
from noontide.core.durations import format_duration, parse_seconds
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.fields import Findings, members
from noontide.core.instants import format_instant, parse_instant
from noontide.core.schedule import IntervalSchedule, Schedule, ScheduleContext, UnionSchedule, parse_schedule

FORMS = (
    'a cron expression such as "30 2 * * *", or one of {"cron": "..."}, {"every": "PT15M"}, '
    '{"at": "2026-12-24T18:00:00Z"}, {"after_completion": "PT5M"}'
)
_MEMBERS = ("cron", "seconds", "every", "every_sec", "anchor", "at", "after_completion", "after_completion_sec")
NEVER = UnionSchedule(members=(), key="union:")
"""The schedule of a job that only follows its upstreams."""
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

    required: whether a definition without a schedule is refused (it is unless it follows upstreams).
    created_ms: the anchor of an interval that has none. previous: the accepted schedule, in an update.
    """

    value: object
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


def read_schedule(
    question: ScheduleQuestion, *, local: LocalTime, findings: Findings
) -> tuple[Schedule, dict[str, object] | None]:
    """The schedule, and its long form (None = the text may stay as it is); NEVER when none is given and none required.

    Raises InvalidDefinition when it is missing, given twice, or not acceptable.
    """
    form = _long_form(question, findings)
    if form is None:
        return NEVER, None
    context = ScheduleContext(
        timezone=local.timezone, dst=local.dst, job_id=question.job_id, created_ms=question.created_ms
    )
    try:
        schedule = parse_schedule(form.value, context=context)
    except InvalidDefinition as refused:
        raise _as_said(refused, form.said) from None
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
            return _Form({"cron": value}, rewritten=True, said=("/schedule/cron", "/schedule"))
        case dict():
            return _object_form(value, findings)
        case _:
            raise InvalidDefinition.of("/schedule", f"must be {FORMS}")


def _object_form(value: dict[str, object], findings: Findings) -> _Form:
    given = members(value, "/schedule", _MEMBERS, findings)
    _limit_union(given.get("cron"), findings)
    for long in _IN_SECONDS:
        short = f"{long}_sec"
        if short in given and long not in given:
            text = format_duration(parse_seconds(given.pop(short), pointer=f"/schedule/{short}"))
            return _Form({long: text, **given}, rewritten=True, said=(f"/schedule/{long}", f"/schedule/{short}"))
        if short in given:
            raise InvalidDefinition.of(f"/schedule/{short}", f'is given twice: as "{short}" and as "{long}"')
    return _Form(given, rewritten=False)


def _limit_union(crons: object, findings: Findings) -> None:
    if isinstance(crons, list) and len(crons) > findings.limits.crons_per_union_max:
        message = f"must be a list of at most {findings.limits.crons_per_union_max} expressions"
        raise InvalidDefinition.of("/schedule/cron", message)


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
