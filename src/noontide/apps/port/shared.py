"""Answers about what tenants and lanes share: workers, permits, loads, and what is to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from operator import add
from typing import assert_never

from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.apps.port import wire
from noontide.apps.port.forecasts import Forecasts
from noontide.apps.port.foreseen import answer_of
from noontide.apps.port.scanning import Readable, rows_after
from noontide.apps.shares import lane_shares, limiter_shares
from noontide.ports.due_index import DueIndex
from noontide.records import rows, state
from noontide.records.leases import decode_lease
from noontide.records.limit_book import NO_LIMITS
from noontide.records.topics import Layout

RUNS_SCANNED_MAX = 5_000
"""Live runs looked at per partition."""
_STATE, _RUNNING, _LANE = b'{"state":"', b'{"state":"running"', b'"lane":"'
Question = wire.Workers | wire.Shares | wire.Loads | wire.Forecast


class SharedQueries:
    """As `Queries`. opened: a slot and its index; raises when they are not here."""

    def __init__(
        self,
        layout: Layout,
        readable: Readable,
        opened: Callable[[int], tuple[Slot, DueIndex]],
        settings: SchedulerSettings,
    ) -> None:
        self._layout = layout
        self._open = opened
        self._forecasts = Forecasts(layout, readable, settings)

    async def answer(self, question: Question) -> wire.Answered:
        """One answer."""
        match question:
            case wire.Workers():
                return await self._workers(question)
            case wire.Shares():
                return self._shares(question)
            case wire.Loads():
                return self._loads(question)
            case wire.Forecast():
                return await self._forecast(question)
            case _:
                assert_never(question)

    async def _workers(self, question: wire.Workers) -> wire.FoundWorkers:
        workers: dict[tuple[str, str], wire.WorkerCount] = {}
        lanes: dict[str, dict[str, int]] = {}
        for slot in question.slots:
            for number in self._layout.partitions_of(slot):
                _, index = self._open(slot)
                for run_id, _, value in islice(rows_after(index, number, b"l", b""), RUNS_SCANNED_MAX):
                    if not value.startswith(_RUNNING):  # most of many wait, and are only counted
                        _count_waiting(lanes, value)
                        continue
                    run = decode_lease(run_id, value)
                    if run.lane:
                        states = lanes.setdefault(run.lane, {})
                        states[run.state] = states.get(run.state, 0) + 1
                        if run.worker is not None:
                            _count(workers, run.worker, run.lane, run.granted_ms)
                await asyncio.sleep(0)
        return wire.FoundWorkers(workers=list(workers.values()), lanes=lanes)

    async def _forecast(self, question: wire.Forecast) -> wire.FoundForecast:
        for slot in question.slots:
            self._open(slot)
        found = await self._forecasts.of(question.slots, from_ms=question.from_ms, minutes=question.minutes)
        return await answer_of(question, found)

    def _loads(self, question: wire.Loads) -> wire.FoundLoads:
        lanes: dict[str, tuple[int, int, int, float, float]] = {}
        for number in question.slots:
            slot, _ = self._open(number)
            ready, loads, times = slot.ready.depths(), slot.keeper.loads(), slot.exchange.lane_times.sums()
            for lane in ready.keys() | loads.keys() | times.keys():
                found = (ready.get(lane, 0), *loads.get(lane, (0, 0)), *times.get(lane, (0.0, 0.0)))
                lanes[lane] = tuple(map(add, lanes.get(lane, (0, 0, 0, 0.0, 0.0)), found))
        return wire.FoundLoads(lanes=lanes)

    def _shares(self, question: wire.Shares) -> wire.FoundShares:
        given: dict[bytes, bytes] = {}
        runs = []
        for slot in question.slots:
            _, index = self._open(slot)
            numbers = self._layout.partitions_of(slot)
            for key, _, value in rows_after(index, numbers[0], rows.NOTE, state.LIMITER):
                if not key.startswith(state.LIMITER):
                    break
                if state.limiter_key_parts(key)[1] == question.tenant:
                    given[key] = value
            for number in numbers:
                found = islice(rows_after(index, number, b"l", b""), RUNS_SCANNED_MAX)
                leases = (decode_lease(run_id, value) for run_id, _, value in found)
                runs += [run for run in leases if run.tenant == question.tenant]
        return wire.FoundShares(
            limiters=[(each.limiter, *each[5:]) for each in limiter_shares(given, runs, NO_LIMITS)],
            lanes=[(each.lane, *each[3:]) for each in lane_shares(runs, NO_LIMITS)],
        )


def _count_waiting(lanes: dict[str, dict[str, int]], lease: bytes) -> None:
    """Count a run that nobody works on, by the text of its lease, whose first field is the state."""
    at = lease.find(_LANE)
    if at < 0:
        return
    start = at + len(_LANE)
    lane, state = lease[start : lease.index(b'"', start)].decode(), lease[len(_STATE) : lease.index(b'"', len(_STATE))]
    states = lanes.setdefault(lane, {})
    states[state.decode()] = states.get(state.decode(), 0) + 1


def _count(workers: dict[tuple[str, str], wire.WorkerCount], worker: str, lane: str, granted_ms: int) -> None:
    known = workers.get((worker, lane))
    if known is None:
        workers[worker, lane] = wire.WorkerCount(worker=worker, lane=lane, runs=1, oldest_granted_ms=granted_ms)
    else:
        known.runs += 1
        known.oldest_granted_ms = min(known.oldest_granted_ms, granted_ms)
