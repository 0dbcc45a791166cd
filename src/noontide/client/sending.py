"""When a request is sent again, and after how long: the same for both clients, without waiting itself.

cannot connect, 429, 503          nothing was done: sent again, whatever it is (`Retry-After` is obeyed)
no answer, 408, 502, 504          it may have been done: sent again if that does nothing twice
202                               it is stored: its decision is asked for until it is there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import httpx
import msgspec
import orjson

from noontide.client.calls import Call, Document
from noontide.client.errors import ApiError, NoAnswer, NotFound, Unavailable, error_of
from noontide.client.models import Decided, Page
from noontide.client.settings import ClientSettings

T = TypeVar("T")
NOTHING_DONE: Final = frozenset((429, 503))
PERHAPS_DONE: Final = frozenset((408, 500, 502, 504))
_STATUS: Final = {"not-found": 404, "conflict": 409, "stale-version": 412, "too-large": 413, "quota": 429}
_QUOTA: Final = "quota"


@dataclass(slots=True)
class Attempts(Generic[T]):
    """One call from its first attempt to its end. jitter: 0 to 1, so that many clients do not come back at once."""

    call: Call[T]
    settings: ClientSettings
    jitter: float
    made: int = 0
    perhaps_done: bool = field(default=False)

    def after_error(self, error: httpx.HTTPError) -> float:
        """Seconds until the next attempt. Raises NoAnswer when there is none."""
        nothing_done = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        self.made += 1
        if self.made >= self.settings.attempts_max or not (nothing_done or self.call.repeatable):
            raise NoAnswer(f"{self.call.method} {self.call.path}: {str(error) or type(error).__name__}") from error
        self.perhaps_done |= not nothing_done
        return self._pause_s(None)

    def after_answer(self, response: httpx.Response) -> float | None:
        """Seconds until the next attempt; None when this answer is the last. Raises ApiError."""
        self.made += 1
        status = response.status_code
        if status < 400:
            return None
        problem = error_of(status, response.content)
        if self.perhaps_done and self.call.method == "DELETE" and isinstance(problem, NotFound):
            return None  # an earlier attempt has done it
        again = (status in NOTHING_DONE and problem.kind != _QUOTA) or (status in PERHAPS_DONE and self.call.repeatable)
        if not again or self.made >= self.settings.attempts_max:
            raise problem
        self.perhaps_done |= status in PERHAPS_DONE
        return self._pause_s(response.headers.get("retry-after"))

    def _pause_s(self, said: str | None) -> float:
        most_ms = self.settings.pause_max_ms
        if said is not None and said.isascii() and said.isdigit():
            return min(int(said) * 1_000, most_ms) / 1_000 + self.jitter * self.settings.pause_ms / 1_000
        doubled = self.settings.pause_ms << min(self.made - 1, 20)
        return min(doubled, most_ms) / 1_000 * (0.5 + self.jitter / 2)


def decided(response: httpx.Response) -> Decided | None:
    """What became of a stored write; None when nobody has decided yet. Raises ApiError for a refusal."""
    if response.status_code >= 400:
        raise error_of(response.status_code, response.content)
    found = msgspec.json.decode(response.content, type=Decided)
    if found.state != "decided":
        return None
    if found.verdict != "accepted":
        kind = found.refusal or "invalid"
        detail = "; ".join(f"{each.pointer} {each.message}".strip() for each in found.problems) or "refused"
        problem = error_of(_STATUS.get(kind, 422), b"")
        raise type(problem)(problem.status, kind, detail, tuple(found.problems))
    return found


def cursor_behind(page: Page[T]) -> str | None:
    """Where the list goes on; None at its end. Raises Unavailable when the rest cannot be read just now."""
    if page.older == "unreachable":
        raise Unavailable(503, "unavailable", "older executions cannot be read now: the history does not answer")
    return page.next_cursor


def in_chunks(definitions: Iterable[Document | bytes], most: int) -> Iterator[list[bytes]]:
    """Lines of JSON, at most so many at a time."""
    lines: list[bytes] = []
    for each in definitions:
        lines.append(each if isinstance(each, bytes) else orjson.dumps(dict(each)))
        if len(lines) == most:
            yield lines
            lines = []
    if lines:
        yield lines


def location_of(response: httpx.Response) -> str:
    """Where a stored write is asked for. Raises ApiError when the answer does not say."""
    location = response.headers.get("location")
    if not location:
        raise ApiError(response.status_code, "http", "202 without a place to ask")
    return str(location)
