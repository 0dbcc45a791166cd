"""Payloads as the annotation of a handler wants them, and what it returns as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from noontide.core.errors import InvalidDefinition
from noontide.records.worker_events import RESULT_MAX_BYTES
from noontide.worker.errors import PermanentError

Decode = Callable[[bytes], object]
EXCERPT_BYTES: Final = RESULT_MAX_BYTES // 8
"""Of a result that is too large this much is kept, since a byte can become six in a JSON string."""


class Result(NamedTuple):
    """A result as JSON text, b"" for nothing; truncated: it is a string with the beginning of what was returned."""

    text: bytes
    truncated: bool = False


NOTHING: Final = Result(b"")
_encode = msgspec.json.Encoder().encode


def decoder_for(annotation: Any, handler: str) -> Decode:
    """How the JSON text of a payload becomes what `annotation` says.

    bytes: the text itself. A pydantic model: by pydantic. Anything else: by msgspec, which knows dataclasses, Structs,
    TypedDicts, dict, list and so on. The decoder raises PermanentError for a payload that does not fit.
    Raises InvalidDefinition for an annotation that nobody can decode.
    """
    if annotation is bytes:
        return bytes
    if _is_pydantic(annotation):
        return _by_pydantic(annotation)
    try:
        return _by_msgspec(msgspec.json.Decoder(annotation).decode)
    except TypeError as error:
        raise InvalidDefinition.of(f"/handlers/{handler}/payload", f"cannot be decoded: {error}") from error


def encode_result(value: object) -> Result:
    """A returned value as JSON. Raises TypeError when it is none.

    What is over 64 KiB becomes a JSON string with its beginning, and `truncated`: the attempt has succeeded, and doing
    it again would not make its result smaller.
    """
    if value is None:
        return NOTHING
    try:
        text = value.model_dump_json().encode() if _is_pydantic(type(value)) else _encode(value)  # type: ignore[attr-defined]
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the result is not JSON: {error}") from error
    return Result(text) if len(text) <= RESULT_MAX_BYTES else Result(_excerpt(value, text), truncated=True)


def _excerpt(value: object, text: bytes) -> bytes:
    beginning = value[:EXCERPT_BYTES] if isinstance(value, str) else text[:EXCERPT_BYTES].decode("utf-8", "ignore")
    return json.dumps(beginning).encode()


def _is_pydantic(kind: object) -> bool:
    """Whether it is a model; pydantic is not imported for the question."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _by_msgspec(decode: Decode) -> Decode:
    def decoded(text: bytes) -> object:
        try:
            return decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PermanentError(f"the payload does not fit the handler: {error}") from error

    return decoded


def _by_pydantic(model: Any) -> Decode:
    def decoded(text: bytes) -> object:
        try:
            return model.model_validate_json(text)
        except ValueError as error:
            raise PermanentError(f"the payload does not fit the handler: {error}") from error

    return decoded
