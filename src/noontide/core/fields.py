"""Reading single JSON values: each reader takes (value, pointer), gives the typed value or raises InvalidDefinition.

`Findings` collects what is wrong with a whole document, so that its sender hears everything at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from noontide.core.durations import format_duration, parse_duration, parse_seconds
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.limits import Limits

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Reader = Callable[[object, str], T]

_control_characters = re.compile(r"[\x00-\x1f\x7f]").search
_control_characters_but_breaks = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]").search
_NAME_FORM = "letters, digits, '.', '_' and '-'"
_DURATION_MAX_CHARS = 32  # longer ones are not remembered
_matches_name = re.compile(r"[A-Za-z0-9._-]+").fullmatch


class Findings:
    """What one reading found: `problems` refuse the document, `unknown` names are refused or only warned about."""

    __slots__ = ("limits", "problems", "unknown")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.problems: list[Problem] = []
        self.unknown: list[Problem] = []

    def refuse(self, pointer: str, message: str) -> None:
        """Note one problem and go on."""
        self.problems.append(Problem(pointer, message))

    def read(self, reader: Reader[T], value: object, pointer: str) -> T | None:
        """The value as the reader gives it; None with the problems noted when it refuses."""
        try:
            return reader(value, pointer)
        except InvalidDefinition as refused:
            self.problems.extend(refused.problems)
            return None

    def note_unknown(self, name: str, pointer: str, known: Collection[str]) -> None:
        """Note a name that means nothing here, with the nearest one that does."""
        count, maximum = len(self.unknown), self.limits.warnings_max
        if count < maximum:
            message = f"is not a known field{nearest(name, known)}"
            self.unknown.append(Problem(f"{pointer}/{escape(name[:64])}", message))
        elif count == maximum:
            self.unknown.append(Problem(pointer, "has more unknown fields than are listed here"))


def nearest(name: str, known: Collection[str]) -> str:
    """'; did you mean ...?' with the closest known name, or '' when none is close (long names are not compared)."""
    close = difflib.get_close_matches(name, known, n=1) if len(name) <= 64 else []
    return f'; did you mean "{close[0]}"?' if close else ""


def escape(name: str) -> str:
    """One reference token of a JSON pointer (RFC 6901, section 4)."""
    return name.replace("~", "~0").replace("/", "~1")


def members(value: object, pointer: str, known: Collection[str], findings: Findings) -> dict[str, object]:
    """The known members of an object that are not null; unknown ones are noted. Refuses what is not an object."""
    if not isinstance(value, dict):
        raise InvalidDefinition.of(pointer, f"must be an object with {listed(known)}")
    if len(value) > findings.limits.fields_max:
        raise InvalidDefinition.of(pointer, f"has more than {findings.limits.fields_max} members")
    for name in value:
        if name not in known:
            findings.note_unknown(name, pointer, known)
    return {name: item for name, item in value.items() if item is not None and name in known}


def listed(names: Iterable[str]) -> str:
    """Names in double quotes, parted by commas."""
    return ", ".join(f'"{name}"' for name in names)


def one_of(choices: type[E]) -> Reader[E]:
    """A reader of the values of an enum."""
    by_value: Mapping[object, E] = {choice.value: choice for choice in choices}
    message = f"must be one of {listed(choice.value for choice in choices)}"

    def read(value: object, pointer: str) -> E:
        found = by_value.get(value) if isinstance(value, str) else None
        if found is None:
            raise InvalidDefinition.of(pointer, message)
        return found

    return read


def boolean(value: object, pointer: str) -> bool:
    """true or false, nothing that resembles them."""
    if isinstance(value, bool):
        return value
    raise InvalidDefinition.of(pointer, "must be true or false")


def integer(low: int, high: int) -> Reader[int]:
    """A reader of whole numbers within [low, high]; booleans and numbers with a fraction or exponent are refused."""
    message = f"must be a whole number from {low} to {high}"

    def read(value: object, pointer: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise InvalidDefinition.of(pointer, message)
        return value

    return read


def text(max_chars: int) -> Reader[str]:
    """A reader of one line of text: not empty, no control characters."""

    def read(value: object, pointer: str) -> str:
        if not isinstance(value, str) or not value or len(value) > max_chars:
            raise InvalidDefinition.of(pointer, f"must be a string of 1 to {max_chars} characters")
        if _control_characters(value):
            raise InvalidDefinition.of(pointer, "must not contain control characters")
        return value

    return read


def prose(max_chars: int) -> Reader[str]:
    """A reader of text for people: may be empty, may have line breaks and tabs, but no other control characters."""

    def read(value: object, pointer: str) -> str:
        if not isinstance(value, str) or len(value) > max_chars:
            raise InvalidDefinition.of(pointer, f"must be a string of at most {max_chars} characters")
        if _control_characters_but_breaks(value):
            raise InvalidDefinition.of(pointer, "must not contain control characters other than line breaks and tabs")
        return value

    return read


def name(max_chars: int) -> Reader[str]:
    """A reader of names that become parts of topics, keys or paths."""
    message = f"must be a name: 1 to {max_chars} characters of {_NAME_FORM}, not '.' or '..'"

    def read(value: object, pointer: str) -> str:
        if isinstance(value, str) and len(value) <= max_chars and _matches_name(value) and value not in (".", ".."):
            return value
        raise InvalidDefinition.of(pointer, message)

    return read


def several(reader: Reader[T], count_max: int) -> Reader[tuple[T, ...]]:
    """A reader of lists without repetition; every item that is refused is named."""

    def read(value: object, pointer: str) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > count_max:
            raise InvalidDefinition.of(pointer, f"must be a list of at most {count_max} items")
        items: list[T] = []
        problems: list[Problem] = []
        for position, item in enumerate(value):
            try:
                items.append(reader(item, f"{pointer}/{position}"))
            except InvalidDefinition as refused:
                problems.extend(refused.problems)
        if problems:
            raise InvalidDefinition(tuple(problems))
        if len(set(items)) < len(items):
            raise InvalidDefinition.of(pointer, "must not name the same thing twice")
        return tuple(items)

    return read


def duration(max_ms: int) -> Reader[int]:
    """A reader of ISO 8601 durations in milliseconds, at most `max_ms`."""

    def read(value: object, pointer: str) -> int:
        known_ms = known_duration_ms(value)
        return _at_most(parse_duration(value, pointer=pointer) if known_ms is None else known_ms, max_ms, pointer)

    return read


def seconds(max_ms: int) -> Reader[int]:
    """A reader of plain seconds (the fields whose names end in `_sec`), given in milliseconds."""

    def read(value: object, pointer: str) -> int:
        return _at_most(parse_seconds(value, pointer=pointer), max_ms, pointer)

    return read


def known_duration_ms(value: object) -> int | None:
    """The length in ms of an ISO 8601 duration; None for what `parse_duration` refuses, and for long texts."""
    return _duration_ms(value) if isinstance(value, str) and len(value) <= _DURATION_MAX_CHARS else None


@lru_cache(maxsize=1024)
def _duration_ms(text: str) -> int | None:
    """The duration, remembered since few are in use; None when it is refused."""
    try:
        return parse_duration(text, pointer="")
    except InvalidDefinition:
        return None


def _at_most(duration_ms: int, max_ms: int, pointer: str) -> int:
    if duration_ms > max_ms:
        raise InvalidDefinition.of(pointer, f"must be at most {format_duration(max_ms)}")
    return duration_ms
