"""An event loop in virtual time that runs several processes, each of which can be killed or paused at any step.

A process is a context: what it starts inherits it, so every callback knows whose it is. Killing one drops its
callbacks, as `kill -9` does: no `finally` runs. Pausing one keeps them, as `kill -STOP` does, and time goes on for the
others.
Between processes that could go on at the same instant the dice choose; each process by itself keeps its order.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random  # noqa: TID251 - seeded: the seed is the replay
from typing import Any, TypeVar

T = TypeVar("T")
STEPS_AT_FIRST, STEPS_PER_S = 15_000, 150
"""A simulation may take so many steps, and so many more for each virtual second: twice what one that is well takes."""
CLOSING_ROUNDS, CLOSING_STEPS_MAX = 20, 300
STEPS_AT_ONCE_MAX = 5_000
"""Steps within one instant; more means that something goes on without ever waiting."""


class Killed(BaseException):
    """The process died in the middle of a call that does not wait."""


class Restless(AssertionError):
    """The cluster does not come to rest. checker: how it is called."""

    checker = "liveness"


class Endless(Restless):
    """It works without end, within one instant or from one to the next, and gets nowhere."""

    checker = "livelock"


class _Step(asyncio.TimerHandle):
    """One callback of one process."""

    owner: Process

    def go(self) -> None:
        self._run()


class Process:
    """One operating system process. `tasks` are held, so that what a kill leaves behind is not collected half-way."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.steps = 0
        self.ready: deque[_Step] = deque()
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)
        self._loop = loop
        loop.processes.append(self)

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task of this process; one that fails ends the simulation."""
        task = self._loop.create_task(coroutine, context=self.context)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Killed) and self is not self._loop.outside:
            self._loop.failure = error

    def later(self, delay_ms: float, callback: Callable[..., object], *args: object) -> None:
        """Call something in this process after a while."""
        self._loop.call_later(delay_ms / 1000, callback, *args, context=self.context)

    def kill(self) -> None:
        """It is gone, whatever it was about to do."""
        self.alive = False
        self._loop.settle(self)

    def pause(self) -> None:
        """It stands still."""
        self.paused = True
        self._loop.settle(self)

    def resume(self) -> None:
        """It goes on with all that has come meanwhile."""
        self.paused = False
        self._loop.settle(self)

    @property
    def runs(self) -> bool:
        """Whether it does anything now."""
        return self.alive and not self.paused


_PROCESS: ContextVar[Process] = ContextVar("process")


class VirtualLoop(asyncio.AbstractEventLoop):
    """See the module. `steps`: callbacks run so far; `after_step` is called after each."""

    def __init__(self, dice: Random) -> None:
        self.steps = 0
        self.dice = dice
        self.after_step: Callable[[], None] = lambda: None
        self.tasks: list[asyncio.Task[Any]] = []
        self.processes: list[Process] = []
        self.surprises: list[str] = []
        self.failure: BaseException | None = None
        self._now_s = 0.0
        self._at_once = 0
        self._numbers = count()
        self._timers: list[tuple[float, int, _Step]] = []
        self._runnable: list[Process] = []
        self._running = self._closed = False
        self.outside = Process(self, "outside")

    @property
    def now_ms(self) -> float:
        """Virtual time since the start."""
        return self._now_s * 1000

    # --- running

    def run_until_complete(self, future: Generator[Any, None, T] | Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        """Run until it is done; raises Restless when nothing can make it done any more."""
        assert not self._running, "already running"
        task: asyncio.Future[T] = (
            future if isinstance(future, asyncio.Future) else self.outside.spawn(future)  # type: ignore[arg-type]
        )
        asyncio.events._set_running_loop(self)  # noqa: SLF001 - how an event loop says that it runs
        self._running = True
        try:
            while not task.done():
                if not self._step():
                    raise Restless("nothing is left to do, and it is not done")
                if self.failure is not None:
                    raise self.failure
        finally:
            asyncio.events._set_running_loop(None)  # noqa: SLF001
            self._running = False
        return task.result()

    def _step(self) -> bool:
        if not self._runnable and not self._advance():
            return False
        runnable = self._runnable
        process = runnable[0] if len(runnable) == 1 else runnable[self.dice.randrange(len(runnable))]
        if self._at_once >= STEPS_AT_ONCE_MAX or self.steps >= STEPS_AT_FIRST + STEPS_PER_S * self._now_s:
            raise Endless(self._who_is_busy(process.ready[0]))
        step = process.ready.popleft()
        if not process.ready:
            runnable.remove(process)
        if step.cancelled():
            return True
        self.steps += 1
        process.steps += 1
        self._at_once += 1
        step.go()
        self.after_step()
        return True

    def _who_is_busy(self, step: _Step) -> str:
        busiest = max(self.processes, key=lambda process: process.steps)
        return (
            f"{self.steps:,} steps by {self._now_s:.1f} s, {self._at_once:,} of them at that instant; "
            f"the busiest is {busiest.name} with {busiest.steps:,}; the next step: {step!r}"
        )

    def _advance(self) -> bool:
        """Go to the next instant at which anybody can do something."""
        while self._timers and not self._runnable:
            at_s = self._timers[0][0]
            if at_s > self._now_s:
                self._now_s, self._at_once = at_s, 0
            while self._timers and self._timers[0][0] <= at_s:
                _, _, step = heapq.heappop(self._timers)
                if not step.cancelled():
                    self._make_ready(step)
        return bool(self._runnable)

    def _make_ready(self, step: _Step) -> None:
        process = step.owner
        process.ready.append(step)  # kept of the dead too: `close` brings their tasks to an end
        if len(process.ready) == 1 and process.runs:
            self._runnable.append(process)

    def settle(self, process: Process) -> None:
        """A process was killed, paused or resumed."""
        wanted = bool(process.ready) and process.runs
        listed = process in self._runnable
        if wanted and not listed:
            self._runnable.append(process)
        elif listed and not wanted:
            self._runnable.remove(process)

    # --- what asyncio asks of a loop

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> _Step:  # type: ignore[override]
        """See asyncio."""
        step = self._new(self._now_s, callback, args, context)
        self._make_ready(step)
        return step

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Step:
        """See asyncio."""
        return self.call_at(self._now_s + max(0.0, delay), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Step:
        """See asyncio."""
        step = self._new(when, callback, args, context)
        heapq.heappush(self._timers, (when, next(self._numbers), step))
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def _new(self, when: float, callback: Callable[..., object], args: Any, context: Context | None) -> _Step:
        if context is None:
            context = copy_context()
        step = _Step(when, callback, args, self, context)
        step.owner = context.get(_PROCESS, self.outside)
        return step

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """See asyncio."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """A blocking call: it takes a little while, and then happens at one instant."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Killed:
                return
            except Exception as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)

        self.call_later(self.dice.choice((0.0, 0.001, 0.003, 0.02)), run)
        return future

    def is_running(self) -> bool:
        """See asyncio."""
        return self._running

    def is_closed(self) -> bool:
        """See asyncio."""
        return self._closed

    def get_debug(self) -> bool:
        """See asyncio."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Something nobody waits for has failed: kept, unless its process is dead."""
        error = context.get("exception")
        if not self._closed and not isinstance(error, Killed):
            self.surprises.append(f"{context.get('message')}: {error!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when they come up."""

    def close(self) -> None:
        """Bring every task to its end, also those of the dead; nothing is judged any more."""
        self._closed = True
        self.after_step = lambda: None
        asyncio.events._set_running_loop(self)  # noqa: SLF001
        try:
            for _ in range(CLOSING_ROUNDS):
                for process in self.processes:
                    process.alive, process.paused = True, False
                    self.settle(process)
                left = [task for task in self.tasks if not task.done()]
                for task in left:
                    task.cancel()
                for _ in range(CLOSING_STEPS_MAX if left else 0):
                    if not self._quietly():
                        break
        finally:
            asyncio.events._set_running_loop(None)  # noqa: SLF001
        self.tasks = [task for task in self.tasks if not task.done()]
        self._timers.clear()
        self._runnable.clear()

    def _quietly(self) -> bool:
        if not self._runnable and not self._advance():
            return False
        process = self._runnable.pop(0)  # in turn: one that is busy without end keeps nobody from ending
        step = process.ready.popleft()
        if process.ready:
            self._runnable.append(process)
        if not step.cancelled():
            step.go()
        return True
