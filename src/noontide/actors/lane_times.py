"""How long runs of each lane take of late, so that one can say how many workers a lane will need."""

from __future__ import annotations

from collections import defaultdict

from noontide.actors.effects import Effects

RECENT_RUNS = 2_000
"""When so many are counted, all count half: what was long ago matters less and less."""


class LaneTimes:
    """Last attempts of the runs of one slot, from grant to end. Memory only: a new owner finds out again."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def apply(self, effects: Effects) -> None:
        """Take over what ended in a cycle."""
        if not effects.ran:
            return
        ended: defaultdict[str, list[int]] = defaultdict(list)
        for lane, took_ms in effects.ran:
            ended[lane].append(took_ms)
        for lane, took in ended.items():
            count, total_ms = self._sums.get(lane, (0.0, 0.0))
            if count >= RECENT_RUNS:
                count, total_ms = count / 2, total_ms / 2
            self._sums[lane] = (count + len(took), total_ms + sum(max(0, each) for each in took))

    def sums(self) -> dict[str, tuple[float, float]]:
        """(runs, ms of all of them) by lane. May be asked in any thread."""
        return dict(self._sums)
