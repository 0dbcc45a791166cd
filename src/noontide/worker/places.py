"""How many attempts a worker may have at once, how many it has, and how far it may claim ahead of that."""

from __future__ import annotations

from typing import Final

_SMOOTHING: Final = 1 / 32
"""Weight of the latest attempt in the mean duration."""


class Places:
    """`count` attempts at once; time is the desk's.

    A claim takes a place, or one more than there are while attempts are so short that a place will be free within
    about `ahead_ms` when its grant comes: no more than `ahead_max` of those. taken: claimed, granted or running;
    running: attempts that have begun, also those that are lost to something that does not end.
    """

    def __init__(self, count: int, *, ahead_ms: int = 0, ahead_max: int = 0) -> None:
        self.count = count
        self.taken = 0
        self.running = 0
        self._ahead_ms = ahead_ms
        self._ahead_max = ahead_max
        self._mean_ms: float | None = None
        self._moved_ms = 0.0
        self._full_since_ms: float | None = None

    def room(self, now_ms: float, *, ahead: bool = True) -> int:
        """How many more may be claimed. ahead: counting on places that will be free soon."""
        return max(0, self.count + (self._ahead(now_ms) if ahead else 0) - self.taken)

    def _ahead(self, now_ms: float) -> int:
        """Claims beyond the places: none before the first attempt has ended, few while those that run take long."""
        if self._mean_ms is None:
            return 0
        silent_ms = now_ms - self._moved_ms if self.running >= self.count else 0.0
        return min(self._ahead_max, int(self.count * self._ahead_ms / max(1.0, self._mean_ms, silent_ms)))

    def claim(self, now_ms: float) -> None:
        """Take one; only when there is room."""
        self.taken += 1
        self.full_for_ms(now_ms)

    @property
    def is_open(self) -> bool:
        """Whether an attempt may begin."""
        return self.running < self.count

    def begin(self, now_ms: float) -> None:
        """An attempt begins on a place that was taken."""
        assert self.running < self.count, "no place is free"
        self.running += 1
        self._moved_ms = now_ms

    def timed(self, duration_ms: float, now_ms: float) -> None:
        """An attempt took so long."""
        mean_ms = duration_ms if self._mean_ms is None else self._mean_ms
        self._mean_ms = mean_ms + (duration_ms - mean_ms) * _SMOOTHING
        self._moved_ms = now_ms

    def give_back(self, *, running: bool) -> None:
        """Free one. running: an attempt had begun on it."""
        self.taken -= 1
        self.running -= running
        self._full_since_ms = None
        assert 0 <= self.running <= self.taken, "a place was freed twice"

    def full_for_ms(self, now_ms: float) -> float:
        """How long all places have been taken without one being freed; below 0 while one is free."""
        if self.taken < self.count:
            self._full_since_ms = None
            return -1.0
        if self._full_since_ms is None:
            self._full_since_ms = now_ms
        return now_ms - self._full_since_ms
