"""The jobs of chaos: every kind of target and overlap, all over by a known time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noontide.core.instants import format_instant

TARGET: Final = "chaos.target"


def definitions(jobs: int, *, starts_ms: int, ends_ms: int, lease_s: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Recurring jobs of every kind, and half as many one-off ones."""
    common: dict[str, object] = {
        "lease": f"PT{lease_s}S",
        "timing": "exact",
        "misfire": "run_all",
        "run_all_max": 10_000,
        "retry": {"max_attempts": 50, "backoff": ["PT0.3S", "PT1S"]},
    }
    anchor = format_instant(starts_ms)
    for number in range(jobs):
        every = {"every": f"PT{1 + number % 2}S", "anchor": anchor}
        yield f"every-{number}", {**common, **_kind(number), "schedule": every, "ends_at": format_instant(ends_ms)}
    for number in range(jobs // 2):
        at_ms = starts_ms + number * (ends_ms - starts_ms) // (jobs // 2)
        yield f"at-{number}", {**common, **_kind(number), "schedule": {"at": format_instant(at_ms)}}


def _kind(number: int) -> dict[str, object]:
    """Where the runs of a job go, and what happens when they meet."""
    match number % 8:
        case 0 | 1:
            return {"target": f"kafka://{TARGET}"}
        case 2:
            return {"target": "handler:slow", "overlap": "skip"}
        case 3:
            return {"target": "handler:slow", "overlap": "queue"}
        case 4:
            return {"target": "handler:once", "guarantee": "at_most_once", "retry": {"max_attempts": 1}}
        case 5:
            return {"target": "handler:shaky", "overlap": "allow"}
        case 6:
            return {"target": "handler:steady", "overlap": "allow", "priority": 9}
        case _:
            return {"target": "handler:steady", "overlap": "skip"}
