"""Daylight saving: what happens to local times that do not exist or exist twice.

    the clock        what exists            fixed-time job              other cron job
    goes forward     02:00-03:00 missing    gap: next_valid | shift |   nothing to run: the
    (a gap)                                 skip                        hour is not there
    goes back        02:00-03:00 twice      repeat: first | second |    runs at every real
    (an overlap)                            both                        instant, both times

A local date that a zone skipped as a whole (30 December 2011 in Apia) is not a day of its calendar:
no rule makes it run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

from noontide.core.cron_fields import CronFields
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.zones import DAY_MS, NEVER_AFTER_MS, NEVER_BEFORE_MS, Segment, Zone

Gap = Literal["next_valid", "shift", "skip"]
Repeat = Literal["first", "second", "both"]

LAST_MS = 253_402_300_799_999
"""The last instant of the year 9999: the calendar ends here."""
_JUMP_MARGIN_MS = 2 * DAY_MS  # more than two offsets of a zone ever differ


@dataclass(frozen=True, slots=True, kw_only=True)
class DstRule:
    """What a fixed local time does in a gap and when it occurs twice."""

    gap: Gap = "next_valid"
    repeat: Repeat = "first"


DEFAULT_DST = DstRule()


def parse_dst(value: object, pointer: str) -> DstRule:
    """The rule of `{"gap": ..., "repeat": ...}`; both may be left out, None is the default rule."""
    if value is None:
        return DEFAULT_DST
    if not isinstance(value, dict):
        raise InvalidDefinition.of(pointer, 'must be an object such as {"gap": "next_valid", "repeat": "first"}')
    problems = [
        Problem(f"{pointer}/{name}", "unknown; only gap and repeat are known here")
        for name in value
        if name not in ("gap", "repeat")
    ]
    for name, allowed in (("gap", get_args(Gap)), ("repeat", get_args(Repeat))):
        if name in value and value[name] not in allowed:
            problems.append(Problem(f"{pointer}/{name}", f"must be one of {', '.join(allowed)}"))
    if problems:
        raise InvalidDefinition(tuple(problems))
    gap, repeat = value.get("gap", "next_valid"), value.get("repeat", "first")
    return DstRule(gap=cast("Gap", gap), repeat=cast("Repeat", repeat))


def resolve_local(zone: Zone, local_ms: int, rule: DstRule) -> int | None:
    """The instant of one local time (milliseconds since 1970 local); None in a gap under `skip`.

    A single time stays single: `both` counts as `first`.
    """
    passes: list[int] = []
    for segment in _segments_around(zone, local_ms):
        instant_ms = local_ms - segment.offset_ms
        if segment.start_ms <= instant_ms < segment.end_ms:
            passes.append(instant_ms)
        elif segment.start_ms + segment.offset_before_ms <= local_ms < segment.start_ms + segment.offset_ms:
            return _after_gap(segment, local_ms, rule.gap)
    assert passes, "a local time is in a segment or in a gap between two"
    return passes[-1] if rule.repeat == "second" else passes[0]


def _segments_around(zone: Zone, local_ms: int) -> Iterator[Segment]:
    segment = zone.segment_at(local_ms - DAY_MS - DAY_MS // 6)
    while segment.start_ms <= local_ms + DAY_MS + DAY_MS // 6:
        yield segment
        if segment.end_ms == NEVER_AFTER_MS:
            return
        segment = zone.segment_at(segment.end_ms)


def _after_gap(segment: Segment, local_ms: int, gap: Gap) -> int | None:
    match gap:
        case "next_valid":
            return segment.start_ms
        case "shift":
            return local_ms - segment.offset_before_ms
        case "skip":
            return None


class _Plan(NamedTuple):
    """One segment as a job sees it.

    Named local times count within [lo_ms, hi_ms), `moved_ms` besides; from settled_ms on nothing is moved.
    """

    start_ms: int
    end_ms: int
    lo_ms: int
    hi_ms: int
    offset_ms: int
    moved_ms: tuple[int, ...]
    settled_ms: int


_NO_PLAN = _Plan(0, 0, 0, 0, 0, (), 0)


class Moved(NamedTuple):
    """A local time that does not exist, and the instant that stands for it; None when it is dropped."""

    local_ms: int
    runs_ms: int | None


class Walk:
    """The instants of a cron expression in a zone, one after another.

    Keeps the plan of the segment it is in and its last answer, so that many jobs of one schedule that
    ask about one instant cost a comparison. Safe to share: each field is replaced whole.
    """

    __slots__ = ("_days", "_fields", "_first_s", "_last", "_last_s", "_plan", "_rule", "_step_s", "_times", "_zone")

    def __init__(self, fields: CronFields, *, zone: Zone, rule: DstRule) -> None:
        self._fields = fields
        self._times = fields.times
        self._days = fields.days
        self._first_s, self._last_s = fields.times[0], fields.times[-1]
        self._step_s = fields.times.step if isinstance(fields.times, range) else 0
        self._zone = zone
        self._rule = rule
        self._plan = _NO_PLAN
        self._last: tuple[int | None, int | None] = (None, None)

    def next_after(self, after_ms: int) -> int | None:
        """The first instant strictly greater than `after_ms`; None when there is none."""
        asked_ms, answer_ms = self._last
        if asked_ms == after_ms:
            return answer_ms
        _, _, _, hi_ms, offset_ms, _, settled_ms = self._plan
        if settled_ms <= after_ms < hi_ms:
            local_ms = self._local_after(after_ms + offset_ms)
            if local_ms is not None and local_ms - offset_ms < hi_ms:
                answer_ms = local_ms - offset_ms if local_ms - offset_ms <= LAST_MS else None
                self._last = (after_ms, answer_ms)
                return answer_ms
        answer_ms = self._search(after_ms)
        self._last = (after_ms, answer_ms)
        return answer_ms

    def moved_between(self, start_ms: int, end_ms: int) -> Iterator[Moved]:
        """The named times that fall into a gap which ends in (start_ms, end_ms], ascending."""
        at_ms = start_ms
        while self._fields.fixed_time and at_ms < end_ms:
            segment = self._zone.segment_at(at_ms)
            if segment.end_ms > end_ms:
                return
            later = self._zone.segment_at(segment.end_ms)
            for local_ms in self._named_in_gap(segment.end_ms + segment.offset_ms, segment.end_ms + later.offset_ms):
                yield Moved(local_ms, _after_gap(later, local_ms, self._rule.gap))
            at_ms = segment.end_ms

    def _search(self, after_ms: int) -> int | None:
        plan = self._plan
        if not plan.start_ms <= after_ms < plan.end_ms:
            plan = self._plan = self._plan_at(after_ms)
        while True:
            local_ms = self._local_after(max(after_ms, plan.lo_ms - 1) + plan.offset_ms)
            found_ms = NEVER_AFTER_MS if local_ms is None else local_ms - plan.offset_ms
            best_ms = found_ms if found_ms < plan.hi_ms else NEVER_AFTER_MS
            if plan.moved_ms and plan.moved_ms[-1] > after_ms:
                best_ms = min(best_ms, plan.moved_ms[bisect_right(plan.moved_ms, after_ms)])
            if best_ms != NEVER_AFTER_MS:
                return best_ms if best_ms <= LAST_MS else None
            # Nothing matches between here and found_ms, except local times that an overlap brings back.
            near = plan.end_ms - after_ms < _JUMP_MARGIN_MS
            if plan.end_ms == NEVER_AFTER_MS or (local_ms is None and not near):
                return None
            resume_ms = plan.end_ms if local_ms is None else max(plan.end_ms, found_ms - _JUMP_MARGIN_MS)
            plan = self._plan = self._plan_at(resume_ms)
            after_ms = resume_ms - 1

    def _local_after(self, local_ms: int) -> int | None:
        """The first local time named by the expression after `local_ms`, whether or not it exists."""
        day, second = divmod(local_ms // 1000, 86_400)
        if second >= self._last_s:
            found = self._days.first_on_or_after(day + 1)
        else:
            found = self._days.first_on_or_after(day)
            if found == day and second >= self._first_s:
                return (day * 86_400 + self._second_after(second)) * 1000
        return None if found is None else (found * 86_400 + self._first_s) * 1000

    def _second_after(self, second: int) -> int:
        """The first time of day after one that is neither before the first nor at or after the last."""
        if self._step_s:
            return second + self._step_s - (second - self._first_s) % self._step_s
        return self._times[bisect_right(self._times, second)]

    def _plan_at(self, instant_ms: int) -> _Plan:
        segment = self._zone.segment_at(instant_ms)
        start_ms, end_ms, offset_ms, before_ms, after_ms = segment
        if not self._fields.fixed_time:
            return _Plan(start_ms, end_ms, start_ms, end_ms, offset_ms, (), start_ms)
        first_pass_only = before_ms > offset_ms and self._rule.repeat == "first"
        second_pass_only = after_ms < offset_ms and self._rule.repeat == "second"
        lo_ms = start_ms + before_ms - offset_ms if first_pass_only else start_ms
        hi_ms = end_ms - offset_ms + after_ms if second_pass_only else end_ms
        moved_ms = tuple(self._moved(segment)) if before_ms < offset_ms else ()
        return _Plan(start_ms, end_ms, lo_ms, hi_ms, offset_ms, moved_ms, max((lo_ms, *moved_ms[-1:])))

    def _moved(self, segment: Segment) -> Iterator[int]:
        """Where the named times of the gap before a segment run instead, ascending."""
        if segment.start_ms == NEVER_BEFORE_MS:
            return
        low_ms = segment.start_ms + segment.offset_before_ms
        for local_ms in self._named_in_gap(low_ms, segment.start_ms + segment.offset_ms):
            instant_ms = _after_gap(segment, local_ms, self._rule.gap)
            if instant_ms is None or instant_ms >= segment.end_ms:
                return
            yield instant_ms
            if self._rule.gap == "next_valid":
                return

    def _named_in_gap(self, low_ms: int, high_ms: int) -> Iterator[int]:
        """Named local times in [low_ms, high_ms), leaving out dates that lie in it as a whole."""
        local_ms = self._local_after(low_ms - 1)
        while local_ms is not None and local_ms < high_ms:
            midnight_ms = local_ms - local_ms % DAY_MS
            if low_ms <= midnight_ms and midnight_ms + DAY_MS <= high_ms:
                local_ms = self._local_after(midnight_ms + DAY_MS - 1)
                continue
            yield local_ms
            local_ms = self._local_after(local_ms)
