"""Cron expressions: the text people write, checked field by field and expanded by croniter.

    minute hour day-of-month month day-of-week                        five fields
    second minute hour day-of-month month day-of-week [year]          with "seconds": true

What croniter lacks or reads otherwise is handled here before it sees the text: `L-n`, `LW`, `nW` in
lists, `nL`, `FRIL`, mixed `n#k`, `H` with an even spread, single-value ranges (`8-8` is 8), steps
across a wrap-around, and everything refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from noontide.core.cron_fields import CronFields, DayOfMonth, DayOfWeek, DaySpec, day_table, times_of_day
from noontide.core.cron_hints import foreign_dialect
from noontide.core.errors import InvalidDefinition

TEXT_MAX = 512
"""Longest accepted expression, in characters."""
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, start=1)}
_WEEKDAYS = {name: number for number, name in enumerate(_WEEKDAY_NAMES)}
_MACROS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One field of an expression: its name in messages and the values it takes."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)
    spread_high: int  # `H` stays at or below this, so that it fires in every month

    @property
    def size(self) -> int:
        return self.high - self.low + 1


_SECOND = _Field(name="second", low=0, high=59, spread_high=59)
_MINUTE = _Field(name="minute", low=0, high=59, spread_high=59)
_HOUR = _Field(name="hour", low=0, high=23, spread_high=23)
_DAY = _Field(name="day of month", low=1, high=31, spread_high=28)
_MONTH = _Field(name="month", low=1, high=12, names=_MONTHS, spread_high=12)
_WEEKDAY = _Field(name="day of week", low=0, high=6, names=_WEEKDAYS, spread_high=6)
_YEAR = _Field(name="year", low=1970, high=2099, spread_high=0)
_FIELDS = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY, _YEAR)

_ITEM = re.compile(r"(?:(?P<star>\*)|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d{1,4}))?", re.ASCII)
_HASHED = re.compile(r"H(?:\((?P<low>\d{1,2})-(?P<high>\d{1,2})\))?(?:/(?P<step>\d{1,4}))?", re.ASCII)
_FROM_END = re.compile(r"L(?:-(?P<back>\d{1,2}))?", re.ASCII)
_NEAREST = re.compile(r"(?:(\d{1,2})W|W(\d{1,2}))", re.ASCII)
_NTH = re.compile(r"(?P<days>\w+(?:-\w+)?)#(?P<which>\d+)", re.ASCII)
_LAST = re.compile(r"(?:(?P<day>[0-7]|[A-Z]{3})L|L(?P<croniter_day>[0-7]))", re.ASCII)


def parse_cron(text: object, *, seconds: bool, job_id: str, pointer: str) -> CronFields:
    """The fields of an expression, `H` resolved for the job.

    seconds: the expression has a field for seconds in front and may have one for years at the end.
    Raises InvalidDefinition naming the field, or the number of fields; see docs/reference/schedules.md.
    """
    if not isinstance(text, str):
        raise InvalidDefinition.of(pointer, "a cron expression is a string such as '30 2 * * *'")
    try:
        parts = _split(_checked(text), seconds=seconds)
        return _parse(tuple(_resolved(part, of=of, job_id=job_id) for of, part in zip(_FIELDS, parts, strict=True)))
    except _Refused as refused:
        raise InvalidDefinition.of(pointer, foreign_dialect(text) or str(refused)) from None


def parse_resolved(text: str) -> CronFields:
    """The fields of a `CronFields.text`. Raises InvalidDefinition when it is none."""
    parts = tuple(text.split(" "))
    if len(parts) != len(_FIELDS):
        raise InvalidDefinition.of("", f"{text!r} does not have the seven fields of a resolved expression")
    try:
        return _parse(parts)
    except _Refused as refused:
        raise InvalidDefinition.of("", str(refused)) from None


class _Refused(Exception):
    """Why an expression is refused; `parse_cron` adds the pointer."""


def _checked(text: str) -> str:
    """The text in upper case; nothing in it but printable ASCII."""
    if len(text) > TEXT_MAX:
        raise _Refused(f"a cron expression has at most {TEXT_MAX} characters")
    for character in text:
        if not " " <= character <= "~":
            kind = "the control character" if character < " " or character == "\x7f" else "a character outside ASCII,"
            raise _Refused(f"{kind} {character!r} cannot be part of a cron expression")
    return text.strip().upper()


def _split(text: str, *, seconds: bool) -> tuple[str, ...]:
    """Seven fields, seconds first, year last."""
    if text.startswith("@"):
        if text not in _MACROS:
            known = " ".join(name.lower() for name in _MACROS)
            raise _Refused(f"{text.lower()} is not a known macro; known are {known}")
        return ("0", *_MACROS[text].split(), "*")
    parts = text.split()
    if seconds:
        if len(parts) not in (6, 7):
            order = "second minute hour day-of-month month day-of-week, then a year if wanted"
            raise _Refused(f"has {_counted(parts)}; with seconds 6 or 7 are expected: {order}")
        return (*parts, "*")[:7]
    if len(parts) != 5:
        hint = '; for seconds in front say {"cron": ..., "seconds": true}' if len(parts) in (6, 7) else ""
        order = "minute hour day-of-month month day-of-week"
        raise _Refused(f"has {_counted(parts)}; 5 are expected: {order}{hint}")
    return ("0", *parts, "*")


def _counted(parts: list[str]) -> str:
    return "1 field" if len(parts) == 1 else f"{len(parts) or 'no'} fields"


def _resolved(text: str, *, of: _Field, job_id: str) -> str:
    """A field's text with each `H` replaced by the job's own value."""
    if "H" not in text:
        return text
    return ",".join(_unhashed(item, of=of, job_id=job_id) for item in text.split(","))


def _unhashed(item: str, *, of: _Field, job_id: str) -> str:
    hashed = _HASHED.fullmatch(item)
    if hashed is None:
        return item
    if of is _YEAR:
        raise _Refused("year: H cannot choose a year")
    low, high = of.low, of.spread_high
    if hashed["low"] is not None:
        low, high = int(hashed["low"]), int(hashed["high"])
        if not of.low <= low < high <= of.high:
            raise _Refused(f"{of.name}: {item} needs a range inside {of.low}-{of.high}, the smaller value first")
    if hashed["step"] is None:
        return str(low + _spread(job_id, of.name, high - low + 1))
    step = _step(hashed["step"], of=of)
    first = low + _spread(job_id, of.name, min(step, high - low + 1))
    return f"{first}-{high}/{step}" if first < high else str(first)


def _spread(job_id: str, name: str, values: int) -> int:
    """A number below `values`, fixed by job and field; two fields of a job are independent."""
    digest = blake2b(f"{name}\0{job_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % values


@lru_cache(maxsize=8192)
def _parse(texts: tuple[str, ...]) -> CronFields:
    items = {of.name: _items(text, of=of) for of, text in zip(_FIELDS, texts, strict=True)}
    values = _expanded({of.name: _plain_items(items[of.name], of=of) for of in _FIELDS}, texts=texts)
    _, minute, hour, day, month, weekday, year = texts
    days = day_table(
        DaySpec(
            day_of_month=_day_of_month(items["day of month"], values["day of month"], text=day),
            day_of_week=_day_of_week(items["day of week"], values["day of week"], text=weekday),
            months=frozenset(values["month"]),
            years=None if year == "*" else frozenset(values["year"]),
        )
    )
    if days.never_matches():
        raise _Refused(f"day of month: {day} never comes with month {month}, day of week {weekday}, year {year}")
    return CronFields(
        text=" ".join(texts),
        times=times_of_day(values["second"], values["minute"], values["hour"]),
        days=days,
        fixed_time=not minute.startswith("*") and not hour.startswith("*"),
    )


class _Item(NamedTuple):
    """One member of a field's list: text for croniter, or one of the special forms."""

    plain: str | None = None
    from_end: int | None = None
    last_weekday: bool = False
    nearest: int | None = None
    nth: tuple[tuple[int, int], ...] = ()
    last: int | None = None


def _items(text: str, *, of: _Field) -> list[_Item]:
    if text == "?":
        if of not in (_DAY, _WEEKDAY):
            raise _Refused(f"{of.name}: ? is for day of month and day of week only; * means every value")
        return [_Item(plain="*")]
    special = {_DAY.name: _special_day, _WEEKDAY.name: _special_weekday}.get(of.name)
    found: list[_Item] = []
    for item in text.split(","):
        if not item:
            raise _Refused(f"{of.name}: {text} has an empty member in its list")
        found.append((special(item) if special else None) or _Item(plain=_plain(item, of=of)))
    return found


def _special_day(item: str) -> _Item | None:
    """`L`, `L-n`, `LW`, `nW`."""
    if item == "LW":
        return _Item(last_weekday=True)
    if found := _FROM_END.fullmatch(item):
        return _Item(from_end=_inside(found["back"] or "0", of=_DAY, low=0, high=30))
    if found := _NEAREST.fullmatch(item):
        return _Item(nearest=_inside(found[1] or found[2], of=_DAY, low=1, high=31))
    return None


def _special_weekday(item: str) -> _Item | None:
    """`n#k`, `MON-FRI#k`, `nL`, `FRIL`, `Ln`."""
    if item == "L":
        raise _Refused("day of week: L needs a day, such as 5L or FRIL for the last Friday; Saturday is 6 or SAT")
    if found := _NTH.fullmatch(item):
        which = _inside(found["which"], of=_WEEKDAY, low=1, high=5)
        low, _, high = found["days"].partition("-")
        return _Item(nth=tuple((day, which) for day in _cycle(low, high or low, step=1, of=_WEEKDAY)))
    if found := _LAST.fullmatch(item):
        return _Item(last=_value(found["day"] or found["croniter_day"], of=_WEEKDAY) % 7)
    return None


def _inside(text: str, *, of: _Field, low: int, high: int) -> int:
    if not low <= int(text) <= high:
        raise _Refused(f"{of.name}: {int(text)} is out of range {low}-{high}")
    return int(text)


def _plain(item: str, *, of: _Field) -> str:
    """A value, range or step as croniter reads it without surprise."""
    found = _ITEM.fullmatch(item)
    if found is None:
        raise _Refused(f"{of.name}: {item} is not a value, a range, a list or a step")
    step = _step(found["step"], of=of) if found["step"] else 1
    if found["star"]:
        return item
    low, high = found["low"], found["high"]
    if high is None and found["step"]:
        first = _value(low, of=of) % (7 if of is _WEEKDAY else 10_000)
        return f"{first}-{of.high}/{step}" if first < of.high else str(first)
    return ",".join(map(str, _cycle(low, high or low, step=step, of=of)))


def _cycle(low_text: str, high_text: str, *, step: int, of: _Field) -> Sequence[int]:
    """Values from low to high, past the end of the field and round again when high is the smaller."""
    low, high = _value(low_text, of=of), _value(high_text, of=of)
    if of is _WEEKDAY and low == 7:
        low, high = 0, high % 7
    if low > high:
        if of is _YEAR:
            raise _Refused(f"year: {low}-{high} ends before it begins")
        high += of.size
    return [of.low + (value - of.low) % of.size for value in range(low, high + 1, step)]


def _value(text: str, *, of: _Field) -> int:
    high = 7 if of is _WEEKDAY else of.high
    if text in of.names:
        return of.names[text]
    if not text.isdecimal() or len(text) > 4:
        known = f" or a name ({' '.join(of.names)})" if of.names else ""
        raise _Refused(f"{of.name}: {text} is not a number{known}")
    if not of.low <= int(text) <= high:
        raise _Refused(f"{of.name}: {int(text)} is out of range {of.low}-{high}")
    return int(text)


def _step(text: str, *, of: _Field) -> int:
    step = int(text)
    if step == 0:
        raise _Refused(f"{of.name}: a step of 0 never moves")
    if step > of.size:
        raise _Refused(f"{of.name}: step {step} is larger than the {of.size} values of the field; steps begin anew "
                       "with every cycle, so use an interval (\"every\") for longer distances")  # fmt: skip
    return step


def _plain_items(items: list[_Item], *, of: _Field) -> str:
    """The plain members of a field as one croniter field; `*` stands for none."""
    texts = [item.plain for item in items if item.plain is not None]
    return "*" if "*" in texts else ",".join(texts) or "*"


def _expanded(plain: dict[str, str], *, texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Values of each field, ascending, as croniter expands them."""
    from croniter.croniter import CroniterError, croniter  # 60 ms to import, and only parsing needs it

    order = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY, _SECOND, _YEAR)
    try:
        columns, _ = croniter.expand(" ".join(plain[of.name] for of in order))
    except CroniterError as error:
        raise _Refused(f"{' '.join(texts)}: {error}") from error
    return {of.name: tuple(_numbers(column, of=of)) for of, column in zip(order, columns, strict=True)}


def _numbers(column: Sequence[object], *, of: _Field) -> Iterator[int]:
    for value in column:
        if value == "*":
            yield from range(of.low, of.high + 1)
        elif isinstance(value, int):
            yield value


def _day_of_month(items: list[_Item], values: tuple[int, ...], *, text: str) -> DayOfMonth:
    return DayOfMonth(
        days=frozenset(values) if any(item.plain is not None for item in items) else frozenset(),
        from_end=frozenset(item.from_end for item in items if item.from_end is not None),
        nearest=frozenset(item.nearest for item in items if item.nearest is not None),
        last_weekday=any(item.last_weekday for item in items),
        unrestricted=text.startswith(("*", "?")),
    )


def _day_of_week(items: list[_Item], values: tuple[int, ...], *, text: str) -> DayOfWeek:
    return DayOfWeek(
        days=frozenset(values) if any(item.plain is not None for item in items) else frozenset(),
        nth=frozenset(pair for item in items for pair in item.nth),
        last=frozenset(item.last for item in items if item.last is not None),
        unrestricted=text.startswith(("*", "?")),
    )
