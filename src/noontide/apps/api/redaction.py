"""What looks like a secret in payloads and results is not shown: values of members whose names say so."""

from __future__ import annotations

import json
import re
from typing import Any, Final

HIDDEN: Final = "•••"
"""What is shown instead."""


_SECRET: Final = re.compile(
    r"passw|secret|token|credential|authorization|cookie|(api|private|access|account)[-_ ]?key|signature", re.IGNORECASE
)
_SECRET_BYTES: Final = re.compile(_SECRET.pattern.encode(), re.IGNORECASE)


def redacted(document: bytes) -> tuple[bytes, list[str]]:
    """A JSON text without the values of members whose names sound like secrets, and where these were (pointers).

    A text in which nothing is hidden stays as it is, to the byte.
    """
    if b"\\" not in document and _SECRET_BYTES.search(document) is None:  # a name may be written with escapes
        return document, []
    try:
        value = json.loads(document)  # unlike faster parsers it keeps integers of any size
    except (ValueError, RecursionError):
        return json.dumps(HIDDEN).encode(), [""]
    hidden: list[str] = []
    cleared = _without(value, "", hidden)
    return (json.dumps(cleared, ensure_ascii=False).encode(), hidden) if hidden else (document, [])


def _without(value: Any, at: str, hidden: list[str]) -> Any:
    if isinstance(value, list):
        return [_without(each, f"{at}/{place}", hidden) for place, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    cleared = {}
    for name, each in value.items():
        pointer = f"{at}/{name.replace('~', '~0').replace('/', '~1')}"
        if _SECRET.search(name) and each is not None:
            hidden.append(pointer)
            cleared[name] = HIDDEN
        else:
            cleared[name] = _without(each, pointer, hidden)
    return cleared
