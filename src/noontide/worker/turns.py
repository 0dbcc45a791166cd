"""Who is next: for a claim while there is room, and for a place once it is granted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from noontide.core.policies import Guarantee
from noontide.worker.holding import Holding, Phase
from noontide.worker.places import Places


class Turns:
    """Invitations that wait to be claimed, and runs granted ahead that wait for a place; `phase` tells which do."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._waiting: deque[Holding] = deque()
        self._ready: deque[Holding] = deque()

    def wait(self, holding: Holding) -> None:
        """An invitation is held."""
        self._waiting.append(holding)

    def to_claim(self, now_ms: float) -> Iterator[Holding]:
        """Invitations to claim now, oldest first; each takes a place, or the right to one of those that come free."""
        places, waiting = self._places, self._waiting
        room, free = places.room(now_ms), places.room(now_ms, ahead=False)
        while waiting and room > 0:
            if waiting[0].phase is not Phase.HELD:
                waiting.popleft()
                continue
            # At most once: it must not be lost with a worker in which it only waits for a place.
            if free <= 0 and waiting[0].invitation.guarantee is Guarantee.AT_MOST_ONCE:
                return
            places.claim(now_ms)
            room, free = room - 1, free - 1
            yield waiting.popleft()

    def ready(self, holding: Holding) -> None:
        """A run was granted and no place is free."""
        if holding.invitation.guarantee is Guarantee.AT_MOST_ONCE:
            self._ready.appendleft(holding)
        else:
            self._ready.append(holding)

    def to_begin(self) -> Iterator[Holding]:
        """Granted runs for the places that are free; whoever takes one begins it before asking on."""
        while self._ready and self._places.is_open:
            holding = self._ready.popleft()
            if holding.phase is Phase.READY:
                yield holding
