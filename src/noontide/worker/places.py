"""How many attempts a worker may have at once, and how many it has."""

from __future__ import annotations


class Places:
    """`count` places; time is the desk's."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = 0
        self._full_since_ms: float | None = None

    @property
    def free(self) -> int:
        """Places that can be taken."""
        return self.count - self.taken

    def take(self, now_ms: float) -> None:
        """Take one; only when one is free."""
        assert self.taken < self.count, "no place is free"
        self.taken += 1
        if self.taken == self.count:
            self._full_since_ms = now_ms

    def give_back(self) -> None:
        """Free one."""
        self.taken -= 1
        self._full_since_ms = None
        assert self.taken >= 0, "a place was freed twice"

    def full_for_ms(self, now_ms: float) -> float:
        """How long no place has been free; below 0 while one is."""
        return -1.0 if self._full_since_ms is None else now_ms - self._full_since_ms
