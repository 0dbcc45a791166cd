"""A million jobs and a scheduler that starts anew: how long until it owns and fires them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.tail import Tail
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.partitioner import partition_for
from noontide.testing.bench.idle import settle
from noontide.testing.bench.load import Job, Sending, enqueue, every, job_id, one_off
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import OWNED_TIMEOUT_S, BenchError, Stage, set_stage

YEAR_MS: Final = 365 * 86_400_000
SPREAD_MS: Final = 30 * 86_400_000
CANARIES: Final = "canary"
FIRE_TIMEOUT_S: Final = 60.0
IDLE_S: Final = 30.0
OWNED_WITHIN_S_PER_JOB: Final = 0.001
"""Beside `OWNED_TIMEOUT_S`: more than ten times what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """jobs: armed and due a year ahead. One more per partition is due every second, to see that restored jobs fire."""

    jobs: int


def run_restore(options: RestoreOptions) -> dict[str, object]:
    """Run the bench: a clean restart, one after kill -9, one from the log alone with the index deleted; then idle.

    `idle`: cores in use once flushes and compactions are over and nothing fires.
    """
    with set_stage() as stage:
        canaries = _canaries(stage.layout.partitions)
        jobs = _jobs(options.jobs, canaries)
        enqueued = enqueue(stage, jobs, expected=options.jobs + len(canaries), say=say)
        begin = partial(_start, stage, canaries, OWNED_TIMEOUT_S + OWNED_WITHIN_S_PER_JOB * options.jobs)
        stage.scheduler.stop()
        clean = begin("after a clean stop")
        stage.scheduler.kill()
        killed = begin("after kill -9")
        stage.scheduler.stop()
        disk = {"index_mb": _size_mb(stage.scheduler.data), "topics_mb": _size_mb(stage.kafka.data_dir)}
        shutil.rmtree(stage.scheduler.data)
        log_alone = begin("from the log alone")
        _pause(stage, canaries)
        settle(stage)
        costs = stage.costs()
        stage.scheduler.pause(IDLE_S)
        return {
            "jobs": options.jobs,
            "enqueue_per_second": enqueued.accepted_per_second,
            **disk,
            "clean": clean,
            "killed": killed,
            "log_alone": log_alone,
            "idle": {**costs.cores(), "rss_mb": costs.scheduler.look()},
        }


def _canaries(partitions: int) -> dict[int, int]:
    """For each partition a number whose job id belongs to it."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(partition_for(job_id(CANARIES, number), partitions), number)
        number += 1
    return found


def _jobs(jobs: int, canaries: dict[int, int]) -> Iterator[Job]:
    now_ms = wall_now_ms()
    step_ms = max(1, SPREAD_MS // jobs)
    yield from _firing(canaries, now_ms)
    yield from (one_off("restore", number, now_ms + YEAR_MS + number * step_ms) for number in range(jobs))


def _firing(canaries: dict[int, int], now_ms: int) -> Iterator[Job]:
    return (every(CANARIES, number, interval="PT1S", anchor_ms=now_ms) for number in canaries.values())


def _pause(stage: Stage, canaries: dict[int, int]) -> None:
    """Nothing is due any more."""
    sending = Sending(stage)
    sending.send((key, value[:-1] + b',"paused":true}') for key, value in _firing(canaries, wall_now_ms()))
    sending.flush()


def _size_mb(folder: Path) -> int:
    """What the files in a folder take on disk."""
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file()) // 1_000_000


def _start(stage: Stage, canaries: dict[int, int], within_s: float, what: str) -> dict[str, object]:
    """Start the scheduler and wait until every partition fires a job that became due after the start.

    seconds: from the start of the process until it says that it owns all slots; take_over_ms: the slowest slot's own
    figure, without the time that the group took to give it out; firing_seconds: until every partition has fired.
    """
    say(f"starting {what}")
    ends = KafkaReplay(stage.connection).end_offsets(stage.target)
    started_ms = wall_now_ms()
    stage.scheduler.start()
    meter = stage.scheduler.meter
    owned = stage.scheduler.await_owned(stage.layout.slots, while_waiting=meter.look, within_s=within_s)
    owned_s = time.monotonic() - stage.scheduler.started_s
    with Tail(stage.connection, ends) as tail:
        firing_ms = _await_canaries(tail, canaries, started_ms, lambda: stage.scheduler.pause(0.001))
    meter.look()
    return {
        "seconds": owned_s,
        "take_over_ms": max(each.after_ms for each in owned),
        "replayed": sum(each.records for each in owned),
        "firing_seconds": (firing_ms - started_ms) / 1_000,
        "rss_mb": meter.peak_rss_mb,
        "warnings": len(stage.scheduler.warnings()),
    }


def _await_canaries(tail: Tail, canaries: dict[int, int], started_ms: int, wait: Callable[[], None]) -> int:
    """When, by the broker's clock, the last partition fired for the first time since `started_ms`."""
    waiting = {job_id(CANARIES, number).encode() for number in canaries.values()}
    deadline_s, latest_ms = time.monotonic() + FIRE_TIMEOUT_S, 0
    while waiting:
        for record in tail.poll(0.1):
            if record.key in waiting and record.appended_ms >= started_ms:
                waiting.discard(record.key)
                latest_ms = max(latest_ms, record.appended_ms)
        wait()
        if time.monotonic() > deadline_s:
            raise BenchError(f"{len(waiting)} partitions have fired nothing {FIRE_TIMEOUT_S:.0f} s after the start")
    return latest_ms
