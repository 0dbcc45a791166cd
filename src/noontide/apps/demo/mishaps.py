"""`noontide demo --kill`: a scheduler and a worker are killed while everybody looks, and nothing is lost.

scheduler_at_s    kill -9 of a scheduler; the other one takes its slots when its membership has run out
worker_at_s       kill -9 of a worker in the middle of a run; the run starts again when its lease has run out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from noontide.apps.cli.spans import words
from noontide.apps.demo.board import Arrived, Board
from noontide.apps.demo.cast import Cast, assigned_slots, slots_taken
from noontide.apps.demo.processes import Process
from noontide.core.run import Run

SCHEDULER_AT_S: Final = 5.0
WORKER_AT_S: Final = 14.0


@dataclass(slots=True, kw_only=True)
class Mishaps:
    """What goes wrong, in its order. say: a line for people. elapsed: seconds since the play began."""

    cast: Cast
    board: Board
    say: Callable[[str], None]
    killed: list[str] = field(default_factory=list)
    _scheduler_s: float | None = None
    _orphans: frozenset[int] = frozenset()
    _said_before: int = 0
    _taken_over: bool = False
    _worker_s: float | None = None
    _lost: dict[str, Run] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether everything has gone wrong and is well again."""
        return self._taken_over and self._worker_s is not None and not self._lost

    def step(self, elapsed_s: float, seen: list[Arrived]) -> None:
        """Whatever is due now. seen: what arrived since the last step."""
        if self._scheduler_s is None:
            if elapsed_s >= SCHEDULER_AT_S:
                self._kill_scheduler(elapsed_s)
        elif not self._taken_over:
            self._look_for_owner(elapsed_s - self._scheduler_s)
        elif self._worker_s is None:
            if elapsed_s >= WORKER_AT_S:
                self._kill_worker(elapsed_s)
        else:
            self._look_for_runs(elapsed_s - self._worker_s, seen)

    def _kill_scheduler(self, elapsed_s: float) -> None:
        """The one with slots; if the group has not shared them out yet, nothing happens."""
        victim, survivor = self.cast.schedulers
        slots = assigned_slots(victim)
        if not slots:
            return
        self._said_before, self._orphans = len(survivor.said()), frozenset(slots)
        self._kill(victim)
        self._scheduler_s = elapsed_s
        self.say(f"kill -9 {victim.name} (process {victim.pid}), the owner of {_slots(slots)}")

    def _look_for_owner(self, since_s: float) -> None:
        survivor = self.cast.schedulers[-1]
        if slots_taken(survivor, after=self._said_before) >= self._orphans:
            self._taken_over = True
            self.say(f"{survivor.name} has taken over {_slots(sorted(self._orphans))}, {_span(since_s)} after the kill")

    def _kill_worker(self, elapsed_s: float) -> None:
        """One that is in the middle of something; until there is one, nothing happens."""
        workers = self.cast.workers_by_id()
        busy = [run for run in self.board.live.values() if run.worker in workers]
        if not busy:
            return
        worker_id = max(busy, key=lambda run: run.granted_ms).worker
        assert worker_id is not None
        victim = workers[worker_id]
        self._kill(victim)
        self._worker_s = elapsed_s
        self._lost = {run.run_id: run for run in busy if run.worker == worker_id}
        names = ", ".join(self._lost)
        self.say(f"kill -9 {victim.name} (process {victim.pid}, {worker_id}) in the middle of {names}")

    def _look_for_runs(self, since_s: float, seen: list[Arrived]) -> None:
        for arrived in seen:
            run = self._lost.pop(str(arrived.execution.get("run_id")), None)
            if run is None:
                continue
            state, worker, attempt = (arrived.execution.get(name) for name in ("state", "worker", "attempt"))
            told = f"{run.run_id}: {state}, attempt {attempt} on {worker}, {_span(since_s)} after the kill"
            self.say(told)

    def _kill(self, process: Process) -> None:
        self.killed.append(process.name)
        self.cast.kill(process)


def _slots(slots: Sequence[int]) -> str:
    return f"slot{'s' if len(slots) > 1 else ''} {', '.join(map(str, slots))}"


def _span(seconds: float) -> str:
    return words(round(seconds * 1000))
