"""What time it is at the broker, estimated from the append times it answers with.

A record that was sent at local time s and acknowledged at local time k was appended between the two, so the broker's
clock minus the local one lies in [appended - k, appended + 1 - s] (append times are whole milliseconds). The greatest
lower bound is kept; it gives way as it ages, by as much as two clocks may drift apart, so that a fresh answer takes its
place sooner or later. That is a sliding window whose width follows from how fast the answers are: 5 ms of slowness are
worth ten seconds of age. The estimate is tight, and never ahead of the broker.

    starting ──first observation──▶ steady ──outside of what is possible──▶ held
                                      ▲  ▲──────────refuted────────────────┘ │
                                      └───────────────confirmed─────────────┘

A jump of the broker's clock is believed when a second observation, at least a second later, agrees with the first.
Forward: time jumps then. Backward: time goes on at three quarters of its speed until the broker has caught up, so it
never goes back, and something that is due every ten seconds waits at most fourteen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTimeSettings:
    """Limits of the estimate.

    jump_tolerance_ms: smaller disagreements are followed without ado.
    confirm_ms: how long after the first sign of a jump a second one makes it true.
    drift_ppm: how much faster than the broker's the local clock may run; 500 is the most that NTP slews a clock by.
    """

    jump_tolerance_ms: int = 1_000
    confirm_ms: int = 1_000
    drift_ppm: int = 500


class TimeState(Enum):
    """Whether the estimate may be acted upon."""

    STARTING = "nothing was observed yet"
    STEADY = "the estimate holds"
    HELD = "the broker's clock seems to have jumped; waiting for confirmation"


class _Bounds(NamedTuple):
    """What one observation says about broker time minus local time."""

    lower_ms: float
    upper_ms: float


class _Slew(NamedTuple):
    """Slow time from a point on, after the broker's clock went back."""

    since_boot_ms: float
    from_ms: float

    def at(self, boot_ms: float) -> float:
        return self.from_ms + (boot_ms - self.since_boot_ms) * _SLEW_RATE


_SLEW_RATE = 0.75


class BrokerTime:
    """The estimate; every call is told the local time since boot, so nothing here reads a clock."""

    def __init__(self, settings: BrokerTimeSettings | None = None) -> None:
        self._settings = settings or BrokerTimeSettings()
        self._offset_ms = 0.0
        self._offset_at_ms: float | None = None  # local time at which the offset was learnt
        self._suspected: _Bounds | None = None
        self._suspected_at_ms = 0.0
        self._slew: _Slew | None = None
        self._latest_ms = 0
        self._jumps = 0

    @property
    def state(self) -> TimeState:
        """See `TimeState`."""
        if self._offset_at_ms is None:
            return TimeState.STARTING
        return TimeState.STEADY if self._suspected is None else TimeState.HELD

    @property
    def jumps(self) -> int:
        """How many jumps of the broker's clock were confirmed."""
        return self._jumps

    def age_ms(self, boot_ms: float) -> float | None:
        """Local time since the observation that the estimate stands on; None before the first."""
        return None if self._offset_at_ms is None else boot_ms - self._offset_at_ms

    def observe(self, *, appended_ms: int, sent_boot_ms: float, acknowledged_boot_ms: float) -> None:
        """Learn from a record that was sent, appended and acknowledged at these times."""
        assert sent_boot_ms <= acknowledged_boot_ms, "acknowledged before it was sent"
        seen = _Bounds(appended_ms - acknowledged_boot_ms, appended_ms + 1 - sent_boot_ms)
        at_ms = acknowledged_boot_ms
        possible = self._offset_at_ms is None or self._possible(seen, at_ms)
        supports_jump = self._suspected is not None and _agree(seen, self._suspected, self._settings.jump_tolerance_ms)
        if possible and supports_jump:
            return  # a slow answer, which fits before and after the jump and tells neither
        if possible:
            self._suspected = None
            self._learn(seen, at_ms)
        elif not supports_jump:
            self._suspected, self._suspected_at_ms = seen, at_ms
        elif at_ms - self._suspected_at_ms >= self._settings.confirm_ms:
            self._adopt(seen, at_ms)

    def now_ms(self, boot_ms: float) -> int:
        """Broker time, whole milliseconds, never less than what an earlier call returned; 0 before any observation."""
        if self._offset_at_ms is not None:
            estimate = self._offset_ms - self._drift_ms(boot_ms) + boot_ms
            if self._slew is not None:
                estimate = self._slewed(estimate, boot_ms)
            self._latest_ms = max(self._latest_ms, int(estimate))
        return self._latest_ms

    def _slewed(self, estimate: float, boot_ms: float) -> float:
        assert self._slew is not None
        slow = self._slew.at(boot_ms)
        if slow <= estimate:
            self._slew = None  # the broker has caught up
        return max(slow, estimate)

    def _drift_ms(self, boot_ms: float) -> float:
        """By how much the two clocks may have drifted apart since the offset was learnt."""
        age_ms = 0.0 if self._offset_at_ms is None else boot_ms - self._offset_at_ms
        return max(0.0, age_ms) * self._settings.drift_ppm / 1_000_000

    def _possible(self, seen: _Bounds, at_ms: float) -> bool:
        """Whether the present estimate, give or take the tolerance, could have given this observation."""
        allowed_ms = self._settings.jump_tolerance_ms + self._drift_ms(at_ms)
        return seen.lower_ms <= self._offset_ms + allowed_ms and seen.upper_ms >= self._offset_ms - allowed_ms

    def _adopt(self, seen: _Bounds, at_ms: float) -> None:
        shown_ms = self.now_ms(at_ms)
        self._offset_at_ms = None
        self._suspected = None
        self._jumps += 1
        self._learn(seen, at_ms)
        self._slew = _Slew(at_ms, shown_ms) if shown_ms > seen.lower_ms + at_ms else None

    def _learn(self, seen: _Bounds, at_ms: float) -> None:
        """Take a greater lower bound, and a smaller one when the upper bound contradicts the present estimate."""
        offset_ms = self._offset_ms - self._drift_ms(at_ms)
        if self._offset_at_ms is None or offset_ms >= seen.upper_ms or seen.lower_ms >= offset_ms:
            self._offset_ms, self._offset_at_ms = seen.lower_ms, at_ms


def _agree(one: _Bounds, other: _Bounds, tolerance_ms: float) -> bool:
    return one.lower_ms <= other.upper_ms + tolerance_ms and one.upper_ms >= other.lower_ms - tolerance_ms
