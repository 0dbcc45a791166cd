"""Rows of `agents-state`: what the agents count of runs, and what they remember of jobs.

    usage/<window>/<pane>/<partition>         all tenants of one pane, one partition of `executions`
    jobs/<window>/<pane>/<partition>/<n>      jobs of the same pane, in rows of a bounded size
    health/<job id>                           what alerts follow from

A hopping window is the sum of the panes that it covers; a pane is named by the minute since the epoch at its begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from noontide.core.durations import MINUTE_MS
from noontide.core.spread import MILLISECONDS

USAGE: Final = "usage"
JOBS: Final = "jobs"
HEALTH: Final = "health"
COUNTS: Final = ("succeeded", "dead", "cancelled", "decided", "leases_lost")
SPREADS: Final = ("late_ms", "ran_ms")


class Window(NamedTuple):
    """A hopping window: `panes` panes of `pane_minutes`; it moves on by a pane."""

    name: str
    pane_minutes: int
    panes: int

    @property
    def minutes(self) -> int:
        """Its length."""
        return self.pane_minutes * self.panes

    def pane_of(self, minute: int) -> int:
        """The pane that a minute since the epoch lies in."""
        return minute - minute % self.pane_minutes

    def first_pane(self, now_minute: int) -> int:
        """The oldest pane of the window that ends with the present pane."""
        return self.pane_of(now_minute) - self.pane_minutes * (self.panes - 1)


WINDOWS: Final = (Window("5m", 1, 5), Window("1h", 5, 12), Window("24h", 60, 24))


class Tally:
    """What runs came to: how many ended how, and how lateness and duration were spread, by class of MILLISECONDS."""

    __slots__ = ("counts", "late_ms", "ran_ms")

    def __init__(self) -> None:
        self.counts = [0] * len(COUNTS)
        self.late_ms: dict[int, int] = {}
        self.ran_ms: dict[int, int] = {}

    def add(self, other: Tally) -> None:
        """Count what another one counted."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        for mine, its in ((self.late_ms, other.late_ms), (self.ran_ms, other.ran_ms)):
            for number, count in its.items():
                mine[number] = mine.get(number, 0) + count

    def document(self) -> dict[str, object]:
        """As it is stored; what is zero is left out, a spread is class, count, class, count, ..."""
        stored: dict[str, object] = {name: count for name, count in zip(COUNTS, self.counts, strict=True) if count}
        for name, spread in (("late_ms", self.late_ms), ("ran_ms", self.ran_ms)):
            if spread:
                stored[name] = [number for pair in sorted(spread.items()) for number in pair]
        return stored

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Tally:
        """From what is stored. Raises ValueError or TypeError for something else."""
        tally = cls()
        tally.counts = [int(stored.get(name, 0)) for name in COUNTS]
        tally.late_ms, tally.ran_ms = (_pairs(stored.get(name, ())) for name in SPREADS)
        return tally


def _pairs(flat: Iterable[int]) -> dict[int, int]:
    numbers = iter(flat)
    return {int(number): int(count) for number, count in zip(numbers, numbers, strict=True)}


def quantile_ms(spread: Mapping[int, int], share: float) -> int | None:
    """The upper bound of the class that the quantile lies in, at most the highest bound; None without values."""
    total, below = sum(spread.values()), 0
    for number in sorted(spread):
        below += spread[number]
        if below >= share * total:
            return MILLISECONDS[min(number, len(MILLISECONDS) - 1)]
    return None


class RowKey(NamedTuple):
    """The key of a row of usage or jobs. number: of the row among those of one pane, 0 for usage."""

    kind: str
    window: str
    pane: int
    partition: int
    number: int = 0

    def text(self) -> str:
        """As it is written; keys of a window sort by time."""
        end = f"/{self.number:04}" if self.kind == JOBS else ""
        return f"{self.kind}/{self.window}/{self.pane:010}/{self.partition}{end}"

    @classmethod
    def of(cls, text: str) -> RowKey | None:
        """None for a key of another kind."""
        kind, *parts = text.split("/")
        if kind not in (USAGE, JOBS) or len(parts) != (4 if kind == JOBS else 3):
            return None
        window, *numbers = parts
        return cls(kind, window, *map(int, numbers)) if all(map(str.isdecimal, numbers)) else None


def health_key(job_id: str) -> str:
    """The key of what is remembered of a job."""
    return f"{HEALTH}/{job_id}"


def minute_of(instant_ms: int) -> int:
    """Minutes since the epoch."""
    return instant_ms // MINUTE_MS
