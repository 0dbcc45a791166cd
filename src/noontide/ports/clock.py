"""Time as the actors see it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A clock that never goes back."""

    def now_ms(self) -> int:
        """Broker time, milliseconds since the epoch; never ahead of the broker's own clock, never going back."""

    def boot_ms(self) -> float:
        """Local time since boot in milliseconds, counting suspend; for measuring waits, not for dates."""


class BrokerTimeSource(Clock, Protocol):
    """A clock that learns from what brokers answer."""

    def observe(self, *, appended_ms: int, sent_boot_ms: float, acknowledged_boot_ms: float) -> None:
        """A record sent and acknowledged between these two local times was appended at `appended_ms`."""

    def trusted(self) -> bool:
        """False before the first observation and while a jump of the broker's clock waits for confirmation."""
