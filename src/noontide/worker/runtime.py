"""A worker process at work: moves messages between the desk, the stage, the group and the owners.

One task per slot posts its frames: what gathers while one is under way goes into the next, so batches grow with load.
Claims go at once; ends, which nobody in this process waits for, wait for company, so that owners commit less often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from noontide.actors.waiting import wait_for_event
from noontide.adapters.system_clock import wall_now_ms
from noontide.ports.run_source import Delivered, EventLine, Place, RunSource
from noontide.records.worker_events import End, encode_frame
from noontide.records.worker_inbox import Answer
from noontide.worker.app import App
from noontide.worker.desk import Desk
from noontide.worker.holding import Address, DeskSettings, Holding
from noontide.worker.pulse import WorkerPulse
from noontide.worker.stage import AttemptStage, Audience, HttpStage, Stage
from noontide.worker.tracing import AttemptTracing

log = logging.getLogger("noontide.worker")
TICK_MAX_MS: Final = 250
FLUSH_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker works. drain_ms: time to finish after a stop.

    gather_ms: how long a frame waits for company; ends_gather_ms: one without claims. frame_ms: the least time between
    two frames for a slot.
    """

    desk: DeskSettings = field(default_factory=DeskSettings)
    gather_ms: int = 2
    ends_gather_ms: int = 25
    frame_ms: int = 10
    drain_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """What a worker is connected to. sources: by lane. boot_ms: a monotonic clock that counts suspend, ms.

    stage: makes where attempts are carried out; None = threads and event loops, see `worker.stage`.
    tracing: None = nobody wants traces.
    """

    sources: Mapping[str, RunSource]
    line: EventLine
    boot_ms: Callable[[], float]
    http: HttpStage | None = None
    stage: Callable[[Audience], AttemptStage] | None = None
    tracing: AttemptTracing | None = None


class Runtime:
    """One worker. worker_id: new in each incarnation. inbox: the partition of `worker-inbox` it listens to."""

    def __init__(self, app: App, ports: WorkerPorts, settings: WorkerSettings, *, worker_id: str, inbox: int) -> None:
        self._ports = ports
        self._settings = settings
        make_stage = ports.stage or partial(
            Stage, app, concurrency=settings.desk.concurrency, http=ports.http, tracing=ports.tracing
        )
        self._stage = make_stage(self)
        self.pulse = WorkerPulse()
        self._desk = Desk(worker_id, inbox, settings=settings.desk, way_of=self._stage.way_of)
        self._posts: dict[Address, asyncio.Task[None]] = {}
        self._urgent: dict[Address, asyncio.Event] = {}
        self._changed = asyncio.Event()

    @property
    def desk(self) -> Desk:
        """What is in hand."""
        return self._desk

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain; returns when everything is said or the time for it is over."""
        await self._ports.line.open(self._answered)
        for lane, source in self._ports.sources.items():
            source.start(partial(self._delivered, lane))
        ticking = asyncio.create_task(self._tick_for_ever())
        try:
            self._turn()
            await stop.wait()
            await self._drain()
        finally:
            ticking.cancel()
            await asyncio.wait({ticking})
            await self._close()

    # --- what comes in, on the loop

    def _delivered(self, lane: str, delivered: list[Delivered]) -> None:
        self.pulse.delivered += len(delivered)
        self._desk.invited(lane, delivered, self._ports.boot_ms())
        self._turn()

    def _answered(self, answers: list[Answer]) -> None:
        now_ms = self._ports.boot_ms()
        for answer in answers:
            self._desk.answered(answer, now_ms)
        self.pulse.answers.update(type(answer).__name__.lower() for answer in answers)
        self._turn()

    def ended(self, ends: list[tuple[Holding, End]]) -> None:
        """See `Audience.ended`."""
        now_ms = self._ports.boot_ms()
        for holding, end in ends:
            self.pulse.ends[holding.lane, end.outcome.value] += 1
            self.pulse.ran_ms.add(now_ms - holding.started_ms)
            self._desk.ended(holding, end, now_ms)
        self._turn()

    def resize(self, places: int) -> None:
        """From now on so many attempts may be carried out at once."""
        self._desk.resize(places, self._ports.boot_ms())
        self._turn()

    def progressed(self, words: dict[Holding, tuple[float | None, str]]) -> None:
        """See `Audience.progressed`."""
        for holding, (fraction, note) in words.items():
            self._desk.progressed(holding, fraction, note)
        self._turn()

    async def _tick_for_ever(self) -> None:
        while True:
            now_ms = self._ports.boot_ms()
            self._desk.tick(now_ms)
            self._turn()
            await asyncio.sleep(max(1.0, min(self._desk.next_ms - now_ms, TICK_MAX_MS)) / 1000)

    # --- what goes out

    def _turn(self) -> None:
        """Do what the desk wants done."""
        out = self._desk.out
        if out.starts:
            starts, out.starts = out.starts, []
            self._stage.start(starts)
            self._note_starts(starts)
        if out.stops:
            stops, out.stops = out.stops, []
            for holding in stops:
                self._stage.stop(holding)
        if out.accepted or out.released:
            self._settle()
        if out.notes:
            notes, out.notes = out.notes, []
            for note in notes:
                log.log(note.level, "worker: %s", note.text)
        self._say()
        wanted = self._desk.wanted(self._ports.boot_ms())
        for source in self._ports.sources.values():
            source.want(wanted)
        self._changed.set()

    def _say(self) -> None:
        """See to it that what is to be said to slots is posted: claims soon, and everything when the worker stops."""
        for address, draft in self._desk.out.drafts.items():
            if address not in self._posts:
                self._urgent[address] = asyncio.Event()
                self._posts[address] = asyncio.create_task(self._post(address))
            if draft.claims or self._desk.draining:
                self._urgent[address].set()

    def _note_starts(self, starts: list[Holding]) -> None:
        now_ms = wall_now_ms()
        self.pulse.started += len(starts)
        for holding in starts:
            self.pulse.late_ms.add(max(0, now_ms - holding.invitation.start_ms))

    def _settle(self) -> None:
        out = self._desk.out
        accepted, released, out.accepted, out.released = out.accepted, out.released, [], []
        for lane, source in self._ports.sources.items():
            if done := _places(accepted, lane):
                source.accept(done)
            if back := _places(released, lane):
                source.release(back)

    async def _post(self, address: Address) -> None:
        """Post frames to a slot until there is nothing to say."""
        (lane, slot), urgent = address, self._urgent[address]
        try:
            await asyncio.sleep(self._settings.gather_ms / 1000)
            while address in self._desk.out.drafts:
                await wait_for_event(urgent, at_most_ms=self._settings.ends_gather_ms)
                urgent.clear()
                outgoing = self._desk.take(address, self._ports.boot_ms())
                if outgoing is None:
                    continue
                posted_ms = self._ports.boot_ms()
                await self._ports.line.post(lane, slot, encode_frame(outgoing.frame))
                self._desk.logged(outgoing)
                self._turn()
                await asyncio.sleep(max(0.0, posted_ms + self._settings.frame_ms - self._ports.boot_ms()) / 1000)
        finally:
            del self._posts[address], self._urgent[address]
            self._changed.set()

    # --- the end

    async def _drain(self) -> None:
        log.info("stopping: %d places taken; drain %.1f s", self._desk.busy, self._settings.drain_ms / 1000)
        self._desk.drain(self._ports.boot_ms())
        self._turn()
        if not await self._until_idle(self._settings.drain_ms / 1000):
            log.warning("the drain time is over: %d places taken", self._desk.busy)
            self._desk.give_up(self._ports.boot_ms())
            self._turn()
            await self._until_idle(self._settings.desk.stop_grace_ms / 1000 + FLUSH_S)

    async def _until_idle(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not self._desk.idle or self._posts:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _close(self) -> None:
        await asyncio.gather(*(source.close() for source in self._ports.sources.values()))
        posts = set(self._posts.values())
        for post in posts:
            post.cancel()
        if posts:
            await asyncio.wait(posts)
        await self._ports.line.close()
        self._stage.close()


def _places(settled: list[tuple[str, Place]], lane: str) -> list[Place]:
    return [place for its_lane, place in settled if its_lane == lane]
