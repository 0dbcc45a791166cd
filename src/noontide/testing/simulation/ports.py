"""The ports of a simulated process: the log, index and clock in memory, behind a network that is not to be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.log import MemoryLog
from noontide.adapters.memory.readers import MemoryReplay
from noontide.adapters.memory.slot_log import MemorySlotLog, Stage
from noontide.adapters.memory.targets import MemoryCourier
from noontide.core.broker_time import BrokerTime, TimeState
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.due_index import IndexBatch, IndexFailed
from noontide.ports.record_log import (
    Delivery,
    Doubt,
    Follower,
    Incoming,
    Outputs,
    Receipt,
    Record,
    Sink,
    TopicPartition,
)
from noontide.testing.simulation.network import CUT_LOOK_MS, OPEN_TIMEOUT_MS, Site, Wire

FETCH_MAX: Final = 200
LAG_MAX_MS: Final = 3_000


class SimClock:
    """`BrokerTimeSource` of one host: its boot clock runs by itself, at its own speed; broker time is learnt.

    since_boot_ms: at the start of the simulation. drift_ppm: how much faster than the broker's it runs.
    """

    def __init__(self, site: Site, *, since_boot_ms: float, drift_ppm: float) -> None:
        self._site = site
        self._since_boot_ms = since_boot_ms
        self._speed = 1 + drift_ppm / 1_000_000
        self._time = BrokerTime()

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._time.now_ms(self.boot_ms())

    def boot_ms(self) -> float:
        """See `Clock.boot_ms`."""
        return self._since_boot_ms + self._site.loop.now_ms * self._speed

    def observe(self, *, appended_ms: int, sent_boot_ms: float, acknowledged_boot_ms: float) -> None:
        """See `BrokerTimeSource.observe`."""
        self._time.observe(
            appended_ms=appended_ms, sent_boot_ms=sent_boot_ms, acknowledged_boot_ms=acknowledged_boot_ms
        )

    def trusted(self) -> bool:
        """See `BrokerTimeSource.trusted`."""
        return self._time.state is TimeState.STEADY


class SimSlotLog:
    """`SlotLog` over the wire. on_open, on_commit: told when the broker has done it, whoever hears of it."""

    def __init__(
        self,
        log: MemoryLog,
        wire: Wire,
        *,
        transactional_id: str,
        clock: BrokerTimeSource,
        told: Callable[[Stage], None],
    ) -> None:
        self._wire = wire
        self._told = told
        self._timeout_ms: float = OPEN_TIMEOUT_MS
        self._log = MemorySlotLog(log, transactional_id=transactional_id, time_source=clock, between=self._between)

    async def open(self) -> None:
        """See `SlotLog.open`."""
        self._timeout_ms = OPEN_TIMEOUT_MS
        await self._log.open()
        self._told(Stage.OPENING)
        await self._wire.cross("opened", timeout_ms=OPEN_TIMEOUT_MS)

    async def commit(self, outputs: Outputs, *, timeout_ms: int) -> dict[TopicPartition, Receipt]:
        """See `SlotLog.commit`."""
        self._timeout_ms = timeout_ms
        return await self._log.commit(outputs, timeout_ms=timeout_ms)

    async def close(self) -> None:
        """See `SlotLog.close`."""
        await self._log.close()

    async def _between(self, stage: Stage) -> None:
        if stage is Stage.SETTLED:
            self._told(stage)
        await self._wire.cross(stage.value, timeout_ms=self._timeout_ms)


class SimReplay:
    """`Replay` over the wire: each call happens at one instant, or fails."""

    def __init__(self, log: MemoryLog, wire: Wire) -> None:
        self._replay = MemoryReplay(log)
        self._wire = wire

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See `Replay.topic_ids`."""
        self._reach("topic_ids")
        return self._replay.topic_ids(topics)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Replay.end_offsets`."""
        self._reach("end_offsets")
        return self._replay.end_offsets(partitions)

    def stable_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Replay.stable_offsets`."""
        self._reach("stable_offsets")
        return self._replay.stable_offsets(partitions)

    def read(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[list[Incoming]]:
        """See `Replay.read`."""
        self._reach("read")
        yield from self._replay.read(positions, ends)

    def follow(self, positions: Mapping[TopicPartition, int]) -> Follower:
        """See `Replay.follow`."""
        self._reach("follow")
        return _SimFollower(self._replay.follow(positions), self._reach)

    def _reach(self, place: str) -> None:
        self._wire.pass_by(place)
        if self._wire.is_cut or self._wire.site.chance(self._wire.site.weather.lost):
            raise Doubt(f"the ends of partitions are unknown ({place})")


class _SimFollower:
    """`Follower` over the wire."""

    def __init__(self, follower: Follower, reach: Callable[[str], None]) -> None:
        self._follower = follower
        self._reach = reach

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """See `Follower.positions`."""
        return self._follower.positions

    def read(self, records_max: int) -> list[Incoming]:
        """See `Follower.read`."""
        self._reach("follow")
        return self._follower.read(records_max)

    def lag(self) -> int | None:
        """See `Follower.lag`."""
        return self._follower.lag()

    def close(self) -> None:
        """See `Follower.close`."""
        self._follower.close()


class SimCourier:
    """`Courier` over the wire; records to one partition keep their order."""

    def __init__(self, log: MemoryLog, wire: Wire) -> None:
        self._courier = MemoryCourier(log)
        self._wire = wire
        self._turns: dict[tuple[str, int | None], asyncio.Future[None]] = {}

    async def send(self, topic: str, record: Record, *, partition: int | None, timeout_ms: int) -> Delivery:
        """See `Courier.send`."""
        before, turn = self._turns.get((topic, partition)), asyncio.get_running_loop().create_future()
        self._turns[topic, partition] = turn
        try:
            await self._wire.cross("send", timeout_ms=timeout_ms)
            if before is not None and not before.done():
                await asyncio.wait([before])
            delivery = await self._courier.send(topic, record, partition=partition, timeout_ms=timeout_ms)
            turn.set_result(None)
            await self._wire.cross("sent", timeout_ms=timeout_ms)
        except Doubt as doubt:
            return Delivery(None, str(doubt))
        finally:
            if not turn.done():
                turn.set_result(None)
        return delivery


class _Reader:
    """One attached partition."""

    __slots__ = ("paused", "position", "sink", "waits")

    def __init__(self, sink: Sink, position: int) -> None:
        self.sink = sink
        self.position = position
        self.paused = False
        self.waits = False


class SimFeed:
    """`Feed` over the wire: what is there arrives after a while, now and then after a long one."""

    def __init__(self, log: MemoryLog, wire: Wire) -> None:
        self._log = log
        self._wire = wire
        self._site = wire.site
        self._readers: dict[TopicPartition, _Reader] = {}
        log.subscribe(self._told)

    def attach(self, sink: Sink, positions: Mapping[TopicPartition, int]) -> None:
        """See `Feed.attach`."""
        taken = self._readers.keys() & positions.keys()
        assert not taken, f"already attached: {sorted(taken)}"
        for at, position in positions.items():
            self._readers[at] = _Reader(sink, position)
            if self._log.last_stable_offset(at) > position:
                self._wake(at, self._readers[at])

    def detach(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.detach`."""
        for at in partitions:
            self._readers.pop(at, None)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.pause`."""
        for at in partitions:
            if at in self._readers:
                self._readers[at].paused = True

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.resume`."""
        for at in partitions:
            if at in self._readers:
                self._readers[at].paused = False
                self._wake(at, self._readers[at])

    def _told(self, partitions: Collection[TopicPartition]) -> None:
        if self._wire.process.alive:
            for at in partitions:
                reader = self._readers.get(at)
                if reader is not None:
                    self._wake(at, reader)

    def _wake(self, at: TopicPartition, reader: _Reader, delay_ms: float | None = None) -> None:
        if reader.waits or reader.paused:
            return
        reader.waits = True
        if delay_ms is None:
            delay_ms = self._site.latency_ms()
            if self._site.chance(self._site.weather.lag):
                delay_ms += self._site.dice.uniform(0, LAG_MAX_MS)
        self._wire.process.later(delay_ms, self._fetch, at, reader)

    def _fetch(self, at: TopicPartition, reader: _Reader) -> None:
        reader.waits = False
        if self._readers.get(at) is not reader or reader.paused:
            return
        if self._wire.is_cut:
            self._wake(at, reader, CUT_LOOK_MS)
            return
        records, reader.position = self._log.read(at, reader.position, max_records=FETCH_MAX)
        if len(records) == FETCH_MAX:
            self._wake(at, reader)
        if records:
            reader.sink(records)


class SimIndex(MemoryIndex):
    """The index of a slot on the disk of a host.

    disk: what a kill leaves of every slot. written: told after each batch.
    """

    def __init__(self, slot: int, wire: Wire, disk: Disk, *, written: Callable[[int, MemoryIndex], None]) -> None:
        super().__init__(disk.rows.get(slot))
        self._slot = slot
        self._wire = wire
        self._disk = disk
        self._written = partial(written, slot)

    def write(self, batch: IndexBatch) -> None:
        """See `DueIndex.write`."""
        self._wire.pass_by("apply")
        self._disk.require_room()
        super().write(batch)
        self._disk.unflushed[self._slot] = self
        self._written(self)
        self._wire.pass_by("applied")

    def checkpoint(self) -> None:
        """See `DueIndex.checkpoint`."""
        self._disk.require_room()
        super().checkpoint()
        self._disk.keep(self._slot, self)

    def close(self) -> None:
        """See `DueIndex.close`."""
        self._disk.unflushed.pop(self._slot, None)
        super().close()

    def wipe(self) -> None:
        """See `DueIndex.wipe`."""
        super().wipe()
        self._disk.rows.pop(self._slot, None)


class Disk:
    """What a host keeps: per slot the rows of the latest checkpoint, and of the one before. refused: hears of that."""

    def __init__(self) -> None:
        self.refused: Callable[[], None] = lambda: None
        self.rows: dict[int, dict[bytes, bytes]] = {}
        self.older: dict[int, dict[bytes, bytes]] = {}
        self.unflushed: dict[int, SimIndex] = {}
        self.notes: dict[int, int] = {}
        self.is_full = False

    def freshness(self) -> Mapping[int, int]:
        """See `Copies.freshness`."""
        return self.notes

    def note(self, slot: int, freshness: int) -> None:
        """See `Copies.note`."""
        self.notes[slot] = freshness

    def require_room(self) -> None:
        """Raises IndexFailed when the disk is full."""
        if self.is_full:
            self.refused()
            raise IndexFailed("no space left on device")

    def keep(self, slot: int, index: MemoryIndex) -> None:
        """A checkpoint."""
        if slot in self.rows:
            self.older[slot] = self.rows[slot]
        self.rows[slot] = index.surviving_rows()

    def crash(self, how: str) -> None:
        """The process was killed: the rows of the last flush are left, or later ones, earlier ones, none at all."""
        if how == "lucky":
            for slot, index in self.unflushed.items():
                self.rows[slot] = dict(index.scan(b"", b"\xff" * 8, 1 << 30))
        elif how == "older":
            self.rows |= self.older
        elif how == "lost":
            self.rows.clear()
        self.unflushed.clear()
