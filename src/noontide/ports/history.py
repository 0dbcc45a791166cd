"""Finished runs and decisions as something that remembers them longer than the topic does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from noontide.core.instants import parse_instant

Execution = Mapping[str, object]
"""One record of `executions`, with the fields and the spelling of the topic."""
ENDED_SKEW_MS: Final = 600_000
"""By less than this the time at which a record says it ended differs from the time at which it was appended."""


class Place(NamedTuple):
    """Where an execution stands in lists, which have the greatest first: nominal time (ms since the epoch), run id.

    Both never change for a run, however often it ends.
    """

    due_ms: int
    run_id: str


def place_of(execution: Execution) -> Place:
    """The place of an execution. Raises InvalidDefinition or KeyError for what is none."""
    due = execution["due"]
    return Place(_instant_ms(due) if isinstance(due, str) else _parsed(due), str(execution["run_id"]))


def ended_ms_of(execution: Execution) -> int:
    """When it was closed or decided, ms since the epoch; its nominal time without one. Raises as `place_of`."""
    ended = execution.get("ended_at")
    return place_of(execution).due_ms if ended is None else _parsed(ended)


def _parsed(text: object) -> int:
    return parse_instant(text, zone="UTC", pointer="/due")


_instant_ms = lru_cache(maxsize=8_192)(_parsed)  # a wave names few instants many times


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFilter:
    """Which executions; what is None is not looked at, and neither are `states` when empty.

    since_ms, until_ms: of the nominal time, ms since the epoch; `until_ms` is not included. A decision over many
    occurrences that begins before `since_ms` and reaches it is included. ended_before_ms: see `ended_ms_of`.
    """

    tenants: tuple[str, ...] | None = None
    job_id: str | None = None
    states: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    ended_before_ms: int | None = None


class ExecutionHistory(Protocol):
    """Reads the history. Both methods raise NoontideError when it cannot be reached in time."""

    async def page(self, wanted: ExecutionFilter, *, limit: int, after: Place | None = None) -> Sequence[Execution]:
        """At most `limit` of them, in the order of their places, those behind `after`."""

    async def find(self, run_id: str, *, tenants: tuple[str, ...] | None = None) -> Execution | None:
        """The execution of a run, None when it is not (or no longer) there."""
