"""The whole API over real slots in memory: requests go to the stage's log, questions to the port's own code."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import httpx

from noontide.adapters.memory.index import MemoryIndex
from noontide.apps.api.app import create_app
from noontide.apps.api.leasing import LeaseLine, Leasing
from noontide.apps.api.owners import Owners
from noontide.apps.api.principal import Authenticate, everybody
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.apps.api.verdicts import Place, Verdicts
from noontide.apps.api.writing import Writer
from noontide.apps.port import wire
from noontide.apps.port.board import Board
from noontide.apps.port.queries import Queries
from noontide.apps.port.recents import Recents, Source
from noontide.ports.record_log import Doubt, Receipt, Record, TopicPartition
from noontide.testing.memory_stage import MemoryStage


class MemoryApi:
    """What the routes work with. decides: while False, requests are appended and nobody decides them."""

    def __init__(self, stage: MemoryStage) -> None:
        self.stage = stage
        self.decides = True
        self.settings = ApiSettings(verdict_wait_ms=20, owner_wait_ms=50)
        self._board = Board(kept_max=1_000)
        self._topic = stage.layout.name("executions")
        self._slots = frozenset(range(stage.layout.slots))
        source = Source(
            topic=self._topic, owned=lambda: self._slots, follow=cast("Any", None),
            ends=lambda partitions: dict.fromkeys(partitions, 1 << 40),
        )  # fmt: skip
        self._copy = MemoryIndex()
        self._recents = Recents(self._copy, source, per_second_max=1_000, retention_ms=7 * 86_400_000)
        self._recents.begin(self._slots)
        self.queries = Queries(stage.layout, self.readable, self._board, self._recents, stage.settings)
        directory = cast("Any", SimpleNamespace(owners={}, news=asyncio.sleep))
        self.owners = _MemoryOwners(self, directory)
        verdicts = _MemoryVerdicts(self)
        config = cast("Any", stage._config)
        self.services = Services(
            layout=stage.layout,
            config=lambda: config.view,
            now_ms=stage.clock.now_ms,
            owners=self.owners,
            leasing=Leasing(_no_brokers, self.settings),
            writer=Writer(config, stage.layout, cast("Any", self), verdicts, self.settings, secret="a secret"),
        )

    def readable(self, slot: int) -> Any:
        """The slot and its index."""
        found = self.stage.slots[slot]
        return found.slot, found.index

    def forget(self) -> None:
        """All executions so far."""
        self._copy.wipe()

    def send(self, at: TopicPartition, record: Record) -> asyncio.Future[Receipt]:
        """As a request line."""
        future = asyncio.get_running_loop().create_future()
        future.set_result(self.stage.log.append(at, [record]))
        return future

    async def settle(self) -> None:
        """Let the slots work, and their executions be copied."""
        for each in self.stage.slots:
            each.slot._ports = _with_board(each.slot._ports, self._board)
        if self.decides:
            await self.stage.run_until_idle()
        new = [
            each for each in self.stage.records(self._topic) if each.offset >= self._recents.position(each.partition)
        ]
        if new:
            self._recents.copy(new)


def _with_board(ports: Any, board: Board) -> Any:
    from dataclasses import replace

    return replace(ports, decided=board.post)


class _MemoryOwners(Owners):
    def __init__(self, api: MemoryApi, directory: Any) -> None:
        super().__init__(api.stage.layout, directory, api.settings, secret="")
        self._api = api

    def _by_url(self, slots: set[int]) -> dict[str, list[int]]:
        return {"memory": sorted(slots)}

    async def _try(self, url: str, question: wire.Asked) -> wire.Answered | None:
        await self._api.settle()
        asked = wire.decode_questions(wire.encode([question]))
        answer = await self._api.queries.answer(asked[0])
        (answered,) = wire.decode_answers(wire.encode([answer]))
        return None if isinstance(answered, wire.Moved) else answered

    def missing(self) -> list[int]:
        """None."""
        return []


class _MemoryVerdicts(Verdicts):
    def __init__(self, api: MemoryApi) -> None:
        super().__init__(api.owners, secret="")
        self._api = api

    async def of(self, place: Place, *, timeout_s: float) -> wire.Decided | None:
        """The verdict once the slots have worked."""
        return (await self.of_many([place], timeout_s=timeout_s)).get(place[:2])

    async def of_many(self, places: Sequence[Place], *, timeout_s: float) -> dict[tuple[int, int], wire.Decided]:
        """The same for many."""
        await self._api.settle()
        found = {place[:2]: self._api._board.find(*place[:2]) for place in places}
        return {place: decided for place, decided in found.items() if decided is not None}


async def _no_brokers(lane: str, _handlers: frozenset[str]) -> LeaseLine:
    raise Doubt(f"nobody delivers the runs of lane {lane} here")


def client_of(api: MemoryApi, authenticate: Authenticate = everybody) -> httpx.AsyncClient:
    """A client of the whole API over it."""
    app = create_app(api.services, settings=api.settings, authenticate=authenticate)
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://api")
