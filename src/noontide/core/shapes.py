"""Values with parts, read from their JSON text and remembered: jobs differ, but their targets and policies repeat."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import orjson

from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.fields import Findings
from noontide.core.limits import Limits

Shaped = Callable[[object, str, Findings], tuple[object, object]]
"""A reader of a value with parts: gives the typed value and its long form (None = the text may stay as it is)."""

REMEMBERED_MAX = 8_192
REMEMBERED_MAX_BYTES = 1_024
"""Longer texts are read each time, so that what is remembered stays within 8 MiB."""


class Shape(NamedTuple):
    """What one text says. document: the value for the normalised document (its own text, or its long form)."""

    value: object
    document: object
    problems: tuple[Problem, ...]
    unknown: tuple[Problem, ...]


def shape_of(text: bytes, *, reader: Shaped, pointer: str, limits: Limits) -> Shape:
    """What the reader makes of a JSON text. The result may be shared: nobody changes it."""
    if len(text) > REMEMBERED_MAX_BYTES:
        return _read(text, reader, pointer, limits)
    return _remembered(text, reader, pointer, limits)


def _read(text: bytes, reader: Shaped, pointer: str, limits: Limits) -> Shape:
    findings = Findings(limits)
    value: object = None
    document: object = None
    try:
        value, long_form = reader(orjson.loads(text), pointer, findings)
        document = orjson.Fragment(text) if long_form is None else long_form
    except InvalidDefinition as refused:
        findings.problems.extend(refused.problems)
    return Shape(value, document, tuple(findings.problems), tuple(findings.unknown))


_remembered = lru_cache(maxsize=REMEMBERED_MAX)(_read)
