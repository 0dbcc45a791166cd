"""Verdicts on the requests of this node: one stream from every owner, and questions about what it did not bring."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noontide.adapters.http.line import HttpLine, LineBroken
from noontide.apps.api.owners import Owners
from noontide.apps.api.problems import ApiProblem
from noontide.apps.port import wire

log = logging.getLogger("noontide.api")
EARLY_MAX = 50_000
SILENCE_S = 6.0
RECONNECT_S, RECONNECT_MAX_S = 0.05, 1.0
LOOK_S = 0.25
ASK_AFTER_S = 0.5
WANTED_MAX = 1_000


class Place(NamedTuple):
    """Where a request of this node is in `requests.api`, and when it was appended."""

    partition: int
    offset: int
    appended_ms: int


class _Waiting:
    __slots__ = ("ask_at_s", "future", "place")

    def __init__(self, place: Place, future: asyncio.Future[wire.Decided | None], ask_at_s: float) -> None:
        self.place = place
        self.future = future
        self.ask_at_s = ask_at_s


class Verdicts:
    """Follows what owners decide for as long as `run` runs."""

    def __init__(self, owners: Owners, *, secret: str) -> None:
        self._owners = owners
        self._secret = secret
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self._early: OrderedDict[tuple[int, int], wire.Decided] = OrderedDict()
        self._streams: dict[str, asyncio.Task[None]] = {}

    async def of(self, place: Place, *, timeout_s: float) -> wire.Decided | None:
        """The verdict; None when there is none in time."""
        key = place[:2]
        early = self._early.pop(key, None)
        if early is not None:
            return early
        loop = asyncio.get_running_loop()
        waiting = self._waiting[key] = _Waiting(place, loop.create_future(), loop.time() + ASK_AFTER_S)
        timer = loop.call_later(timeout_s, _give_up, waiting.future)
        try:
            return await waiting.future
        finally:
            timer.cancel()
            self._waiting.pop(key, None)

    async def of_many(self, places: Sequence[Place], *, timeout_s: float) -> dict[tuple[int, int], wire.Decided]:
        """The verdicts that are there in time, by partition and offset."""
        loop = asyncio.get_running_loop()
        found: dict[tuple[int, int], wire.Decided] = {}
        waited_for: list[_Waiting] = []
        for place in places:
            early = self._early.pop(place[:2], None)
            if early is not None:
                found[place[:2]] = early
                continue
            waiting = _Waiting(place, loop.create_future(), loop.time() + ASK_AFTER_S)
            self._waiting[place[:2]] = waiting
            waited_for.append(waiting)
        try:
            if waited_for:
                await asyncio.wait([each.future for each in waited_for], timeout=timeout_s)
        finally:
            for each in waited_for:
                self._waiting.pop(each.place[:2], None)
        for each in waited_for:
            decided = each.future.result() if each.future.done() else None
            if decided is not None:
                found[each.place[:2]] = decided
        return found

    async def ask(self, place: Place) -> wire.DecidedMany:
        """What the owner knows of one request. Raises ApiProblem (503)."""
        slot = self._owners.layout.slot_of(place.partition)
        answer = await self._owners.ask(slot, wire.Verdicts(slot=slot, wanted=[place]))
        assert isinstance(answer, wire.DecidedMany)
        return answer

    async def run(self) -> None:
        """Keep a stream to every process that owns something, and ask about what waits for long."""
        asking: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._tend_streams()
                for slot, wanted in self._overdue().items():
                    task = asyncio.create_task(self._ask_about(slot, wanted))
                    asking.add(task)
                    task.add_done_callback(asking.discard)
                await self._owners.directory.news(LOOK_S)
        finally:
            for task in (*self._streams.values(), *asking):
                task.cancel()

    def arrived(self, decided: list[wire.Decided]) -> None:
        """Owners have decided these; what nobody waits for may be asked for in a moment, or be of another node."""
        for each in decided:
            waiting = self._waiting.get((each.partition, each.offset))
            if waiting is None:
                self._early[each.partition, each.offset] = each
            elif not waiting.future.done():
                waiting.future.set_result(each)
        while len(self._early) > EARLY_MAX:
            self._early.popitem(last=False)

    def _tend_streams(self) -> None:
        wanted = {owner.url for owner in self._owners.directory.owners.values() if owner.url is not None}
        for url in self._streams.keys() - wanted:
            self._streams.pop(url).cancel()
        for url in wanted - self._streams.keys():
            self._streams[url] = asyncio.create_task(self._follow(url), name=f"verdicts {url}")

    async def _follow(self, url: str) -> None:
        line = HttpLine(url, (f"Authorization: Bearer {self._secret}",))
        pause_s = RECONNECT_S
        while True:
            try:
                rest = b""
                async for piece in line.stream(wire.VERDICTS, silence_s=SILENCE_S):
                    pause_s = RECONNECT_S
                    *lines, rest = (rest + piece).split(b"\n")
                    for text in lines:
                        if text:
                            self.arrived(wire.decode_decided(text))
            except (LineBroken, msgspec.DecodeError) as broken:
                log.debug("verdicts of %s: %s", url, broken)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RECONNECT_MAX_S)

    def _overdue(self) -> dict[int, list[_Waiting]]:
        """What has waited for long, by slot; each is asked for again after a while."""
        now_s = asyncio.get_running_loop().time()
        found: dict[int, list[_Waiting]] = {}
        for waiting in self._waiting.values():
            if waiting.ask_at_s <= now_s:
                waiting.ask_at_s = now_s + ASK_AFTER_S
                found.setdefault(self._owners.layout.slot_of(waiting.place.partition), []).append(waiting)
        return {slot: each[:WANTED_MAX] for slot, each in found.items()}

    async def _ask_about(self, slot: int, waiting: list[_Waiting]) -> None:
        wanted: list[tuple[int, int, int]] = [each.place for each in waiting]
        try:
            answer = await self._owners.ask(slot, wire.Verdicts(slot=slot, wanted=wanted))
        except ApiProblem:
            return
        assert isinstance(answer, wire.DecidedMany)
        self.arrived(answer.verdicts)


def _give_up(future: asyncio.Future[wire.Decided | None]) -> None:
    if not future.done():
        future.set_result(None)
