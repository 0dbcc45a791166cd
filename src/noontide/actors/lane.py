"""One lane of a slot as the lease keeper knows it: lease time, what is held until when, and how much is offered.

window   offered and not claimed: what the lane takes in a few seconds at its pace, and little while nobody claims
alarms   (lease time, run id): the earliest time at which something may be over; looked at when it has come
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from noontide.actors.effects import Hold
from noontide.actors.settings import SchedulerSettings
from noontide.core.lease import LeaseClock

NEVER_MS = 1 << 62
SPELL_MIN_MS = 100
"""The pace of claims is that of at least so long."""


@dataclass(slots=True)
class Held:
    """A published or granted run. until_ms: lease time at which it is lost; ends_ms: at which its time is over.

    granted_ms: broker time of a grant by an earlier owner, 0 = of this one. alarm_ms: its entry among the alarms.
    """

    hold: Hold
    lane: str
    running: bool
    until_ms: int
    ends_ms: int
    granted_ms: int = 0
    alarm_ms: int = NEVER_MS

    @property
    def over_ms(self) -> int:
        """Lease time at which something is over, as known now."""
        return min(self.until_ms, self.ends_ms)


@dataclass(slots=True)
class Lane:
    """Counters and deadlines.

    unanswered: offers that lapsed since the last claim; nobody seems to listen. last_claim_ms: in lease time;
    last_offer_ms: in broker time. spell_ms, taken: when the spell began in which something has always been on offer,
    in broker time, and how much was claimed in it.
    """

    window: int
    clock: LeaseClock = field(default_factory=LeaseClock)
    alarms: list[tuple[int, str]] = field(default_factory=list)
    queued: int = 0
    held: int = 0
    unanswered: int = 0
    last_claim_ms: int | None = None
    last_offer_ms: int = 0
    spell_ms: int = 0
    taken: int = 0

    def add(self, run_id: str, held: Held) -> None:
        """A run was published or granted."""
        self.held += 1
        self.queued += not held.running
        self.watch(run_id, held)

    def start(self, held: Held) -> None:
        """It was offered, and is running now."""
        held.running = True
        held.granted_ms = 0
        self.queued -= 1

    def remove(self, held: Held) -> None:
        """It is not held any more, or held in another way."""
        self.held -= 1
        self.queued -= not held.running
        self.unanswered += not held.running

    def watch(self, run_id: str, held: Held) -> None:
        """See to it that it comes up when it is over, and not much earlier."""
        if held.over_ms < held.alarm_ms:
            held.alarm_ms = held.over_ms
            heapq.heappush(self.alarms, (held.alarm_ms, run_id))

    def overdue(self, known: Mapping[str, Held], limit: int) -> Iterator[str]:
        """Runs that are over by now, at most `limit`; each once, until `watch` is called for it."""
        now_ms = self.clock.now_ms
        while self.alarms and self.alarms[0][0] <= now_ms and limit:
            at_ms, run_id = heapq.heappop(self.alarms)
            held = known.get(run_id)
            if held is None or held.alarm_ms != at_ms:
                continue  # of an earlier grant
            held.alarm_ms = NEVER_MS
            if held.over_ms > now_ms:
                self.watch(run_id, held)
            else:
                limit -= 1
                yield run_id

    def room(self, settings: SchedulerSettings, now_ms: int) -> int:
        """How many more runs may be offered. What was offered long ago is gone, and the next worker finds nothing."""
        if self.queued:
            self.last_offer_ms = now_ms
        else:
            self.spell_ms, self.taken = now_ms, 0
            if now_ms - self.last_offer_ms > settings.offers_kept_ms:
                self.unanswered = 0
        deaf = self.last_claim_ms is None or self.clock.now_ms - self.last_claim_ms > settings.window_lapse_ms
        window = settings.window_min - self.unanswered if deaf else self.window
        return max(0, window - self.queued)

    def claimed(self, count: int, appended_ms: int, settings: SchedulerSettings) -> None:
        """Workers asked for runs: what is on offer is to last them for `window_ms`, so that nobody waits for a cycle.

        More would only be out of the order of the queue. A spell with few claims does not tell how fast the lane is.
        """
        self.last_claim_ms, self.unanswered = self.clock.now_ms, 0
        self.taken += count
        if self.taken < settings.window_min:
            return
        spell_ms = max(SPELL_MIN_MS, appended_ms - self.spell_ms)
        wanted = self.taken * settings.window_ms // spell_ms
        self.window = min(settings.window_max, max(settings.window_min, wanted))
        if spell_ms > settings.window_ms:
            self.spell_ms, self.taken = appended_ms, 0
