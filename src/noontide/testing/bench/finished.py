"""Executions as a slot records them, written by a bench itself, and waiting until somebody has taken them in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.system_clock import boot_ms, wall_now_ms
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.executions import Times, delivered
from noontide.records.topics import Layout
from noontide.testing.bench.stage import BenchError

Finished = tuple[int, str, str]
"""(partition of `executions`, run id, job id)."""
_PAUSE: Final = threading.Event()  # never set: waiting for it is a pause


def append(producer: RequestProducer, layout: Layout, runs: Iterable[Finished]) -> None:
    """Record runs that succeeded now, and wait until the broker has them all."""
    now_ms = wall_now_ms()
    times, topic = Times(now_ms, now_ms, now_ms, now_ms + 3), layout.name("executions")
    for number, (partition, run_id, job_id) in enumerate(runs):
        value = delivered(run_id, job_id, tenant="default", target="kafka://orders", times=times)
        producer.send(TopicPartition(topic, partition), Record(run_id.encode(), value), _acknowledged)
        if number % 1000 == 0:
            producer.poll()
    producer.flush()


def _acknowledged(*outcome: object) -> None:
    """Executions are counted where they are taken in, not here."""


def until(holds: Callable[[], bool], *, look_s: float, within_s: float, what: str) -> None:
    """Look again and again. Raises BenchError saying `what` when it does not hold in time."""
    deadline_ms = boot_ms() + within_s * 1000
    while not holds():
        if boot_ms() > deadline_ms:
            raise BenchError(f"{what} within {within_s} s")
        pause(look_s)


def pause(seconds: float) -> None:
    """Wait; not at all when that time is over."""
    _PAUSE.wait(max(0.0, seconds))
