"""Changing a definition by a JSON merge patch (RFC 7396) without touching the text of what the patch leaves alone.

Members are moved as the JSON text they were sent as, so numbers beyond a double, key order and white space of the
payload survive; only objects that the patch reaches into are written anew.
"""

from __future__ import annotations

import orjson

from noontide.core.errors import InvalidDefinition
from noontide.core.payload import Texts, decode_json, depth_exceeds, member_texts

DEPTH_MAX = 64
SHORT_FORMS = {
    "run_at": "schedule",
    "timeout_sec": "timeout",
    "queue_deadline_sec": "queue_deadline",
    "complete_by_sec": "complete_by",
    "grace_sec": "grace",
}
"""A patch that speaks in the short form replaces the long one of the document (documents hold long forms)."""


def merge_patch(document: bytes, patch: object) -> bytes:
    """The document with the patch applied.

    document: a normalised definition. patch: decoded JSON, or JSON text as bytes (then its own texts survive too).
    Raises InvalidDefinition when the patch is not an object that strict JSON can say. The result is not validated.
    """
    text = patch if isinstance(patch, bytes) else _encode(patch)
    value = decode_json(text)
    if not isinstance(value, dict):
        raise InvalidDefinition.of("", "a patch must be a JSON object (RFC 7396)")
    if depth_exceeds(text, value, DEPTH_MAX):
        raise InvalidDefinition.of("", f"is nested deeper than {DEPTH_MAX} levels")
    target = member_texts(document)
    for short, long in SHORT_FORMS.items():
        if value.get(short) is not None and long not in value:
            target.pop(long, None)
    return _merge_members(target, member_texts(text))


def _encode(patch: object) -> bytes:
    try:
        return orjson.dumps(patch)
    except orjson.JSONEncodeError as refused:
        raise InvalidDefinition.of("", f"a patch must be a JSON object (RFC 7396): {refused}") from None


def _merge_members(target: Texts, patch: Texts) -> bytes:
    merged: dict[str, bytes] = {name: bytes(text) for name, text in target.items()}
    for name, raw in patch.items():
        text = bytes(raw)
        if text == b"null":
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name, b"null"), text)
    return orjson.dumps({name: orjson.Fragment(text) for name, text in merged.items()})


def _merged(target: bytes, patch: bytes) -> bytes:
    """The value of one member after the patch, both as JSON text."""
    if not patch.startswith(b"{"):
        return patch
    if target.startswith(b"{"):
        return _merge_members(member_texts(target), member_texts(patch))
    if b"null" not in patch:
        return patch  # nothing to remove: keep its text
    return _merge_members({}, member_texts(patch))
