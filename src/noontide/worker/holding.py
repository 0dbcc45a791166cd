"""What a worker has in hand: invitations, claims, attempts; and what the desk wants done about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from noontide.ports.run_source import Place
from noontide.records.runs import Invitation
from noontide.records.worker_events import End, Frame, Outcome

Address = tuple[str, int]
"""Lane and slot: where a frame goes."""


class Way(Enum):
    """How an attempt is carried out."""

    TASK = auto()
    """On an event loop: it can be cancelled."""
    THREAD = auto()
    """On a thread: nothing can end it but itself."""
    NONE = auto()
    """Not in this process: the handler is not registered here."""


class Phase(Enum):
    """How far it is.

    HELD ──> CLAIMED ──> RUNNING ──> (gone)
                 │  └> READY ┘└────> STUCK ──> (gone)
                 └─> WAITING ──> (gone)
    """

    HELD = auto()
    """An invitation without a place."""
    CLAIMED = auto()
    """A place is kept for it; the owner has not answered."""
    READY = auto()
    """Granted ahead of a free place: starts when one is, handed back when none is for a while."""
    RUNNING = auto()
    """Granted and started."""
    STUCK = auto()
    """Its end is reported or does not count any more, but it still runs: the place is lost until it returns."""
    WAITING = auto()
    """Granted, but not for this process: handed back after a while."""


class Stop(Enum):
    """Why an attempt has to stop."""

    CANCELLED = "cancelled"
    LOST = "lease lost"
    TIMED_OUT = "timed out"
    SHUTDOWN = "worker stopped"


@dataclass(slots=True, eq=False)
class Holding:
    """One invitation and what became of it. Times are ms by the worker's monotonic clock; 0 = not yet.

    place: None once the source need not be told any more. last: see `Delivered.last`.
    claimed_ms: when the first claim was sent: what the lease is measured against. asked_ms: the latest one.
    """

    lane: str
    invitation: Invitation
    way: Way
    place: Place | None
    last: bool
    arrived_ms: float
    phase: Phase = Phase.HELD
    claimed_ms: float = 0.0
    asked_ms: float = 0.0
    token: int = 0
    started_ms: float = 0.0
    beat_ms: float = 0.0
    until_ms: float = 0.0
    stop: Stop | None = None
    attempt: object = None  # owned by the stage

    @property
    def key(self) -> tuple[str, int]:
        """Run id and attempt."""
        return self.invitation.run_id, self.invitation.attempt


class Note(NamedTuple):
    """A line for the log. level: of `logging`."""

    level: int
    text: str


class Outgoing(NamedTuple):
    """A frame to post, and the claims in it."""

    frame: Frame
    claims: list[Holding]


@dataclass(slots=True)
class Draft:
    """What waits to be said to one slot."""

    claims: list[Holding] = field(default_factory=list)
    beats: set[Holding] = field(default_factory=set)
    ends: list[End] = field(default_factory=list)
    progress: dict[tuple[str, int], tuple[float | None, str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.claims or self.ends or self.beats or self.progress)

    def frame(self, worker: str, inbox: int, *, claims: list[Holding], ends: list[End]) -> Frame:
        """What is said, with those of the claims and ends that are still meant."""
        return Frame(
            worker=worker,
            inbox=inbox,
            claims=[(each.invitation.run_id, each.invitation.attempt) for each in claims],
            beats=[(each.invitation.run_id, each.token) for each in self.beats if each.token],
            ends=ends,
            progress=[(*key, fraction, note) for key, (fraction, note) in self.progress.items()],
        )

    def first_ends(self, *, events_max: int, bytes_max: int) -> tuple[list[End], Draft | None]:
        """The ends that fit into one frame, and the others for the next; one end always fits."""
        size = 0
        for count, end in enumerate(self.ends):
            size += len(end.result) + 4 * len(end.error or "") + 200
            if count and (size > bytes_max or count >= events_max):
                return self.ends[:count], Draft(ends=self.ends[count:])
        return self.ends, None


@dataclass(slots=True)
class Outbox:
    """What the desk wants done; emptied by whoever does it."""

    starts: list[Holding] = field(default_factory=list)
    stops: list[Holding] = field(default_factory=list)
    accepted: list[tuple[str, Place]] = field(default_factory=list)
    released: list[tuple[str, Place]] = field(default_factory=list)
    drafts: dict[Address, Draft] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def draft(self, lane: str, slot: int) -> Draft:
        """What waits to be said to a slot, to add to."""
        draft = self.drafts.get((lane, slot))
        if draft is None:
            draft = self.drafts[lane, slot] = Draft()
        return draft

    def note(self, level: int, text: str) -> None:
        """Have a line logged."""
        self.notes.append(Note(level, text))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskSettings:
    """Limits of a worker. Durations in ms.

    concurrency: attempts at the same time. prefetch: invitations held beyond that.
    ahead_ms: claims go so far ahead of free places, by the mean duration of attempts. ahead_max: the most of them.
    ready_ms: a run that was granted ahead and finds no place for so long is handed back.
    hold_ms: a full worker keeps invitations so long, then lets others have them.
    hold_max_ms: any worker keeps an invitation at most so long; less than the lock of the group.
    claim_retry_ms: silence after which a claim is repeated. stop_grace_ms: time for a cancelled task to end.
    stranger_ms: how long a run whose handler is not registered here is kept before it is handed back.
    lease_margin: the part of the lease, 1 / n, that must be left for an attempt to start.
    over_max: attempts that are over whose grants are known, and ignored, when they come again.
    frame_max_events, frame_max_bytes: what one frame carries.
    """

    concurrency: int = 100
    prefetch: int = 100
    ahead_ms: int = 250
    ahead_max: int = 12_000
    ready_ms: int = 2_000
    hold_ms: int = 2_000
    hold_max_ms: int = 8_000
    claim_retry_ms: int = 3_000
    stop_grace_ms: int = 5_000
    stranger_ms: int = 5_000
    stranger_note_ms: int = 60_000
    lease_margin: int = 5
    over_max: int = 10_000
    frame_max_events: int = 4_000
    frame_max_bytes: int = 400_000

    def start_within_ms(self, lease_ms: int) -> int:
        """How long after its first claim an attempt may start."""
        return lease_ms - lease_ms // self.lease_margin


def handed_back(run_id: str, token: int, why: str) -> End:
    """The end of an attempt that was not started, or given up: it costs none."""
    return End(run_id=run_id, token=token, outcome=Outcome.HANDED_BACK, error=why)
