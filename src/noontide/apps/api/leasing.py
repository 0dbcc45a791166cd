"""Runs for workers in other languages: this node claims them as a worker would, and passes them on with their leases.

    lease request waits ──> places of the desk ──> invitations are claimed ──> granted ──> passed on in the answer

One worker id per lane and set of handlers. After the answer nothing of a run is kept here: whoever got it says its
heartbeats and its end through any node, with the worker id and the token, and a node that dies loses no run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noontide.apps.api.problems import unavailable
from noontide.apps.api.settings import ApiSettings
from noontide.records.runs import Invitation
from noontide.worker.holding import Holding, Way, handed_back
from noontide.worker.runtime import Runtime
from noontide.worker.stage import AttemptStage, Audience

log = logging.getLogger("noontide.api")
TEND_S = 1.0


class Leased(NamedTuple):
    """A run that was passed on. worker: who holds its lease."""

    worker: str
    lane: str
    token: int
    invitation: Invitation


@dataclass(slots=True, eq=False)
class _Waiter:
    room: int
    leased: asyncio.Future[list[Holding]]


class Counter:
    """Where runs are passed on to whoever waits for them: the stage of a worker that carries out nothing itself."""

    def __init__(self, handlers: Collection[str]) -> None:
        self._handlers = frozenset(handlers)
        self._waiting: deque[_Waiter] = deque()
        self._audience: Audience | None = None
        self.passed_on: Callable[[Holding], None] = lambda _holding: None

    def __call__(self, audience: Audience) -> AttemptStage:
        """The stage of this audience."""
        self._audience = audience
        return self

    @property
    def room(self) -> int:
        """How many runs are waited for."""
        return sum(waiter.room for waiter in self._waiting)

    def wait(self, room: int) -> _Waiter:
        """Take a place in the queue."""
        waiter = _Waiter(room, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        return waiter

    def leave(self, waiter: _Waiter) -> list[Holding]:
        """Leave the queue; gives what has come for the waiter."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        return waiter.leased.result() if waiter.leased.done() and not waiter.leased.cancelled() else []

    def hand_back(self, holdings: list[Holding], why: str) -> None:
        """What nobody takes goes back; it costs no attempt."""
        assert self._audience is not None
        ends = [(each, handed_back(each.invitation.run_id, each.token, why)) for each in holdings]
        if ends:
            self._audience.ended(ends)

    def way_of(self, invitation: Invitation) -> Way:
        """See `AttemptStage.way_of`."""
        return Way.TASK if invitation.target.get("handler") in self._handlers else Way.NONE

    def start(self, holdings: list[Holding]) -> None:
        """See `AttemptStage.start`."""
        rest = holdings
        while rest and self._waiting:
            waiter = self._waiting.popleft()
            mine, rest = rest[: waiter.room], rest[waiter.room :]
            waiter.leased.set_result(mine)
        if rest:
            asyncio.get_running_loop().call_soon(self.hand_back, rest, "nobody waits for it any more")

    def stop(self, holding: Holding) -> None:
        """See `AttemptStage.stop`; what is to stop has not been passed on yet, and its end is said by the desk."""

    def close(self) -> None:
        """See `AttemptStage.close`."""


class LeaseLine:
    """The runs of one lane for one set of handlers. runtime_of: a worker over a stage; to be closed at the end."""

    def __init__(self, lane: str, worker_id: str, runtime: Runtime, counter: Counter) -> None:
        self.worker_id = worker_id
        self.used_s = asyncio.get_running_loop().time()
        self.waiting = 0
        self._lane = lane
        self._runtime = runtime
        self._counter = counter
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(runtime.run(self._stop), name=f"lease {lane}")

    @property
    def is_over(self) -> bool:
        """Whether it ended by itself: the brokers could not be reached."""
        return self._running.done()

    async def lease(self, room: int, *, wait_s: float, gone: Callable[[], Awaitable[None]]) -> list[Leased]:
        """Runs, as soon as there are some; none when none came in time. gone: returns when nobody waits any more."""
        waiter = self._counter.wait(room)
        self._runtime.resize(self._counter.room)
        self.waiting += 1
        leaving = asyncio.ensure_future(gone())
        taken = False
        try:
            awaited: set[asyncio.Future[Any]] = {waiter.leased, leaving}
            await asyncio.wait(awaited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            taken = not leaving.done()
        finally:
            leaving.cancel()
            self.waiting -= 1
            self.used_s = asyncio.get_running_loop().time()
            holdings = self._counter.leave(waiter)
            if taken:
                for holding in holdings:
                    self._runtime.desk.forget(holding)
            else:
                self._counter.hand_back(holdings, "the worker went away")
            self._runtime.resize(self._counter.room)
        return [Leased(self.worker_id, each.lane, each.token, each.invitation) for each in holdings]

    async def close(self) -> None:
        """Hand back what is under way and leave the group."""
        self._stop.set()
        await asyncio.wait({self._running})
        if not self._running.cancelled() and (error := self._running.exception()) is not None:
            log.warning("leases of lane %s: %s", self._lane, error)


OpenLine = Callable[[str, frozenset[str]], Awaitable[LeaseLine]]


@dataclass(slots=True)
class Leasing:
    """The lines of one node, opened when they are asked for and let go when they are not any more."""

    open_line: OpenLine
    settings: ApiSettings
    _lines: dict[tuple[str, frozenset[str]], asyncio.Future[LeaseLine]] = field(default_factory=dict)

    async def line(self, lane: str, handlers: frozenset[str]) -> LeaseLine:
        """The line of a lane and handlers. Raises ApiProblem (503) when there are too many, or no broker answers."""
        key = lane, handlers
        opening = self._lines.get(key)
        if opening is None or (opening.done() and (opening.exception() or opening.result().is_over)):
            if len(self._lines) >= self.settings.lease_groups_max:
                detail = "too many lanes and sets of handlers are leased at this node"
                raise unavailable(detail, retry_after_sec=self.settings.retry_after_sec)
            opening = self._lines[key] = asyncio.ensure_future(self.open_line(lane, handlers))
        try:
            return await asyncio.shield(opening)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lane cannot be taken now
            log.warning("leases of lane %s: %r", lane, error)
            if self._lines.get(key) is opening:
                del self._lines[key]
            detail = f"runs of lane {lane} cannot be taken now"
            raise unavailable(detail, retry_after_sec=self.settings.retry_after_sec) from None

    async def run(self) -> None:
        """Let go of what nobody asks for; at the end, of everything."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(TEND_S)
                idle_s = loop.time() - self.settings.lease_idle_ms / 1000
                idle = [
                    key
                    for key, opening in self._lines.items()
                    if opening.done()
                    and not opening.exception()
                    and not opening.result().waiting
                    and (opening.result().used_s < idle_s or opening.result().is_over)
                ]
                for key in idle:
                    await self._lines.pop(key).result().close()
        finally:
            lines = [opening.result() for opening in self._lines.values() if opening.done() and not opening.exception()]
            await asyncio.gather(*(line.close() for line in lines))
