"""Committed records of all input partitions of a process, pushed to the event loop by one thread.

    loop thread                                  feed thread
    attach, detach, pause, resume ──commands──▶  obeys, polls, groups by subscription
    sinks ◀──call_soon_threadsafe (one per wake-up, a bounded number under way)──

A subscription object per attached partition travels with its records; `detach` marks it dead on the loop thread, so
nothing that is still under way reaches the sink afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

import confluent_kafka as ck

from noontide.adapters.kafka.connection import ConfluentSettings, KafkaConnection
from noontide.adapters.kafka.messages import incoming
from noontide.ports.record_log import Feed, Incoming, Sink, TopicPartition

log = logging.getLogger(__name__)

POLL_S: Final = 0.025
BATCH_MAX_RECORDS: Final = 500
DELIVERIES_UNDER_WAY_MAX: Final = 8
LOOK_UP_TIMEOUT_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 5.0


class Gathering(NamedTuple):
    """How long the broker waits, and for how many bytes, before it answers a fetch."""

    wait_ms: int
    least_bytes: int


AT_ONCE: Final = Gathering(100, 1)
"""For few partitions, or what comes seldom: it is there at once, and asking in vain costs next to nothing."""
STREAM: Final = Gathering(20, 64 * 1024)
"""For streams over many partitions: every fetch names all of them, which costs the broker 5 us each."""


class _Subscription:
    """One attached partition, from `attach` to `detach`."""

    __slots__ = ("alive", "next_offset", "sink")

    def __init__(self, sink: Sink, next_offset: int) -> None:
        self.sink = sink
        self.alive = True
        self.next_offset = next_offset  # owned by the feed thread


@dataclass(frozen=True, slots=True)
class _Attach:
    subscriptions: Mapping[TopicPartition, _Subscription]


@dataclass(frozen=True, slots=True)
class _Detach:
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class _Pause:
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class _Resume:
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command = _Attach | _Detach | _Pause | _Resume | _Stop
_Groups = Mapping[_Subscription, list[Incoming]]


class KafkaFeed:
    """`Feed` on one confluent-kafka consumer; all methods are for the event loop's thread.

    The thread starts with the first `attach` and ends with `close`. While no broker answers it keeps trying;
    `last_error` and `error_count` tell. An attached partition joins with the next fetch.
    """

    def __init__(
        self, connection: KafkaConnection, *, loop: asyncio.AbstractEventLoop, gathering: Gathering = AT_ONCE
    ) -> None:
        self._loop = loop
        self._subscriptions: dict[TopicPartition, _Subscription] = {}
        self._reader = _Reader(_settings(connection, gathering), self._hand_over_from_thread)
        self._thread: threading.Thread | None = None

    @property
    def last_error(self) -> str | None:
        """The latest error of the client, None when there was none since the latest record."""
        return self._reader.last_error

    @property
    def error_count(self) -> int:
        """Errors since the start."""
        return self._reader.error_count

    def attach(self, sink: Sink, positions: Mapping[TopicPartition, int]) -> None:
        """See `Feed.attach`."""
        taken = self._subscriptions.keys() & positions.keys()
        assert not taken, f"already attached: {sorted(taken)}"
        added = {partition: _Subscription(sink, offset) for partition, offset in positions.items()}
        self._subscriptions.update(added)
        self._start()
        self._reader.commands.put(_Attach(added))

    def detach(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.detach`; partitions that are not attached are ignored."""
        gone = [partition for partition in partitions if partition in self._subscriptions]
        for partition in gone:
            self._subscriptions.pop(partition).alive = False
        self._reader.commands.put(_Detach(gone))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.pause`."""
        self._reader.commands.put(_Pause(tuple(partitions)))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.resume`."""
        self._reader.commands.put(_Resume(tuple(partitions)))

    async def close(self) -> None:
        """Detach everything and end the thread, within five seconds; never raises."""
        self.detach(tuple(self._subscriptions))
        thread, self._thread = self._thread, None
        if thread is not None:
            self._reader.stopping = True
            self._reader.commands.put(_Stop())
            await asyncio.to_thread(thread.join, CLOSE_TIMEOUT_S)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._reader.run, name="kafka-feed", daemon=True)
            self._thread.start()

    def _hand_over_from_thread(self, groups: _Groups) -> None:
        self._loop.call_soon_threadsafe(self._hand_over, groups)

    def _hand_over(self, groups: _Groups) -> None:
        self._reader.under_way.release()
        by_sink: dict[Sink, list[_Subscription]] = {}
        for subscription in groups:
            by_sink.setdefault(subscription.sink, []).append(subscription)
        for sink, subscriptions in by_sink.items():
            # Looked at just before the call: a sink may detach the partitions of another one.
            records = [record for each in subscriptions if each.alive for record in groups[each]]
            if records:
                self._call(sink, records)

    def _call(self, sink: Sink, records: list[Incoming]) -> None:
        try:
            sink(records)
        except Exception as error:  # noqa: BLE001 - one broken sink must not cost the others their records
            self._loop.call_exception_handler({"message": "a sink of the feed raised", "exception": error})


class ForkedFeed:
    """`Feed` on two: topics that somebody waits for do not wait for all the others, and are asked for by themselves."""

    def __init__(self, feed: Feed, urgent: Feed, *, is_urgent: Callable[[str], bool]) -> None:
        self._feed = feed
        self._urgent = urgent
        self._is_urgent = is_urgent

    def attach(self, sink: Sink, positions: Mapping[TopicPartition, int]) -> None:
        """See `Feed.attach`."""
        for feed, partitions in self._parts(positions):
            feed.attach(sink, {at: positions[at] for at in partitions})

    def detach(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.detach`."""
        for feed, part in self._parts(partitions):
            feed.detach(part)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.pause`."""
        for feed, part in self._parts(partitions):
            feed.pause(part)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """See `Feed.resume`."""
        for feed, part in self._parts(partitions):
            feed.resume(part)

    def _parts(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[Feed, list[TopicPartition]]]:
        parts: dict[bool, list[TopicPartition]] = {False: [], True: []}
        for at in partitions:
            parts[self._is_urgent(at.topic)].append(at)
        return ((self._urgent if is_urgent else self._feed, part) for is_urgent, part in parts.items() if part)


class _Reader:
    """What runs in the feed's thread."""

    def __init__(self, settings: ConfluentSettings, hand_over: Callable[[_Groups], None]) -> None:
        self.commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self.under_way = threading.Semaphore(DELIVERIES_UNDER_WAY_MAX)
        self.last_error: str | None = None
        self.error_count = 0
        self.stopping = False
        self._settings = settings
        self._hand_over = hand_over
        self._routes: dict[tuple[str, int], _Subscription] = {}
        self._topics: set[str] = set()

    def run(self) -> None:
        """Read until told to stop, or until the event loop is closed."""
        consumer = ck.Consumer({**self._settings, "error_cb": self._note})
        try:
            while self._obey(consumer):
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._deliver([first, *consumer.consume(BATCH_MAX_RECORDS - 1, 0)])
        except RuntimeError as error:  # the loop was closed under us
            log.debug("the feed ends: %s", error)
        except Exception:  # whatever it is, a process that reads nothing must not look alive
            log.exception("the feed cannot go on")
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            consumer.close()

    def _obey(self, consumer: ck.Consumer) -> bool:
        """Carry out what was commanded; False when that was to stop."""
        while True:
            try:
                command = self.commands.get_nowait()
            except queue.Empty:
                return True
            if isinstance(command, _Stop):
                return False
            try:
                self._carry_out(consumer, command)
            except ck.KafkaException as error:
                self._note(error.args[0])

    def _carry_out(self, consumer: ck.Consumer, command: _Attach | _Detach | _Pause | _Resume) -> None:
        match command:
            case _Attach(subscriptions):
                self._attach(consumer, subscriptions)
            case _Detach(partitions):
                known = self._known(partitions)
                for partition in partitions:
                    self._routes.pop(partition, None)
                consumer.resume(known)  # the client remembers a pause beyond the assignment
                consumer.incremental_unassign(known)
            case _Pause(partitions):
                consumer.pause(self._known(partitions))
            case _Resume(partitions):
                consumer.resume(self._known(partitions))
            case _:
                assert_never(command)

    def _attach(self, consumer: ck.Consumer, subscriptions: Mapping[TopicPartition, _Subscription]) -> None:
        self._routes.update(subscriptions.items())
        consumer.incremental_assign([ck.TopicPartition(*at, each.next_offset) for at, each in subscriptions.items()])
        # A topic that joins later is otherwise looked up by the client's scan, once a second.
        for topic in sorted({at.topic for at in subscriptions} - self._topics):
            consumer.list_topics(topic, timeout=LOOK_UP_TIMEOUT_S)
            self._topics.add(topic)

    def _known(self, partitions: Sequence[TopicPartition]) -> list[ck.TopicPartition]:
        return [ck.TopicPartition(*partition) for partition in partitions if partition in self._routes]

    def _deliver(self, messages: list[ck.Message]) -> None:
        groups = self._group(messages)
        if not groups:
            return
        while not self.under_way.acquire(timeout=POLL_S):
            # The loop is behind. Commands wait too: a detached partition is dead already, nothing else is urgent.
            if self.stopping:
                return
        self._hand_over(groups)

    def _group(self, messages: list[ck.Message]) -> dict[_Subscription, list[Incoming]]:
        groups: dict[_Subscription, list[Incoming]] = {}
        routes = self._routes
        for message in messages:
            error = message.error()
            if error is not None:
                self._note(error)
                continue
            record = incoming(message)
            subscription = routes.get((record.topic, record.partition))
            if subscription is None or record.offset < subscription.next_offset:
                continue
            subscription.next_offset = record.offset + 1
            if subscription in groups:
                groups[subscription].append(record)
            else:
                groups[subscription] = [record]
        if groups:
            self.last_error = None
        return groups

    def _note(self, error: ck.KafkaError) -> None:
        self.error_count += 1
        self.last_error = str(error)


def _settings(connection: KafkaConnection, gathering: Gathering) -> ConfluentSettings:
    return {
        **connection.for_reader("feed"),
        "fetch.wait.max.ms": gathering.wait_ms,
        "fetch.min.bytes": gathering.least_bytes,
        "queued.min.messages": 2_000,
        "queued.max.messages.kbytes": 16_384,
    }
