"""Consumers that measure, each in a process of its own, so that it waits for nothing but the broker."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Self

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.tail import Tail
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.errors import NoontideError
from noontide.ports.record_log import TopicPartition

READY_TIMEOUT_S: Final = 30.0
_BATCH_MAX_RECORDS: Final = 2_000
_SPAWN: Final = multiprocessing.get_context("spawn")


class Arrival(NamedTuple):
    """A record and when it was there: appended by the broker's clock, arrived by this machine's."""

    key: bytes
    appended_ms: int
    arrived_ms: int


class Watched(NamedTuple):
    """What a consumer saw. first_ms, last_ms: arrival, wall clock; last_s: the last on `time.monotonic`.

    cpu_s: processor time of the consumer. arrivals: all of them, when they were asked for.
    """

    records: int
    first_ms: int
    last_ms: int
    last_s: float
    cpu_s: float
    arrivals: list[Arrival]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to follow. expected: it ends after so many records; wants_each: note every arrival, not just how many."""

    connection: KafkaConnection
    positions: dict[TopicPartition, int] = field(repr=False)
    expected: int
    wants_each: bool = False

    @classmethod
    def from_end(
        cls,
        connection: KafkaConnection,
        partitions: Sequence[TopicPartition],
        *,
        expected: int,
        wants_each: bool = False,
    ) -> Watch:
        """What comes from now on."""
        positions = KafkaReplay(connection).end_offsets(partitions)
        return cls(connection=connection, positions=positions, expected=expected, wants_each=wants_each)


class LeanTail(Tail):
    """A `Tail` that leaves values and headers alone: at 100,000 records a second they would cost half a core."""

    def count(self, timeout_s: float) -> int:
        """How many records are there, or come within the time."""
        return len(self._messages(timeout_s))

    def arrivals(self, timeout_s: float) -> list[Arrival]:
        """The same, each with its times."""
        found = self._messages(timeout_s)
        now_ms = wall_now_ms()
        return [Arrival(message.key() or b"", message.timestamp()[1], now_ms) for message in found]

    def _messages(self, timeout_s: float) -> list[Any]:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(_BATCH_MAX_RECORDS - 1, 0)]
        return [message for message in messages if message.error() is None]


class Watcher:
    """A consumer in another process; a context that ends it."""

    def __init__(self, watch: Watch) -> None:
        self._ours, theirs = _SPAWN.Pipe()
        self._count = _SPAWN.Value("q", 0, lock=False)
        self._process = _SPAWN.Process(target=_follow, args=(theirs, self._count, watch), daemon=True)
        self._theirs = theirs

    @property
    def count(self) -> int:
        """Records seen so far."""
        return int(self._count.value)

    def __enter__(self) -> Self:
        """Start it and wait until it reads."""
        self._process.start()
        self._theirs.close()  # so that its end is seen here
        self._receive(READY_TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def poll(self, timeout_s: float) -> Watched | None:
        """What it saw, once that is all; None when it is not after `timeout_s`."""
        found = self._receive(timeout_s) if self._ours.poll(timeout_s) else None
        assert found is None or isinstance(found, Watched)
        return found

    def stop(self, timeout_s: float = 10.0) -> Watched:
        """What it saw until now."""
        self._ours.send("stop")
        found = self._receive(timeout_s)
        assert isinstance(found, Watched)
        return found

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._ours.close()

    def _receive(self, timeout_s: float) -> object:
        try:
            if self._ours.poll(timeout_s):
                return self._ours.recv()
        except EOFError:
            raise NoontideError("the consumer that measures has ended early") from None
        raise NoontideError(f"the consumer that measures does not answer within {timeout_s:.0f} s")


def _follow(pipe: Connection, count: Any, watch: Watch) -> None:
    """What runs in the other process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent ends this process
    with LeanTail(watch.connection, watch.positions) as tail:
        tail.count(0.2)
        pipe.send("ready")
        pipe.send(_all_of(tail, watch, count, lambda: pipe.poll(0)))
        pipe.poll(READY_TIMEOUT_S)  # closing the consumer takes a moment that is nobody's business


def _all_of(tail: LeanTail, watch: Watch, count: Any, stopped: Callable[[], bool]) -> Watched:
    arrivals: list[Arrival] = []
    seen = first_ms = last_ms = 0
    last_s, began_cpu_s = 0.0, time.process_time()
    while seen < watch.expected and not stopped():
        found = tail.arrivals(0.05) if watch.wants_each else []
        fresh = len(found) if watch.wants_each else tail.count(0.05)
        if fresh:
            last_ms, last_s = wall_now_ms(), time.monotonic()
            first_ms = first_ms or last_ms
            seen += fresh
            arrivals += found
            count.value = seen
    return Watched(seen, first_ms, last_ms, last_s, time.process_time() - began_cpu_s, arrivals)
