"""Durations and instants as people type them: `5s`, `1h30m`, `10m` ago."""

from __future__ import annotations

import re
from typing import Final

from noontide.core.durations import format_duration, parse_duration
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT = re.compile(r"(?:\d+(?:ms|[smhdw]))+", re.ASCII)
_PART = re.compile(r"(\d+)(ms|[smhdw])", re.ASCII)
FORM: Final = "a duration such as 5s, 2m, 1h30m, 1d, or ISO 8601 such as PT15M"


def parse_span_ms(text: str, *, pointer: str) -> int:
    """Milliseconds of a duration, short or ISO 8601. Raises InvalidDefinition."""
    if not _SHORT.fullmatch(text):
        if text[:1] == "P":
            return parse_duration(text, pointer=pointer)
        raise InvalidDefinition.of(pointer, f"{text!r} is not {FORM}")
    span_ms = sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if span_ms == 0:
        raise InvalidDefinition.of(pointer, "must be longer than nothing")
    return span_ms


def is_span(text: str) -> bool:
    """Whether a text has the form of a duration."""
    return _SHORT.fullmatch(text) is not None or text[:1] == "P"


def iso_span(text: str, *, pointer: str) -> str:
    """The duration in ISO 8601, as definitions have it."""
    return format_duration(parse_span_ms(text, pointer=pointer))


def parse_since_ms(text: str, *, now_ms: int, pointer: str) -> int:
    """An instant: RFC 3339, or how long ago."""
    if is_span(text):
        return now_ms - parse_span_ms(text, pointer=pointer)
    return parse_instant(text, zone=None, pointer=pointer)


def words(span_ms: int) -> str:
    """A span in at most two units, for people: `4 ms`, `1.2 s`, `2 min 5 s`, `3 h 20 min`, `12 d 4 h`."""
    if abs(span_ms) < 1_000:
        return f"{span_ms} ms"
    sign, seconds = ("-" if span_ms < 0 else ""), abs(span_ms) / 1000
    if seconds < 60:
        return f"{sign}{seconds:.1f}".removesuffix(".0") + " s"
    return sign + _two_units(round(seconds))


def _two_units(seconds: int) -> str:
    for (name, size), (smaller, part) in (
        (("d", 86_400), ("h", 3_600)),
        (("h", 3_600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds} s"
