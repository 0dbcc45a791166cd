"""Time as leases count it: it passes only while the owner listens.

A lease may expire only when the owner has read everything that its worker could have said in time. So lease time moves
with the append times of the events an owner has consumed, and a gap (the owner was away, the broker was) counts as one
step at most: nobody expires for a silence in which nobody could be heard.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_MAX_MS = 3_000
"""Most that one event moves lease time: the interval of probes, and some patience."""


@dataclass(slots=True)
class LeaseClock:
    """Lease time of one source of events (a partition of `worker-events.<lane>`), in ms since it was opened."""

    now_ms: int = 0
    _last_appended_ms: int | None = None

    def heard(self, appended_ms: int) -> None:
        """An event with this append time has been consumed."""
        last = self._last_appended_ms
        if last is not None and appended_ms > last:
            self.now_ms += min(appended_ms - last, STEP_MAX_MS)
        self._last_appended_ms = appended_ms if last is None else max(last, appended_ms)

    @property
    def last_appended_ms(self) -> int | None:
        """Append time of the latest event; None before the first."""
        return self._last_appended_ms
