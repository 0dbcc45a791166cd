"""Targets that are slowed: after 429, 503 and timeouts fewer runs are offered; the others wait here, not at workers.

What is known of a target is memory of the slot: a new owner finds out again. It is kept by host for URLs, by name for
handlers.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from noontide.actors.effects import Effects, Scene
from noontide.core.pace import Pace, eased, slowed
from noontide.core.run import Run
from noontide.core.targets import is_url, plain_url

OVERLOADED = frozenset((429, 503))
"""HTTP statuses by which a target asks for less (RFC 6585, section 4; RFC 9110, section 15.6.4)."""
AHEAD_MAX_MS = 30_000
"""A run is put off by so much at most; then its turn is worked out anew."""


class Paces:
    """The slowed targets of one slot."""

    def __init__(self) -> None:
        self.known: dict[str, Pace] = {}

    def apply(self, effects: Effects) -> None:
        """Take over what the cycle found."""
        for target, pace in effects.paces.items():
            if pace is None:
                self.known.pop(target, None)
            else:
                self.known[target] = pace


def place_of(target: str) -> str:
    """What is slowed when a run fails: the host of a URL, or the handler."""
    if not is_url(target):
        return target
    parts = urlsplit(plain_url(target))
    return f"{parts.scheme}://{parts.netloc}"


def note_trouble(run: Run, scene: Scene, *, wait_ms: int, why: str) -> None:
    """A target asked for less, or did not answer in time."""
    place = place_of(run.target)
    scene.effects.paces[place] = slowed(_pace(place, scene), now_ms=scene.world.now_ms, wait_ms=wait_ms, why=why)
    scene.effects.counts["slowed"] += 1


def note_success(run: Run, scene: Scene) -> None:
    """A run of a target succeeded."""
    if not scene.world.paces and not scene.effects.paces:
        return
    place = place_of(run.target)
    pace = _pace(place, scene)
    if pace is not None:
        scene.effects.paces[place] = eased(pace, now_ms=scene.world.now_ms)


def put_off(run: Run, scene: Scene) -> Run | None:
    """The run as it waits for its turn at a slowed target; None when it is its turn (which is then taken).

    A run that waits gives its permits back. When it comes again it may be early by one interval: the next ones then
    wait for that, so the rate holds.
    """
    place = place_of(run.target)
    pace, now_ms = _pace(place, scene), scene.world.now_ms
    if pace is None:
        return None
    interval_ms = pace.interval_ms
    if pace.next_ms <= now_ms + (interval_ms if run.not_before_ms else 0):
        next_ms = max(pace.next_ms, now_ms - interval_ms) + interval_ms
        scene.effects.paces[place] = pace._replace(next_ms=next_ms)
        return None
    turn_ms = min(max(pace.tail_ms, pace.next_ms), now_ms + AHEAD_MAX_MS)
    scene.effects.paces[place] = pace._replace(tail_ms=turn_ms + interval_ms)
    reason = f"{place} is slowed: {pace.why}"
    return run._replace(not_before_ms=max(turn_ms, now_ms + 1), reason=reason, permits=(), awaits=None)


def _pace(place: str, scene: Scene) -> Pace | None:
    changes = scene.effects.paces
    return changes[place] if place in changes else scene.world.paces.get(place)
