"""The clocks of this machine, and broker time learnt through them: the one place that asks the system for the time."""

from __future__ import annotations

import secrets
import time
from typing import Final
from uuid import UUID

from noontide.core.broker_time import BrokerTime, BrokerTimeSettings, TimeState

# Counts suspend, where the system has it; elsewhere a suspend looks like a jump of the broker's clock, which is held
# until it is confirmed.
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_ms() -> float:
    """Milliseconds since boot; no relation to any date."""
    return time.clock_gettime_ns(_BOOT_CLOCK) / 1e6


def wall_now_ms() -> int:
    """The host's own idea of the date, milliseconds since the epoch: for tools and logs, never for scheduling."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then random ones, so ids sort by when they were made."""
    number = (wall_now_ms() << 80) | int.from_bytes(secrets.token_bytes(10), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    return str(UUID(int=number & ~(0x3 << 62) | (0x2 << 62)))


class BrokerClock:
    """`BrokerTimeSource`: broker time over the boot clock of this machine. For one thread, the event loop's.

    Setting the host's date changes nothing here.
    """

    def __init__(self, settings: BrokerTimeSettings | None = None) -> None:
        self._time = BrokerTime(settings)

    def now_ms(self) -> int:
        """See `Clock.now_ms`; 0 before the first observation."""
        return self._time.now_ms(boot_ms())

    def boot_ms(self) -> float:
        """See `Clock.boot_ms`."""
        return boot_ms()

    def observe(self, *, appended_ms: int, sent_boot_ms: float, acknowledged_boot_ms: float) -> None:
        """See `BrokerTimeSource.observe`."""
        self._time.observe(
            appended_ms=appended_ms, sent_boot_ms=sent_boot_ms, acknowledged_boot_ms=acknowledged_boot_ms
        )

    def trusted(self) -> bool:
        """See `BrokerTimeSource.trusted`; while it is False somebody must append a probe, or it stays so."""
        return self._time.state is TimeState.STEADY

    def age_ms(self) -> float | None:
        """Local time since the latest observation, None before the first: append a probe when it grows."""
        return self._time.age_ms(boot_ms())

    def jumps(self) -> int:
        """How many jumps of the broker's clock were confirmed."""
        return self._time.jumps
