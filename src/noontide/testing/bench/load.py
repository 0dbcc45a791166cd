"""Definitions for the benches, and their sending to `requests.public`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import orjson

from noontide.adapters.kafka.requests import RequestProducer
from noontide.core.instants import format_instant
from noontide.ports.record_log import Record, TopicPartition
from noontide.testing.bench.arrivals import Watch, Watcher
from noontide.testing.bench.stage import TARGET, BenchError, Stage

DOMAIN: Final = "public"
STALL_S: Final = 30.0
SAY_EVERY_S: Final = 2.0
PIECE: Final = 10_000
AHEAD_MAX: Final = 50_000

_PAYLOAD: Final = orjson.dumps(
    {
        "customer": "c-__NUMBER__",
        "items": [{"sku": f"sku-{place}", "quantity": place, "price": 19.99} for place in range(17)],
        "note": "The parcel goes to the neighbour if nobody opens. " * 4,
    }
).replace(b"__NUMBER__", b"%09d")
PAYLOAD_BYTES: Final = len(_PAYLOAD % 0)

TO_TOPIC: Final = b'{"topic":{"name":"%s"}}' % TARGET.encode()
Job = tuple[bytes, bytes]
"""Id and definition."""


class Enqueued(NamedTuple):
    """How fast definitions went in: sent (acknowledged by the broker), and accepted (on `jobs`, committed)."""

    sent_per_second: float
    accepted_per_second: float


def job_id(series: str, number: int) -> str:
    """About as long as a UUID, and its number can be read from it."""
    return f"{series}-order-reminder-{number:012d}"


def number_of(key: bytes) -> int:
    """The number in a job id of `job_id`; raises ValueError for another one."""
    return int(key[-12:])


def one_off(series: str, number: int, at_ms: int, *, target: bytes = TO_TOPIC) -> Job:
    """A job of one instant, with a payload of 1 KB, for the registered topic or another target (JSON)."""
    schedule = b'{"at":"%s"}' % format_instant(at_ms).encode()
    return job_id(series, number).encode(), _definition(number, schedule, target=target)


def every(series: str, number: int, *, interval: str, anchor_ms: int) -> Job:
    """A job of an exact interval; its instants are the anchor plus or minus whole intervals."""
    schedule = b'{"every":"%s","anchor":"%s"}' % (interval.encode(), format_instant(anchor_ms).encode())
    return job_id(series, number).encode(), _definition(number, schedule, timing=b'"timing":"exact",')


def daily(series: str, number: int, *, at_ms: int) -> Job:
    """A cron job at the minute of `at_ms`, every day, exactly."""
    hour, minute = divmod(at_ms // 60_000 % 1_440, 60)
    schedule = b'{"cron":"%d %d * * *"}' % (minute, hour)
    return job_id(series, number).encode(), _definition(number, schedule, timing=b'"timing":"exact",')


def _definition(number: int, schedule: bytes, *, timing: bytes = b"", target: bytes = TO_TOPIC) -> bytes:
    return b'{"schedule":%s,%s"target":%s,"payload":%s}' % (schedule, timing, target, _PAYLOAD % number)


class Sending:
    """A producer of requests, each to the partition of its id."""

    def __init__(self, stage: Stage) -> None:
        layout = stage.layout
        name = layout.name("requests", domain=DOMAIN)
        self._partitions = [TopicPartition(name, number) for number in range(layout.partitions)]
        self._partition_of = layout.partition_of
        self._producer = RequestProducer(stage.connection)

    def send(self, jobs: Iterable[Job]) -> int:
        """Queue them all, waiting while the queue is full; returns how many."""
        count = 0
        for key, value in jobs:
            self._producer.send(self._partitions[self._partition_of(key)], Record(key, value), _acknowledged)
            count += 1
        return count

    def poll(self) -> None:
        """Look at the answers that are there."""
        self._producer.poll()

    def flush(self) -> None:
        """Wait until the broker has everything."""
        self._producer.flush()


class Acceptance:
    """Follows `jobs` in another process and counts the definitions that were accepted."""

    def __init__(self, stage: Stage, *, expected: int, say: Callable[[str], None]) -> None:
        self._stage = stage
        self._expected = expected
        self._say = say
        self._watcher = Watcher(Watch.from_end(stage.connection, stage.partitions("jobs"), expected=expected))
        self._seen = -1
        self._moved_s = self._said_s = 0.0

    def __enter__(self) -> Acceptance:
        self._watcher.__enter__()
        self._moved_s = self._said_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.close()

    def await_some(self, count: int) -> None:
        """Wait until that many are accepted. Raises BenchError when nothing moves for half a minute."""
        while self._watcher.count < count:
            self._stage.scheduler.pause(0.01)
            self._look()

    def await_all(self) -> float:
        """Wait until all are accepted; returns the moment on `time.monotonic`. Raises BenchError like `await_some`."""
        while (found := self._watcher.poll(0.2)) is None:
            self._stage.scheduler.pause(0.001)
            self._look()
        return found.last_s

    def _look(self) -> None:
        now_s, seen = time.monotonic(), self._watcher.count
        if now_s - self._said_s > SAY_EVERY_S:
            self._said_s = now_s
            self._say(f"{seen:,} of {self._expected:,} accepted")
        if seen != self._seen:
            self._seen, self._moved_s = seen, now_s
        elif now_s - self._moved_s > STALL_S:
            raise BenchError(
                f"{seen:,} of {self._expected:,} definitions accepted, and none for {STALL_S:.0f} s; "
                "the scheduler says:\n" + "\n".join(self._stage.scheduler.warnings()[-5:])
            )


def enqueue(
    stage: Stage,
    jobs: Iterator[Job],
    *,
    expected: int,
    say: Callable[[str], None],
    ahead_max: int = AHEAD_MAX,
) -> Enqueued:
    """Send definitions and wait until the last is accepted; at most about `ahead_max` wait for their acceptance."""
    with Acceptance(stage, expected=expected, say=say) as acceptance:
        sending, began_s, sent = Sending(stage), time.monotonic(), 0
        while piece := list(islice(jobs, PIECE)):
            acceptance.await_some(sent - ahead_max)
            sent += sending.send(piece)
        assert sent == expected, f"{sent} jobs were made instead of {expected}"
        sending.flush()
        sent_s = time.monotonic()
        accepted_s = acceptance.await_all()
    return Enqueued(expected / (sent_s - began_s), expected / (accepted_s - began_s))


def _acknowledged(_at: TopicPartition, _offset: int) -> None:
    return None
