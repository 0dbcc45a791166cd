"""Schedules: when a job is due, as values with a key that fully determines them.

    form                              class             next after t
    "0 6 * * *", {"cron": ...}        CronSchedule      next named local time
    {"cron": [..., ...]}              UnionSchedule     earliest of its members
    {"every": "PT15M", "anchor": t0}  IntervalSchedule  anchor + k x interval
    {"at": t}                         OneOff            t, once
    {"after_completion": "PT5M"}      AfterCompletion   t + delay, with t the end of the run

Equal keys share one evaluator through `schedule_from_key`, so that 100,000 jobs of a few expressions
cost a dictionary look-up each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache

from noontide.core.cron import parse_cron, parse_resolved
from noontide.core.cron_fields import CronFields
from noontide.core.dst import DEFAULT_DST, LAST_MS, DstRule, Gap, Repeat, Walk
from noontide.core.durations import parse_duration
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant, parse_optional_instant
from noontide.core.zones import Zone, load_zone

UNION_MAX = 64
"""Most cron expressions in one schedule."""
KEYS_KEPT = 32_768
"""Schedules kept by `schedule_from_key`."""
_KINDS = ("cron", "every", "at", "after_completion")
_COMPANIONS = {"cron": ("seconds",), "every": ("anchor",), "at": (), "after_completion": ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """A cron expression in a zone under a daylight-saving rule."""

    fields: CronFields
    zone: Zone = field(compare=False)
    dst: DstRule
    key: str
    walk: Walk = field(repr=False, compare=False)

    def next_after(self, after_ms: int) -> int | None:
        return self.walk.next_after(after_ms)

    def period_ms(self) -> int | None:
        return self.fields.period_ms()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionSchedule:
    """Several schedules as one; instants named by more than one member count once. Without members: never."""

    members: tuple[CronSchedule, ...]
    key: str

    def next_after(self, after_ms: int) -> int | None:
        found = [found_ms for member in self.members if (found_ms := member.next_after(after_ms)) is not None]
        return min(found, default=None)

    def period_ms(self) -> int | None:
        return min((member.fields.period_ms() for member in self.members), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSchedule:
    """anchor + k x interval for every whole k, in absolute time: no drift, no daylight saving."""

    every_ms: int
    anchor_ms: int

    @property
    def key(self) -> str:
        return f"every:{self.every_ms}:{self.anchor_ms}"

    def next_after(self, after_ms: int) -> int | None:
        next_ms = after_ms + self.every_ms - (after_ms - self.anchor_ms) % self.every_ms
        return next_ms if next_ms <= LAST_MS else None

    def period_ms(self) -> int | None:
        return self.every_ms


def one_off_key(at_ms: int) -> str:
    """The key of `OneOff`."""
    return f"at:{at_ms}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOff:
    """One instant."""

    at_ms: int

    @property
    def key(self) -> str:
        return one_off_key(self.at_ms)

    def next_after(self, after_ms: int) -> int | None:
        return self.at_ms if self.at_ms > after_ms else None

    def period_ms(self) -> int | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterCompletion:
    """A delay counted from the end of the previous run, or from the creation for the first."""

    delay_ms: int

    @property
    def key(self) -> str:
        return f"after:{self.delay_ms}"

    def next_after(self, after_ms: int) -> int | None:
        next_ms = after_ms + self.delay_ms
        return next_ms if next_ms <= LAST_MS else None

    def period_ms(self) -> int | None:
        return self.delay_ms


Schedule = CronSchedule | UnionSchedule | IntervalSchedule | OneOff | AfterCompletion


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleContext:
    """What a schedule's value needs from the rest of its definition."""

    timezone: str
    dst: DstRule = DEFAULT_DST
    job_id: str
    created_ms: int
    pointer: str = "/schedule"


def parse_schedule(value: object, *, context: ScheduleContext) -> Schedule:
    """The schedule of a definition's `schedule` value, in any of the forms above.

    `seconds` (true or "first") beside `cron` puts a field for seconds in front. Local times of `at` and
    `anchor` are in the context's zone. Raises InvalidDefinition for none or two kinds at once, unknown
    names, and whatever the parts refuse.
    """
    zone = load_zone(context.timezone, pointer="/timezone")
    if isinstance(value, str):
        return _cron(value, seconds=False, zone=zone, context=context)
    if not isinstance(value, Mapping):
        raise InvalidDefinition.of(context.pointer, f"must be a cron expression or an object with {_one_of(_KINDS)}")
    kind = _kind_of(value, pointer=context.pointer)
    pointer = f"{context.pointer}/{kind}"
    match kind:
        case "cron":
            return _cron_or_union(value, zone=zone, context=context)
        case "every":
            return IntervalSchedule(
                every_ms=parse_duration(value["every"], pointer=pointer), anchor_ms=_anchor_ms(value, context=context)
            )
        case "at":
            return _one_off(value["at"], context=context, pointer=pointer)
        case _:
            return AfterCompletion(delay_ms=parse_duration(value["after_completion"], pointer=pointer))


@lru_cache(maxsize=KEYS_KEPT)
def schedule_from_key(key: str) -> Schedule:
    """The schedule whose `key` this is; equal keys give the same object while it is kept.

    Raises InvalidDefinition when the text is no key.
    """
    kind, _, rest = key.partition(":")
    try:
        match kind:
            case "cron":
                return _cron_from_key(rest)
            case "union":
                return _union(tuple(_cron_from_key(each) for each in rest.split("|") if each))
            case "every":
                every, anchor = rest.split(":")
                return IntervalSchedule(every_ms=_positive(every), anchor_ms=int(anchor))
            case "at":
                return OneOff(at_ms=int(rest))
            case "after":
                return AfterCompletion(delay_ms=_positive(rest))
    except (ValueError, KeyError) as error:
        raise InvalidDefinition.of("", f"{key!r} is not the key of a schedule") from error
    raise InvalidDefinition.of("", f"{key!r} is not the key of a schedule")


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _kind_of(value: Mapping[str, object], *, pointer: str) -> str:
    kinds = [kind for kind in _KINDS if kind in value]
    if len(kinds) != 1:
        found = f"not {' and '.join(kinds)} together" if kinds else "found none of them"
        raise InvalidDefinition.of(pointer, f"must have exactly one of {', '.join(_KINDS)}; {found}")
    known = (kinds[0], *_COMPANIONS[kinds[0]])
    for name in value:
        if name not in known:
            close = get_close_matches(str(name), (*known, *_KINDS), n=1)
            hint = f"; did you mean {close[0]}?" if close and close[0] not in value else ""
            raise InvalidDefinition.of(f"{pointer}/{name}", f"unknown beside {kinds[0]}{hint}")
    return kinds[0]


def _cron_or_union(value: Mapping[str, object], *, zone: Zone, context: ScheduleContext) -> Schedule:
    given = value["cron"]
    seconds = _seconds(value, pointer=f"{context.pointer}/seconds")
    if not isinstance(given, list | tuple):
        return _cron(given, seconds=seconds, zone=zone, context=context, place="/cron")
    if not 1 <= len(given) <= UNION_MAX:
        raise InvalidDefinition.of(f"{context.pointer}/cron", f"a list has 1 to {UNION_MAX} expressions")
    members = tuple(
        _cron(each, seconds=seconds, zone=zone, context=context, place=f"/cron/{index}")
        for index, each in enumerate(given)
    )
    return members[0] if len(members) == 1 else _union(members)


def _seconds(value: Mapping[str, object], *, pointer: str) -> bool:
    given = value.get("seconds", False)
    if given is True or given == "first":
        return True
    if given is False or given is None:
        return False
    raise InvalidDefinition.of(pointer, 'must be true or "first" (seconds in front), or left out')


def _cron(given: object, *, seconds: bool, zone: Zone, context: ScheduleContext, place: str = "") -> CronSchedule:
    fields = parse_cron(given, seconds=seconds, job_id=context.job_id, pointer=context.pointer + place)
    return _shared_cron(fields.text, zone.name, context.dst)


def _cron_from_key(rest: str) -> CronSchedule:
    zone, gap, repeat, text = rest.split(":")
    return _shared_cron(text, zone, _RULES[gap, repeat])


_GAPS: tuple[Gap, ...] = ("next_valid", "shift", "skip")
_REPEATS: tuple[Repeat, ...] = ("first", "second", "both")
_RULES: dict[tuple[str, str], DstRule] = {
    (gap, repeat): DstRule(gap=gap, repeat=repeat) for gap in _GAPS for repeat in _REPEATS
}


@lru_cache(maxsize=KEYS_KEPT)
def _shared_cron(text: str, zone_name: str, dst: DstRule) -> CronSchedule:
    fields, zone = parse_resolved(text), load_zone(zone_name, pointer="/timezone")
    key = f"cron:{zone.name}:{dst.gap}:{dst.repeat}:{fields.text}"
    return CronSchedule(fields=fields, zone=zone, dst=dst, key=key, walk=Walk(fields, zone=zone, rule=dst))


def _union(members: tuple[CronSchedule, ...]) -> UnionSchedule:
    """Members in a fixed order, each once, so that equal sets have equal keys."""
    by_key = {member.key: member for member in members}
    keys = sorted(by_key)
    rest = "|".join(key.removeprefix("cron:") for key in keys)
    return UnionSchedule(members=tuple(by_key[key] for key in keys), key=f"union:{rest}")


def _anchor_ms(value: Mapping[str, object], *, context: ScheduleContext) -> int:
    if value.get("anchor") is None:
        return context.created_ms
    return parse_instant(
        value["anchor"], zone=context.timezone, pointer=f"{context.pointer}/anchor", dst=_existing(context.dst)
    )


def _one_off(at: object, *, context: ScheduleContext, pointer: str) -> Schedule:
    at_ms = parse_optional_instant(at, zone=context.timezone, pointer=pointer, dst=context.dst)
    # The rule "skip" drops a local time that does not exist: such a one-off never comes.
    return OneOff(at_ms=at_ms) if at_ms is not None else _union(())


def _existing(rule: DstRule) -> DstRule:
    """The rule for an instant that has to exist: an anchor is never dropped."""
    return rule if rule.gap != "skip" else DstRule(repeat=rule.repeat)


def _one_of(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}"
