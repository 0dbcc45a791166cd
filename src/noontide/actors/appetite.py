"""How much of what is due a cycle takes: little after a rest, so that what follows begins soon, and then ever more.

Many jobs that fall due at one instant fill the first cycles of all slots of a process. Nothing of it is seen before the
first of them is committed, and no worker begins before all have had a turn: the smaller they are, the sooner.
"""

from __future__ import annotations


class Appetite:
    """Occurrences per cycle of one slot, from `first` to `most`: doubled when a cycle has taken most of what it may."""

    def __init__(self, *, first: int, most: int) -> None:
        self._first = min(first, most)
        self._most = most
        self.due = self._first

    def took(self, due: int) -> None:
        """A cycle has taken so many."""
        self.due = min(self._most, 2 * self.due) if 2 * due > self.due else self._first
