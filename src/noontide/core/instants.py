"""Instants: RFC 3339 or local text in, milliseconds since the epoch (UTC) inside, canonical text out."""

from __future__ import annotations

import re
from datetime import date, datetime
from functools import lru_cache

from noontide.core.dst import DEFAULT_DST, LAST_MS, DstRule, resolve_local
from noontide.core.errors import InvalidDefinition
from noontide.core.zones import load_zone

Ms = int
"""Milliseconds since 1970-01-01T00:00:00Z; names of such values end in `_ms`."""

FIRST_MS = -62_135_596_800_000
"""The first instant of the year 1."""

_DAY_S = 86_400
_UNIX_DAY = 719_163
_TEXT_MAX = 64
_FORM = "an instant is text such as 2026-12-24T18:00:00Z, or without the offset for local time"
_TEXT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:([Zz])|([+-])(\d\d):(\d\d))?", re.ASCII
)
_CLOCKS = tuple(f"{minute // 60:02}:{minute % 60:02}" for minute in range(1440))
_BASIC_CLOCKS = tuple(clock.replace(":", "") for clock in _CLOCKS)
_TWO = tuple(f"{number:02}" for number in range(60))
_THREE = tuple(f"{number:03}" for number in range(1000))


def parse_instant(text: object, *, zone: str | None, pointer: str, dst: DstRule = DEFAULT_DST) -> Ms:
    """The instant a text names.

    zone: IANA name for texts without an offset; None is UTC. A local time in a gap or an overlap
    follows `dst`. Digits beyond the millisecond are cut, so the result is never later than the text.
    Raises InvalidDefinition for numbers (their unit is ambiguous), for years outside 1-9999, and for a
    local time that does not exist when `dst.gap` is `skip`.
    """
    found_ms = parse_optional_instant(text, zone=zone, pointer=pointer, dst=dst)
    if found_ms is None:
        raise InvalidDefinition.of(pointer, f"{text} does not exist in {zone}: the clock skips it")
    return found_ms


def parse_optional_instant(text: object, *, zone: str | None, pointer: str, dst: DstRule = DEFAULT_DST) -> Ms | None:
    """As `parse_instant`, with None for a local time that `dst` drops."""
    found = _matched(text, pointer=pointer)
    leap = found[6] == "60"
    local_ms = _local_ms(found, second=59 if leap else int(found[6] or 0), pointer=pointer)
    instant_ms: int | None
    if found[8] or found[9]:
        instant_ms = local_ms - _offset_ms(found, pointer=pointer)
    elif zone is None or zone == "UTC":
        instant_ms = local_ms
    else:
        instant_ms = resolve_local(load_zone(zone, pointer="/timezone"), local_ms, dst)
    return None if instant_ms is None else _checked(instant_ms, leap=leap, pointer=pointer)


def ms_of(moment: datetime) -> Ms:
    """The instant of a moment that has a zone, to the nearest millisecond."""
    return round(moment.timestamp() * 1000)


@lru_cache(maxsize=8192)  # a wave names few instants many times
def format_instant(instant_ms: Ms) -> str:
    """RFC 3339 in UTC with milliseconds: `2026-12-24T18:00:00.000Z`."""
    second, millis = divmod(instant_ms, 1000)
    day, second = divmod(second, _DAY_S)
    return f"{_date(day)}T{_CLOCKS[second // 60]}:{_TWO[second % 60]}.{_THREE[millis]}Z"


@lru_cache(maxsize=8192)
def instant_bytes(instant_ms: Ms) -> bytes:
    """As `format_instant`, in ASCII bytes."""
    return format_instant(instant_ms).encode()


@lru_cache(maxsize=8192)
def format_basic(instant_ms: Ms) -> str:
    """ISO 8601 basic form in UTC: `20261224T180000Z`, with `.123` before the Z only when not zero."""
    second, millis = divmod(instant_ms, 1000)
    day, second = divmod(second, _DAY_S)
    if millis:
        return f"{_basic_date(day)}T{_BASIC_CLOCKS[second // 60]}{_TWO[second % 60]}.{_THREE[millis]}Z"
    return f"{_basic_date(day)}T{_BASIC_CLOCKS[second // 60]}{_TWO[second % 60]}Z"


@lru_cache(maxsize=1024)
def _date(day: int) -> str:
    return date.fromordinal(day + _UNIX_DAY).isoformat()


@lru_cache(maxsize=1024)
def _basic_date(day: int) -> str:
    return _date(day).replace("-", "")


def _matched(text: object, *, pointer: str) -> re.Match[str]:
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise InvalidDefinition.of(pointer, f"a number is not accepted, since its unit is ambiguous; {_FORM}")
    if not isinstance(text, str):
        raise InvalidDefinition.of(pointer, _FORM)
    found = _TEXT.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if found is None:
        numeric = re.fullmatch(r"[+-]?\d+(?:\.\d+)?", text[:_TEXT_MAX])
        why = "a number is not accepted, since its unit is ambiguous" if numeric else f"{text[:_TEXT_MAX]!r} is not one"
        raise InvalidDefinition.of(pointer, f"{why}; {_FORM}")
    return found


def _local_ms(found: re.Match[str], *, second: int, pointer: str) -> int:
    hour, minute = int(found[4]), int(found[5])
    if hour > 23 or minute > 59 or second > 59:
        raise InvalidDefinition.of(pointer, "hours are 00-23, minutes and seconds 00-59")
    try:
        day = date(int(found[1]), int(found[2]), int(found[3])).toordinal() - _UNIX_DAY
    except ValueError:
        raise InvalidDefinition.of(pointer, f"{found[1]}-{found[2]}-{found[3]} is not a date of the calendar") from None
    millis = int((found[7] or "")[:3].ljust(3, "0"))
    return (day * _DAY_S + hour * 3600 + minute * 60 + second) * 1000 + millis


def _offset_ms(found: re.Match[str], *, pointer: str) -> int:
    if found[8]:
        return 0
    hours, minutes = int(found[10]), int(found[11])
    if hours > 23 or minutes > 59:
        raise InvalidDefinition.of(pointer, "an offset is between -23:59 and +23:59")
    return (hours * 60 + minutes) * 60_000 * (-1 if found[9] == "-" else 1)


def _checked(instant_ms: int, *, leap: bool, pointer: str) -> int:
    if leap:
        if instant_ms // 1000 % _DAY_S != _DAY_S - 1:
            raise InvalidDefinition.of(pointer, "second 60 exists at 23:59:60 UTC only")
        instant_ms = (instant_ms // 1000 + 1) * 1000
    if not FIRST_MS <= instant_ms <= LAST_MS:
        raise InvalidDefinition.of(pointer, "must lie between the years 1 and 9999 in UTC")
    return instant_ms
