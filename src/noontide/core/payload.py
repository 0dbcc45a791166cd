"""From untrusted bytes to JSON members, keeping the text of each member as it was sent.

Strictness (UTF-8, no BOM, no NaN or numbers beyond a double, no lone surrogates, no control characters in strings,
nothing after the document) is orjson's; the text of the members comes from msgspec, after orjson accepted the whole.
Of a name that is given twice the last one counts, for both.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import orjson

from noontide.core.errors import InvalidDefinition, Problem, Refusal
from noontide.core.limits import Limits

Texts = dict[str, msgspec.Raw]

_decode_texts = msgspec.json.Decoder(Texts).decode
NO_PAYLOAD = b"null"
"""What runs carry when the definition has no payload."""
_FORM = "a JSON object in UTF-8"


class TooLarge(InvalidDefinition):
    """A definition or its payload is over a size limit (HTTP 413)."""

    refusal = Refusal.TOO_LARGE


class NotJson(InvalidDefinition):
    """What was sent is not strict JSON at all (HTTP 400)."""


class Members(NamedTuple):
    """The members of a JSON object: decoded, and the JSON text of each, byte for byte."""

    values: dict[str, object]
    texts: Texts


def decode_members(raw: bytes, *, limits: Limits) -> Members:
    """The members of the object that `raw` is; InvalidDefinition or TooLarge when it is none that can be accepted."""
    if len(raw) > limits.definition_max_bytes:
        raise TooLarge.of("", f"is {len(raw)} bytes, at most {limits.definition_max_bytes} are accepted")
    value = decode_json(raw)
    if not isinstance(value, dict):
        raise InvalidDefinition.of("", f"must be {_FORM}, not {kind_of(value)}")
    if depth_exceeds(raw, value, limits.depth_max):
        raise InvalidDefinition.of("", f"is nested deeper than {limits.depth_max} levels")
    return Members(value, member_texts(raw))


def plain_texts(raw: bytes, *, depth_max: int) -> Texts | None:
    """As the texts of `decode_members`, for a tenth of the cost: values are not decoded if there is another way.

    msgspec accepts two things that orjson refuses, text that is not UTF-8 and numbers beyond a double; a number that
    may be one is left to orjson. None for whatever is refused. Of any size: that is for the caller to look at.
    """
    marks = raw.translate(_MARKS)
    if marks.count(b"{") > depth_max:
        return None
    try:
        if not raw.isascii():
            raw.decode()
        if _MANY_DIGITS in marks or (_EXPONENT in marks and _has_exponent(raw)):
            orjson.loads(raw)
        return _decode_texts(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


_MARKS = bytes.maketrans(b"123456789E[", b"000000000e{")
"""Makes what `plain_texts` looks for alike: digits, the two letters of exponents, the two opening brackets."""
_EXPONENT, _MANY_DIGITS = b"0e", b"0" * 64
_has_exponent = re.compile(rb"[\s:,\[]-?[0-9.]+[eE]").search  # slower than the marks, but not fooled by UUIDs


def decode_json(raw: bytes) -> object:
    """Any JSON value, strictly; InvalidDefinition with the reason in words for the mistakes that are common."""
    if not raw:
        raise NotJson.of("", f"is empty; must be {_FORM}")
    if raw[0] == 0:
        raise NotJson.of("", f"begins with a zero byte, as schema registry encodings do; must be {_FORM}")
    try:
        value: object = orjson.loads(raw)
    except orjson.JSONDecodeError as refused:
        raise NotJson.of("", f"is not strict JSON ({refused}); must be {_FORM}") from None
    return value


def member_texts(raw: bytes) -> Texts:
    """The JSON text of each member of an object that is known to be valid JSON within the depth limit."""
    try:
        return _decode_texts(raw)
    except (msgspec.DecodeError, RecursionError) as refused:
        raise NotJson.of("", f"is not strict JSON ({refused}); must be {_FORM}") from None


def payload_text(text: msgspec.Raw | None, *, limits: Limits) -> bytes:
    """The payload's JSON text; b"null" when there is none. TooLarge over the limit, measured in bytes of that text."""
    if text is None:
        return NO_PAYLOAD
    payload = bytes(text)
    if len(payload) > limits.payload_max_bytes:
        message = f"is {len(payload)} bytes of JSON, at most {limits.payload_max_bytes} are accepted"
        raise TooLarge((Problem("/payload", message),))
    return payload


def depth_exceeds(raw: bytes, value: object, depth_max: int) -> bool:
    """Whether arrays and objects are nested deeper than `depth_max` (a flat document has depth 1)."""
    if raw.count(b"{") + raw.count(b"[") <= depth_max:
        return False  # fewer brackets than levels: the walk below is for the few
    level = [value]
    for _ in range(depth_max):
        level = [child for parent in level for child in _children(parent) if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def kind_of(value: object) -> str:
    """What a decoded JSON value is, in JSON's words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "a number"


def _children(parent: object) -> list[object]:
    match parent:
        case dict():
            return list(parent.values())
        case list():
            return parent
        case _:
            return []
