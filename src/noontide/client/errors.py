"""What can go wrong, by what one would do about it.

NoontideError
├── NoAnswer          the API cannot be reached, or did not answer in time
├── NotDecided        a write is stored, and nobody has decided it yet: it can be asked for again
└── ApiError          the API says no
    ├── Invalid            something in the request is wrong; `problems` says where
    ├── Unauthorised       the token is missing, unknown, or over
    ├── Forbidden          the token may not do this
    ├── NotFound           there is no such thing for this token
    ├── Conflict           it exists already, or is not in a state for this
    ├── StaleVersion       somebody else changed it in between
    ├── TooManyRequests    over a rate or a quota
    └── Unavailable        not now
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from noontide.client.models import Problem
from noontide.core.errors import NoontideError

_KIND_PREFIX: Final = "urn:noontide:problem:"


class NoAnswer(NoontideError):
    """The API cannot be reached, or did not answer in time; whether it did what was asked is not known."""


class NotDecided(NoontideError):
    """A write is stored and waits for its decision; `location` tells what became of it."""

    def __init__(self, location: str) -> None:
        super().__init__(f"the request is stored and not decided yet: {location}")
        self.location = location


class ApiError(NoontideError):
    """The API says no. kind: short name of the problem, such as "not-found"; problems: what is wrong where."""

    def __init__(self, status: int, kind: str, detail: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.problems = problems


class Invalid(ApiError):
    """400, 405, 413, 415, 422."""


class Unauthorised(ApiError):
    """401."""


class Forbidden(ApiError):
    """403."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409."""


class StaleVersion(ApiError):
    """412."""


class TooManyRequests(ApiError):
    """429."""


class Unavailable(ApiError):
    """5xx."""


_KINDS: Final[Mapping[int, type[ApiError]]] = {
    **dict.fromkeys((400, 405, 413, 415, 422), Invalid),
    401: Unauthorised,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: StaleVersion,
    429: TooManyRequests,
}


class _Document(msgspec.Struct):
    type: str = ""
    detail: str = ""
    title: str = ""
    errors: list[Problem] = []


def error_of(status: int, body: bytes) -> ApiError:
    """The error that an answer is, also when it is no problem document (of a proxy, say)."""
    kind = _KINDS.get(status, Unavailable if status >= 500 else ApiError)
    try:
        said = msgspec.json.decode(body, type=_Document)
    except msgspec.DecodeError:
        return kind(status, "http", f"HTTP {status}")
    return kind(
        status, said.type.removeprefix(_KIND_PREFIX), said.detail or said.title or f"HTTP {status}", tuple(said.errors)
    )
