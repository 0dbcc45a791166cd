"""Durations: ISO 8601 text or plain seconds in, milliseconds inside."""

from __future__ import annotations

import math
import re

from noontide.core.errors import InvalidDefinition

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
LONGEST_MS = 36_525 * DAY_MS
"""The longest accepted duration: 100 years."""

_ISO = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?",
    re.ASCII,
)
_CALENDAR = re.compile(r"P(?:\d+Y)?(?:\d+M)?(?:\d+W)?(?:\d+D)?(?:T.*)?", re.ASCII)
_UNITS_MS = {"weeks": 7 * DAY_MS, "days": DAY_MS, "hours": HOUR_MS, "minutes": MINUTE_MS, "seconds": SECOND_MS}
_TEXT_MAX = 64
_FORM = "a duration is ISO 8601 text such as PT15M, PT1H30M or P1D"


def parse_duration(value: object, *, pointer: str) -> int:
    """Milliseconds of `PnWnDTnHnMnS`; digits of a second beyond the third are cut.

    Raises InvalidDefinition for years and months (their length varies), zero, signs, numbers and
    anything above 100 years.
    """
    if not isinstance(value, str):
        raise InvalidDefinition.of(pointer, f"{_FORM}, not {_kind(value)}; seconds go in a field that ends in _sec")
    found = _ISO.fullmatch(value) if len(value) <= _TEXT_MAX else None
    if found is None or value == "P":
        raise InvalidDefinition.of(pointer, _why_not(value))
    total_ms = sum(int(found[name]) * unit_ms for name, unit_ms in _UNITS_MS.items() if found[name])
    total_ms += int((found["fraction"] or "")[:3].ljust(3, "0"))
    return _checked(total_ms, pointer=pointer)


def parse_seconds(value: object, *, pointer: str) -> int:
    """Milliseconds of a number of seconds, whole or not; used by fields that end in `_sec`.

    Raises InvalidDefinition for booleans, text, NaN, infinities, zero, negative numbers and anything
    above 100 years.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidDefinition.of(pointer, f"must be a number of seconds, not {_kind(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidDefinition.of(pointer, "must be a finite number of seconds")
    if abs(value) > LONGEST_MS:
        raise InvalidDefinition.of(pointer, "must be positive, and 100 years at most")
    return _checked(round(value * 1000), pointer=pointer)


def format_duration(duration_ms: int) -> str:
    """ISO 8601 with days as the largest unit: `P1DT2H`, `PT0.5S`; `PT0S` for zero, `-` in front below zero."""
    if duration_ms < 0:
        return "-" + format_duration(-duration_ms)
    days, rest_ms = divmod(duration_ms, DAY_MS)
    hours, rest_ms = divmod(rest_ms, HOUR_MS)
    minutes, rest_ms = divmod(rest_ms, MINUTE_MS)
    seconds, millis = divmod(rest_ms, SECOND_MS)
    fraction = f".{millis:03}".rstrip("0") if millis else ""
    clock = "".join(f"{amount}{unit}" for amount, unit in ((hours, "H"), (minutes, "M")) if amount)
    if seconds or millis:
        clock += f"{seconds}{fraction}S"
    if not days and not clock:
        return "PT0S"
    return "P" + (f"{days}D" if days else "") + (f"T{clock}" if clock else "")


def _checked(duration_ms: int, *, pointer: str) -> int:
    if duration_ms <= 0:
        raise InvalidDefinition.of(pointer, "must be at least a millisecond long")
    if duration_ms > LONGEST_MS:
        raise InvalidDefinition.of(pointer, "must be 100 years at most")
    return duration_ms


def _why_not(text: str) -> str:
    if text.startswith(("-", "+")) or "-" in text:
        return "a duration has no sign; it must be positive, such as PT15M"
    if len(text) <= _TEXT_MAX and _CALENDAR.fullmatch(text) and ("Y" in text or "M" in text.partition("T")[0]):
        return "months and years have no fixed length; use days, or a cron expression for calendar months"
    if len(text) <= _TEXT_MAX and _ISO.fullmatch(text.upper()) and text.upper() != "P":
        return f"{_FORM}, in capital letters"
    return f"{_FORM}; {text[:_TEXT_MAX]!r} is not"


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", type(None): "null", list: "a list"}
    return names.get(type(value), "an object")
