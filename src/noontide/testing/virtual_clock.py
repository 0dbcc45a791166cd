"""A clock that stands still until it is told to move."""

from __future__ import annotations

from typing import Final

START_MS: Final = 1_772_323_200_000
"""2026-03-01T00:00:00Z, a Sunday: where virtual time begins unless told otherwise."""


class VirtualClock:
    """`BrokerTimeSource` for tests: broker time and time since boot move together, and only by `advance`.

    is_trusted: what `trusted` answers; set it to False to see what a slot does while the broker's clock is in doubt.
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self.is_trusted = True
        self._start_ms = start_ms
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._now_ms

    def boot_ms(self) -> float:
        """See `Clock.boot_ms`; 0 at the start."""
        return float(self._now_ms - self._start_ms)

    def advance(self, duration_ms: int) -> None:
        """Let time pass; it never goes back."""
        assert duration_ms >= 0, "time does not go back"
        self._now_ms += duration_ms

    def observe(self, *, appended_ms: int, sent_boot_ms: float, acknowledged_boot_ms: float) -> None:
        """See `BrokerTimeSource.observe`; there is nothing to learn, since this clock is the broker's."""

    def trusted(self) -> bool:
        """See `BrokerTimeSource.trusted`."""
        return self.is_trusted
