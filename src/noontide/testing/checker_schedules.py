"""When jobs should have run, worked out a second time: croniter over naive local time, zoneinfo, plain arithmetic.

Shares nothing with `core`: a mistake there must not be repeated here. What this cannot judge it says (`NotJudged`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from croniter import croniter

DAY_MS: Final = 86_400_000
RELAXED_MAX_MS: Final = 300_000
"""A relaxed job starts at most five minutes, or a tenth of its period, after it is due (docs: timing)."""

_DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?", re.ASCII)
_UNITS_MS: Final = (7 * DAY_MS, DAY_MS, 3_600_000, 60_000, 1_000)
_NOT_CRONITERS = re.compile(r"W|L-|[0-9A-Z]L|/L", re.ASCII)
_FIVE_FIELDS: Final = 5
_SEVEN_FIELDS: Final = 7


class NotJudged(Exception):
    """A definition whose occurrences are not worked out here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The occurrences of one definition up to the end of the judgement.

    dues: ms, ascending, of everything after `from_ms`, bounds of the definition applied.
    slack_ms: how much later than due a start may be planned. signature: equal when two definitions plan the same.
    """

    dues: Sequence[int]
    slack_ms: int
    signature: object
    one_off: bool = False

    def between(self, after_ms: int, until_ms: int) -> Sequence[int]:
        """Those with after_ms < due <= until_ms."""
        return self.dues[bisect_right(self.dues, after_ms) : bisect_right(self.dues, until_ms)]


@dataclass(slots=True, kw_only=True)
class Planner:
    """Plans definitions over one window of time, remembering what cron expressions give."""

    from_ms: int
    until_ms: int
    _crons: dict[tuple[str, bool, str], tuple[int, ...]] = field(default_factory=dict)

    def plan(self, document: Mapping[str, object]) -> Plan:
        """The plan of a definition as it is on `jobs`. Raises NotJudged."""
        _refuse_unknown(document)
        schedule = document.get("schedule")
        if not isinstance(schedule, Mapping):
            raise NotJudged("has no schedule of its own")
        zone = str(document.get("timezone") or "UTC")
        dues = self._dues(schedule, zone)
        starts_ms, ends_ms = (_bound_ms(document, name, zone) for name in ("starts_at", "ends_at"))
        first = 0 if starts_ms is None else bisect_left(dues, starts_ms)
        last = len(dues) if ends_ms is None else bisect_right(dues, ends_ms)
        kept = dues[first:last]
        signature = (repr(schedule), zone, starts_ms, ends_ms, document.get("max_runs"))
        one_off = "at" in schedule
        return Plan(dues=kept, slack_ms=_slack_ms(document, dues), signature=signature, one_off=one_off)

    def _dues(self, schedule: Mapping[str, object], zone: str) -> Sequence[int]:
        match schedule:
            case {"at": str(at)}:
                return (instant_ms(at, zone),)
            case {"every": str(every), "anchor": str(anchor)}:
                return self._interval(duration_ms(every), instant_ms(anchor, zone))
            case {"cron": [*crons]}:
                seconds = bool(schedule.get("seconds"))
                return tuple(sorted({due for cron in crons for due in self._cron(str(cron), seconds, zone)}))
            case {"cron": str(cron)}:
                return self._cron(cron, bool(schedule.get("seconds")), zone)
        raise NotJudged(f"its kind of schedule is not judged: {', '.join(schedule)}")

    def _interval(self, every_ms: int, anchor_ms: int) -> Sequence[int]:
        first_ms = anchor_ms + ((self.from_ms - anchor_ms) // every_ms + 1) * every_ms
        return range(first_ms, self.until_ms + 1, every_ms)  # no list: a bench has many

    def _cron(self, cron: str, seconds: bool, zone: str) -> tuple[int, ...]:  # noqa: FBT001 - a part of the key
        key = (cron, seconds, zone)
        if key not in self._crons:
            self._crons[key] = tuple(sorted(set(self._cron_instants(cron, seconds=seconds, zone=ZoneInfo(zone)))))
        return self._crons[key]

    def _cron_instants(self, cron: str, *, seconds: bool, zone: ZoneInfo) -> Iterator[int]:
        expression = _for_croniter(cron)
        fixed = _is_fixed(expression, seconds=seconds)
        margin = timedelta(seconds=1) if zone.key == "UTC" else timedelta(days=1)  # clocks that change
        local = datetime.fromtimestamp(self.from_ms // 1000, zone).replace(tzinfo=None) - margin
        last = datetime.fromtimestamp(self.until_ms // 1000, zone).replace(tzinfo=None) + margin
        try:
            times = croniter(expression, local, second_at_beginning=True)
            while (local := times.get_next(datetime)) <= last:
                for due_ms in _instants(local, zone, fixed=fixed):
                    if self.from_ms < due_ms <= self.until_ms:
                        yield due_ms
        except (ValueError, KeyError) as error:
            raise NotJudged(f"croniter does not read {cron!r}: {error}") from error


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration without months and years."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise NotJudged(f"the duration {text!r} is not read")
    *whole, fraction = found.groups(default="0")
    return sum(int(number) * unit for number, unit in zip(whole, _UNITS_MS, strict=True)) + int(fraction.ljust(3, "0"))


def instant_ms(text: str, zone: str) -> int:
    """Milliseconds of an RFC 3339 instant, or of a local time in the zone."""
    moment = datetime.fromisoformat(text.replace("z", "Z").replace("t", "T"))
    if moment.tzinfo is None:
        (found, *_) = _instants(moment, ZoneInfo(zone), fixed=True)
        return found
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def _refuse_unknown(document: Mapping[str, object]) -> None:
    for name in ("after", "calendar", "dst"):
        if document.get(name):
            raise NotJudged(f"`{name}` is not looked at")


def _for_croniter(cron: str) -> str:
    expression = cron.strip().upper().replace("?", "*")
    if expression.startswith("@"):
        return expression.lower().replace("@midnight", "@daily")
    fields = expression.split()
    if not _FIVE_FIELDS <= len(fields) <= _SEVEN_FIELDS:
        raise NotJudged(f"{cron!r} has {len(fields)} fields")
    if any(part.startswith("H") for part in fields):
        raise NotJudged("H depends on the id, by a rule that is not repeated here")
    if _NOT_CRONITERS.search(expression.replace("WED", "")):
        raise NotJudged(f"croniter reads {cron!r} in another way, or not at all")
    days = fields[-3], fields[-1]
    if len(fields) < _SEVEN_FIELDS and all(day != "*" for day in days) and any(day[0] == "*" for day in days):
        raise NotJudged(f"both day fields of {cron!r} are restricted, one by a step over all")
    return expression


def _is_fixed(expression: str, *, seconds: bool) -> bool:
    """Whether minute and hour name times of the day, which a change of the clocks moves; see docs: daylight saving."""
    if expression.startswith("@"):
        return expression != "@hourly"
    minute, hour, *_ = expression.split()[1 if seconds else 0 :]
    return not minute.startswith("*") and not hour.startswith("*")


def _instants(local: datetime, zone: ZoneInfo, *, fixed: bool) -> list[int]:
    """The instants at which clocks in the zone show a local time, after the default rules for gaps and repetitions."""
    passes = [moment for fold in (0, 1) if _exists(moment := local.replace(tzinfo=zone, fold=fold))]
    found = sorted({round(moment.timestamp() * 1000) for moment in passes})
    if found:
        return found[:1] if fixed else found
    return [_end_of_gap_ms(local, zone)] if fixed else []


def _exists(moment: datetime) -> bool:
    back = moment.astimezone(UTC).astimezone(moment.tzinfo)
    return back.replace(tzinfo=None) == moment.replace(tzinfo=None)


def _end_of_gap_ms(local: datetime, zone: ZoneInfo) -> int:
    """The instant of the change that skips this local time, found by halving."""
    before, after = sorted(round(local.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    old = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after * 1000


def _bound_ms(document: Mapping[str, object], name: str, zone: str) -> int | None:
    text = document.get(name)
    return None if text is None else instant_ms(str(text), zone)


def _slack_ms(document: Mapping[str, object], dues: Sequence[int]) -> int:
    timing, schedule = document.get("timing"), document.get("schedule")
    if isinstance(timing, Mapping):
        return duration_ms(str(timing.get("window")))
    assert isinstance(schedule, Mapping)
    if timing == "exact" or (timing is None and "at" in schedule):
        return 0
    if "every" in schedule:
        return min(RELAXED_MAX_MS, duration_ms(str(schedule["every"])) // 10)
    gaps = [later - earlier for earlier, later in pairwise(dues)]
    return min([RELAXED_MAX_MS, *(gap // 10 for gap in gaps)])
