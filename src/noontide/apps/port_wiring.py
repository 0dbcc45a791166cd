"""What the internal port of a scheduler process is made of."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from noontide.actors.runner import SlotRunner
from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.tail import Tail
from noontide.adapters.rocksdb.index import RocksIndex
from noontide.adapters.rocksdb.options import SharedMemory
from noontide.apps.port.board import Board
from noontide.apps.port.queries import Queries
from noontide.apps.port.recents import FORMAT_ID as RECENTS_FORMAT
from noontide.apps.port.recents import Recents, Source
from noontide.apps.port.server import PortOptions, PortThread, open_port
from noontide.ports.due_index import DueIndex
from noontide.records.topics import Layout

MIB = 1024 * 1024
RECENTS_CACHE_BYTES, RECENTS_BUFFER_BYTES = 16 * MIB, 32 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlace:
    """The scheduler process that the port belongs to. data: its folder."""

    connection: KafkaConnection
    layout: Layout
    data: Path


@asynccontextmanager
async def open_internal_port(
    place: PortPlace,
    options: PortOptions,
    settings: SchedulerSettings,
    *,
    runners: Callable[[], Mapping[int, SlotRunner]],
) -> AsyncIterator[PortThread]:
    """The internal port, with its copy of the recent executions. runners: of the slots that the process owns now."""
    layout, replay = place.layout, KafkaReplay(place.connection)

    def readable(slot: int) -> tuple[Slot, DueIndex] | None:
        runner = runners().get(slot)
        return None if runner is None else runner.readable

    source = Source(
        topic=layout.name("executions"),
        owned=lambda: frozenset(runners()),
        follow=partial(Tail, place.connection),
        ends=replay.end_offsets,
    )
    memory = SharedMemory(block_cache_bytes=RECENTS_CACHE_BYTES, write_buffers_bytes=RECENTS_BUFFER_BYTES)
    index = await asyncio.to_thread(RocksIndex, place.data / "recents", format_id=RECENTS_FORMAT, shared=memory)
    recents = Recents(
        index,
        source,
        per_second_max=settings.recent_executions_per_second,
        retention_ms=settings.recent_executions_ms,
    )
    board = Board(kept_max=settings.verdicts_kept_max)
    queries = Queries(layout, readable, board, recents, settings)
    try:
        async with open_port(queries, board, options, process=name_of_process()) as port:
            recents.start()
            yield port
    finally:
        await asyncio.to_thread(recents.close)


def name_of_process() -> str:
    """What this process is called in `owners`."""
    return f"{socket.gethostname()}:{os.getpid()}"
