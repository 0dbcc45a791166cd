"""Who works on which slots. A hint only: the lock of a slot is its transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Membership(Protocol):
    """Membership of the scheduler group."""

    async def join(self, on_slots: Callable[[frozenset[int]], None]) -> None:
        """Join; `on_slots` is called on the event loop with the whole set of this member's slots at every change."""

    async def leave(self) -> None:
        """Leave cleanly so that others take over at once; bounded, never raises."""
