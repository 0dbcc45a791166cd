"""Whatever is lost, doubled or late: a run starts once per token, in time, and no place is lost or used twice."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.worker.desk_scene import LANE, Scene, run

from noontide.records.worker_events import Frame, Outcome
from noontide.worker.holding import Holding, Outgoing, Phase, Stop

NUMBERS = st.integers(0, 5)
CONCURRENCY = 2
AHEAD_MAX = 2


class DeskMachine(RuleBasedStateMachine):
    """An owner that grants the first claim of an attempt and moves to the next attempt when it is handed back."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(concurrency=CONCURRENCY, prefetch=2, ahead_max=AHEAD_MAX)
        self.frames: list[Frame] = []
        self.under_way: list[Outgoing] = []
        self.grants: list[tuple[int, int, int]] = []  # number, attempt, token
        self.tokens: dict[tuple[str, int], int] = {}
        self.last_token = 0
        self.running: list[Holding] = []
        self.started: set[tuple[str, int]] = set()
        self.passed_on: set[tuple[str, int]] = set()
        self.first_claims: dict[tuple[str, int], float] = {}
        self.places: dict[int, str] = {}  # offset -> what was said about it

    def _look(self) -> None:
        """Do what a runtime does with the outbox, and check each start."""
        for holding in self.scene.started():
            key = (holding.invitation.run_id, holding.token)
            assert key not in self.started
            assert not self.scene.desk.draining
            assert self.scene.now_ms - holding.claimed_ms < 24_000
            self.started.add(key)
            self.running.append(holding)
        for word, offsets in (("accepted", self.scene.accepted()), ("released", self.scene.released())):
            for offset in offsets:
                assert offset not in self.places, "the group is told twice"
                self.places[offset] = word

    @rule(number=NUMBERS, attempt=st.integers(1, 2), thread=st.booleans(), last=st.booleans())
    def invite(self, number: int, attempt: int, thread: bool, last: bool) -> None:
        handler = ("noop", "thread", "elsewhere")[number % 3] if not thread else "thread"
        self.scene.invite(number, handler=handler, attempt=attempt, last=last, timeout_ms=15_000)
        self._look()

    @rule()
    def post(self) -> None:
        outgoing = self.scene.desk.take((LANE, 0), self.scene.now_ms)
        if outgoing is not None:
            said = {(end.run_id, end.token) for end in outgoing.frame.ends}
            assert not said & self.passed_on, "somebody else says how it ends"
            self.under_way.append(outgoing)

    @precondition(lambda self: self.under_way)
    @rule()
    def arrive(self) -> None:
        outgoing = self.under_way.pop(0)
        self.scene.desk.logged(outgoing)
        for run_id, attempt in outgoing.frame.claims:
            if (run_id, attempt) not in self.tokens:
                self.last_token += 1
                self.tokens[run_id, attempt] = self.last_token
            token = self.tokens[run_id, attempt]
            self.grants.append((int(run_id[4]), attempt, token))
        self._look()

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data: st.DataObject, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.grants) - 1))
        number, attempt, token = self.grants[at] if again else self.grants.pop(at)
        self.scene.answer(grants=[(run(number), attempt, token, 30_000)])
        self._look()

    @rule(number=NUMBERS, attempt=st.integers(1, 2))
    def deny(self, number: int, attempt: int) -> None:
        self.scene.answer(denied=[(run(number), attempt, "taken")])
        self._look()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        holding = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.scene.end(holding, Outcome.HANDED_BACK if holding.stop is Stop.SHUTDOWN else Outcome.SUCCEEDED)
        self._look()

    @precondition(lambda self: any(each.stop is None for each in self.running))
    @rule(data=st.data())
    def pass_on(self, data: st.DataObject) -> None:
        holding = data.draw(st.sampled_from([each for each in self.running if each.stop is None]))
        self.running.remove(holding)
        self.passed_on.add((holding.invitation.run_id, holding.token))
        self.scene.desk.forget(holding)
        self.scene.desk.resize(CONCURRENCY, self.scene.now_ms)
        self._look()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), lost=st.booleans())
    def interrupt(self, data: st.DataObject, lost: bool) -> None:
        holding = data.draw(st.sampled_from(self.running))
        key = (holding.invitation.run_id, holding.token)
        if lost:  # an owner that says so never grants that token again
            self.tokens.pop(holding.key, None)
        self.scene.answer(**({"lost": [key]} if lost else {"cancels": [(*key, "")]}))
        self._look()

    @rule(duration_ms=st.sampled_from((1, 20, 500, 3_000, 9_000, 30_000)))
    def wait(self, duration_ms: int) -> None:
        self.scene.pass_ms(duration_ms)
        self._look()

    @rule()
    def drain(self) -> None:
        self.scene.desk.drain(self.scene.now_ms)
        self._look()

    @invariant()
    def places_add_up(self) -> None:
        desk = self.scene.desk
        assert len(self.running) <= CONCURRENCY
        assert len(self.running) <= desk.busy <= CONCURRENCY + AHEAD_MAX, "everything that runs has a place"

    def teardown(self) -> None:
        """When everything has ended every place is free and the group has heard about every record."""
        self.scene.desk.drain(self.scene.now_ms)
        for _ in range(3):
            self._look()
            while self.running:
                self.scene.end(self.running.pop())
            self.scene.pass_ms(40_000)
            while (outgoing := self.scene.desk.take((LANE, 0), self.scene.now_ms)) is not None:
                self.scene.desk.logged(outgoing)
            for outgoing in self.under_way:
                self.scene.desk.logged(outgoing)
        self._look()
        assert self.scene.desk.busy == 0
        assert self.scene.desk.idle
        assert set(self.places) == set(range(self.scene.offset))
        assert all(holding.phase is Phase.STUCK for holding in self.running)


DeskMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_whatever_happens = DeskMachine.TestCase
