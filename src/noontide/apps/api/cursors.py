"""Cursors: where a list goes on, as text that means nothing to the client."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

from noontide.core.dst import LAST_MS
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import FIRST_MS
from noontide.ports.history import Place

MAX_CHARS = 2_000
_REFUSAL = "is not a cursor of this list: give back `next_cursor` as it was"


def encode_cursor(kind: str, fields: dict[str, Any]) -> str:
    """A cursor of one kind of list."""
    return base64.urlsafe_b64encode(orjson.dumps({"of": kind, **fields})).rstrip(b"=").decode()


def decode_cursor(kind: str, text: str | None) -> dict[str, Any] | None:
    """The fields of a cursor; None without one. Raises InvalidDefinition for what is none of this kind."""
    if text is None:
        return None
    try:
        fields = orjson.loads(base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, UnicodeEncodeError):
        raise InvalidDefinition.of("/query/cursor", _REFUSAL) from None
    if len(text) > MAX_CHARS or not isinstance(fields, dict) or fields.get("of") != kind:
        raise InvalidDefinition.of("/query/cursor", _REFUSAL)
    return fields


def text_of(fields: dict[str, Any] | None, name: str) -> str:
    """A text in a cursor; "" without a cursor."""
    if fields is None:
        return ""
    found = fields.get(name)
    if not isinstance(found, str):
        raise InvalidDefinition.of("/query/cursor", _REFUSAL)
    return found


def place_in(fields: dict[str, Any] | None) -> Place | None:
    """The place behind which a list of executions goes on; None = from its begin."""
    if not fields or "due" not in fields:
        return None
    due_ms, run_id = fields["due"], text_of(fields, "run")
    if type(due_ms) is not int or not FIRST_MS <= due_ms <= LAST_MS or "\0" in run_id:
        raise InvalidDefinition.of("/query/cursor", _REFUSAL)
    return Place(due_ms, run_id)


def instant_in(fields: dict[str, Any], name: str) -> int | None:
    """An instant in a cursor, ms since the epoch; None when there is none."""
    found = fields.get(name)
    if found is None and fields.get("part") != "past":
        return None
    if type(found) is not int or not FIRST_MS <= found <= LAST_MS:
        raise InvalidDefinition.of("/query/cursor", _REFUSAL)
    return found


def offsets_of(fields: dict[str, Any], name: str) -> dict[str, int]:
    """Offsets by slot in a cursor."""
    found = fields.get(name)
    if not isinstance(found, dict) or not all(type(each) is int and 0 <= each < 1 << 62 for each in found.values()):
        raise InvalidDefinition.of("/query/cursor", _REFUSAL)
    if not all(each.isdigit() for each in found):
        raise InvalidDefinition.of("/query/cursor", _REFUSAL)
    return found
