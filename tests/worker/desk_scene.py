"""A desk with a clock that stands still, and an owner's answers by hand."""

from __future__ import annotations

from tests.worker.memory_owner import LEASE_MS, invitation

from noontide.ports.run_source import Delivered
from noontide.records.runs import Invitation
from noontide.records.worker_events import End, Frame, Outcome
from noontide.records.worker_inbox import Answer
from noontide.worker.desk import Desk
from noontide.worker.holding import DeskSettings, Holding, Outgoing, Way

LANE = "default"
WAYS = {"noop": Way.TASK, "thread": Way.THREAD}


def way_of(invitation: Invitation) -> Way:
    return WAYS.get(str(invitation.target.get("handler")), Way.NONE)


class Scene:
    """Time is `now_ms`; it begins at 1,000 so that nothing is 0 by chance."""

    def __init__(self, **settings: int) -> None:
        self.now_ms = 1_000.0
        self.settings = DeskSettings(**{"concurrency": 2, "prefetch": 2, **settings})
        self.desk = Desk("w-1", 3, settings=self.settings, way_of=way_of)
        self.offset = 0

    def invite(self, *numbers: int, handler: str = "noop", last: bool = False, **members: object) -> None:
        """Deliver invitations on slot 0."""
        delivered = []
        for number in numbers:
            value = invitation(number, handler=handler, **{"slot": 0, **members})
            delivered.append(Delivered((0, self.offset), value, last))
            self.offset += 1
        self.desk.invited(LANE, delivered, self.now_ms)

    def post(self, slot: int = 0) -> Frame:
        """Everything that is to be said to a slot, logged at once, as one frame; empty when there is nothing."""
        whole = Frame()
        while (outgoing := self.take(slot)) is not None:
            self.desk.logged(outgoing)
            for name in ("claims", "beats", "ends", "progress"):
                getattr(whole, name).extend(getattr(outgoing.frame, name))
        return whole

    def take(self, slot: int = 0) -> Outgoing | None:
        return self.desk.take((LANE, slot), self.now_ms)

    def grant(self, number: int, token: int = 7, *, attempt: int = 1, lease_ms: int = LEASE_MS) -> list[Holding]:
        """Grant; what is started because of it."""
        self.answer(grants=[(run(number), attempt, token, lease_ms)])
        return self.started()

    def answer(self, **members: object) -> None:
        self.desk.answered(Answer(worker="w-1", slot=0, **members), self.now_ms)  # type: ignore[arg-type]

    def started(self) -> list[Holding]:
        starts, self.desk.out.starts = self.desk.out.starts, []
        return starts

    def stopped(self) -> list[Holding]:
        stops, self.desk.out.stops = self.desk.out.stops, []
        return stops

    def accepted(self) -> list[int]:
        """Offsets that the group may forget."""
        settled, self.desk.out.accepted = self.desk.out.accepted, []
        return [offset for _, (_, offset) in settled]

    def released(self) -> list[int]:
        """Offsets that go back to the group."""
        settled, self.desk.out.released = self.desk.out.released, []
        return [offset for _, (_, offset) in settled]

    def notes(self) -> list[str]:
        notes, self.desk.out.notes = self.desk.out.notes, []
        return [note.text for note in notes]

    def running(self, number: int, token: int = 7, **members: object) -> Holding:
        """Invite, claim and start."""
        self.invite(number, **members)  # type: ignore[arg-type]
        self.post()
        (holding,) = self.grant(number, token)
        return holding

    def end(self, holding: Holding, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        end = End(run_id=holding.invitation.run_id, token=holding.token, outcome=outcome)
        self.desk.ended(holding, end, self.now_ms)

    def pass_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms
        self.desk.tick(self.now_ms)


def run(number: int) -> str:
    return f"job-{number}:20260301T000000Z"
