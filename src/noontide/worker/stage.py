"""Where attempts are carried out: threads for plain functions, event loops of their own for coroutines and requests.

    loop of the worker                            elsewhere
    start, stop ─────────────────────────────▶    threads, the handlers' loop, the loop of HTTP requests
    ended, progressed ◀── one wake-up for many ──

Nothing a handler does can hold up the loop of the worker, which sends heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from noontide.adapters.system_clock import wall_now_ms
from noontide.ports.target_executor import TargetExecutor
from noontide.records.runs import Invitation
from noontide.records.worker_events import End, Outcome
from noontide.worker.app import App
from noontide.worker.attempt import Attempt, stopped
from noontide.worker.context import Context
from noontide.worker.crew import Crew
from noontide.worker.holding import Holding, Stop, Way
from noontide.worker.side_loop import SideLoop
from noontide.worker.tracing import AttemptTracing

log = logging.getLogger("noontide.worker")


class Audience(Protocol):
    """Who hears of what happens on the stage, on the loop of the worker."""

    def ended(self, ends: list[tuple[Holding, End]]) -> None:
        """Attempts are over."""

    def progressed(self, words: dict[Holding, tuple[float | None, str]]) -> None:
        """The latest word of running attempts."""


class AttemptStage(Protocol):
    """Where attempts are carried out; each that is started ends in `Audience.ended`, once."""

    def way_of(self, invitation: Invitation) -> Way:
        """How an attempt would be carried out."""

    def start(self, holdings: list[Holding]) -> None:
        """Begin attempts."""

    def stop(self, holding: Holding) -> None:
        """An attempt has to stop."""

    def close(self) -> None:
        """End what can be ended."""


class HttpStage(TargetExecutor, Protocol):
    """The executor of HTTP targets; it lives on one event loop."""

    async def aclose(self) -> None:
        """Close its connections when the last attempt has ended."""


@dataclass(slots=True, eq=False)
class Request:
    """An HTTP attempt under way."""

    holding: Holding
    cancelled: asyncio.Event
    task: asyncio.Task[None] | None = None


class Stage:
    """Carries out attempts. Its methods are for the loop of the worker.

    http: None = no HTTP targets here. tracing: None = nobody wants traces.
    """

    def __init__(
        self, app: App, audience: Audience, *, concurrency: int, http: HttpStage | None,
        tracing: AttemptTracing | None = None,
    ) -> None:  # fmt: skip
        self._handlers = app.handlers
        self._audience = audience
        self._loop = asyncio.get_running_loop()
        self._crew = Crew(concurrency)
        self._handler_loop = SideLoop("handlers")
        self._http = http
        self._tracing = tracing
        self._http_loop = None if http is None else SideLoop("http")
        self._ends: deque[tuple[Holding, End]] = deque()
        self._words: deque[tuple[Holding, float | None, str]] = deque()
        self._woken = False

    def way_of(self, invitation: Invitation) -> Way:
        """How an attempt would be carried out."""
        if "http" in invitation.target:
            return Way.NONE if self._http is None else Way.TASK
        handler = self._handlers.get(str(invitation.target.get("handler")))
        return Way.NONE if handler is None else Way.TASK if handler.is_async else Way.THREAD

    def start(self, holdings: list[Holding]) -> None:
        """Begin attempts; each ends in `Audience.ended`, once."""
        started_ms = wall_now_ms()
        tasks = []
        for holding in holdings:
            handler = self._handlers.get(str(holding.invitation.target.get("handler")))
            if handler is None:
                self._start_request(holding)
                continue
            context = Context(holding, started_ms=started_ms, report=self._progressed)
            holding.attempt = attempt = Attempt(holding, handler, context)
            if handler.is_async:
                tasks.append(attempt)
            else:
                self._crew.submit(partial(self._perform, attempt))
        if tasks:
            self._handler_loop.call(self._begin, tasks)

    def stop(self, holding: Holding) -> None:
        """An attempt has to stop: `Context.cancelled` becomes true, and a task is cancelled."""
        match holding.attempt:
            case Attempt() as attempt:
                attempt.context.cancel()
                if attempt.handler.is_async:
                    self._handler_loop.call(_cancel, attempt)
            case Request() as request if self._http_loop is not None:
                self._http_loop.call(_stop_request, request)

    def close(self) -> None:
        """End what can be ended, within about a second."""
        self._crew.close()
        self._handler_loop.close()
        if self._http_loop is not None:
            self._http_loop.close(last=None if self._http is None else self._http.aclose)

    # --- elsewhere

    def _perform(self, attempt: Attempt) -> None:
        if self._tracing is None:
            self._ended(attempt.holding, attempt.run())
            return
        holding, start_ms = attempt.holding, wall_now_ms()
        with self._tracing.within(holding.invitation, holding.token):
            end = attempt.run()
        self._trace(holding, end, start_ms)
        self._ended(holding, end)

    def _trace(self, holding: Holding, end: End, start_ms: int) -> None:
        if self._tracing is not None:
            self._tracing.ended(holding.invitation, holding.token, end, start_ms=start_ms, end_ms=wall_now_ms())

    def _begin(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            attempt.task = self._handler_loop.spawn(self._perform_async(attempt))

    async def _perform_async(self, attempt: Attempt) -> None:
        if self._tracing is None:
            self._ended(attempt.holding, await attempt.run_async())
            return
        holding, start_ms = attempt.holding, wall_now_ms()
        with self._tracing.within(holding.invitation, holding.token):
            end = await attempt.run_async()
        self._trace(holding, end, start_ms)
        self._ended(holding, end)

    def _start_request(self, holding: Holding) -> None:
        assert self._http_loop is not None
        holding.attempt = request = Request(holding, asyncio.Event())
        self._http_loop.call(self._begin_request, request)

    def _begin_request(self, request: Request) -> None:
        assert self._http_loop is not None
        request.task = self._http_loop.spawn(self._perform_request(request))

    async def _perform_request(self, request: Request) -> None:
        assert self._http is not None
        holding, start_ms = request.holding, 0 if self._tracing is None else wall_now_ms()
        try:
            end = await self._http.execute(holding.invitation, holding.token, cancelled=request.cancelled)
        except asyncio.CancelledError:
            end = stopped(holding, holding.stop or Stop.SHUTDOWN)
        except Exception as error:  # a fault of ours must not cost the worker a place for ever
            log.exception("%s: the request could not be carried out", holding.invitation.run_id)
            text = f"{type(error).__name__}: {error}"[:2_000]
            end = End(run_id=holding.invitation.run_id, token=holding.token, outcome=Outcome.FAILED, error=text)
        self._trace(holding, end, start_ms)
        self._ended(holding, end)

    # --- back to the loop of the worker

    def _ended(self, holding: Holding, end: End) -> None:
        self._ends.append((holding, end))
        self._wake()

    def _progressed(self, holding: Holding, fraction: float | None, note: str) -> None:
        self._words.append((holding, fraction, note))
        self._wake()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._hear)
            except RuntimeError:
                log.debug("the worker has ended; what comes of an attempt is ignored")

    def _hear(self) -> None:
        self._woken = False  # before the queues are emptied: what is added from here on wakes again
        words, ends = self._words, self._ends
        latest = {}
        while words:
            holding, fraction, note = words.popleft()
            latest[holding] = fraction, note
        if latest:
            self._audience.progressed(latest)
        over = []
        while ends:
            holding, end = ends.popleft()
            holding.attempt = None  # they point at each other: thousands would wait for the collector, and we for it
            over.append((holding, end))
        if over:
            self._audience.ended(over)


def _cancel(attempt: Attempt) -> None:
    if attempt.task is not None:
        attempt.task.cancel()


def _stop_request(request: Request) -> None:
    """Asked to cancel it says how it ended; at shutdown and at a timeout it is given up (see `TargetExecutor`)."""
    if request.holding.stop in (Stop.CANCELLED, Stop.LOST):
        request.cancelled.set()
    elif request.task is not None:
        request.task.cancel()
