"""What a slot tells about itself: sums and histograms, added to once per cycle, read by whoever measures.

A pulse outlives its slot: after a replay the sums go on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from noontide.core.spread import Spread


@dataclass(slots=True)
class Pulse:
    """Of one slot in this process.

    commit_ms: of each transaction. late_ms: of each cycle that fired something, how late its oldest occurrence was.
    counts: what was decided and committed, by name.
    """

    commit_ms: Spread = field(default_factory=Spread)
    late_ms: Spread = field(default_factory=Spread)
    counts: Counter[str] = field(default_factory=Counter)
    doubts: int = 0
    take_overs: int = 0

    def committed(self, counts: Mapping[str, int], *, took_ms: float, late_ms: int | None) -> None:
        """A cycle was committed. late_ms: of its oldest occurrence, None when it fired nothing."""
        self.commit_ms.add(took_ms)
        self.counts.update(counts)
        if late_ms is not None:
            self.late_ms.add(late_ms)


Pulses = defaultdict[int, Pulse]
"""By slot."""


def new_pulses() -> Pulses:
    """Those of one process."""
    return defaultdict(Pulse)
