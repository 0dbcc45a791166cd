"""Finished runs and decisions as something that remembers them longer than the topic does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Execution = Mapping[str, object]
"""One record of `executions`, with the fields and the spelling of the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFilter:
    """Which executions; what is None or empty is not looked at.

    since_ms, until_ms: of the nominal time, ms since the epoch; `until_ms` is not included.
    """

    tenant: str | None = None
    job_id: str | None = None
    states: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionPage:
    """Executions, the latest nominal time first; `next_cursor` gets the following ones, None at the end."""

    items: tuple[Execution, ...]
    next_cursor: str | None


class ExecutionHistory(Protocol):
    """Reads the history. Both methods raise NoontideError when it cannot be reached in time."""

    async def page(self, wanted: ExecutionFilter, *, limit: int, cursor: str | None = None) -> ExecutionPage:
        """At most `limit` of them, beginning behind a cursor. Raises InvalidDefinition for one that is not ours."""

    async def find(self, run_id: str, *, tenant: str | None = None) -> Execution | None:
        """The execution of a run, None when it is not (or no longer) there."""
