"""What a worker tells about itself: sums and histograms, read by whoever measures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from noontide.core.spread import Spread


@dataclass(slots=True)
class WorkerPulse:
    """Of one worker process.

    late_ms: start of attempts minus the time they might have started, by this machine's date.
    ran_ms: how long attempts took. ends: attempts that ended, by (lane, outcome).
    """

    late_ms: Spread = field(default_factory=Spread)
    ran_ms: Spread = field(default_factory=Spread)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    started: int = 0
    delivered: int = 0
    answers: Counter[str] = field(default_factory=Counter)
