"""Many jobs due at one instant: how long until a consumer has the last of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.ids import run_id
from noontide.ports.record_log import TopicPartition
from noontide.records.state import CURSOR, decode_cursor
from noontide.testing.bench.arrivals import Watch, Watched, Watcher
from noontide.testing.bench.load import Job, daily, enqueue, every, job_id, number_of, one_off
from noontide.testing.bench.measure import Meter
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage, set_stage
from noontide.testing.bench.tally import tally
from noontide.testing.bench.warmup import warm_up

SERIES = "wave"
HOUR_MS, DAY_MS, MINUTE_MS = 3_600_000, 86_400_000, 60_000
SAFETY, MARGIN_S = 2.0, 10.0
READY_MS = 2_000
SAY_EVERY_MS, LAST_WORD_MS = 10_000, 1_000
WAVE_TIMEOUT_S = 300.0
CURSORS_CHECKED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveOptions:
    """jobs: due together. recurring: half cron, half interval, instead of one-off jobs.

    lead_s: how long before their instant the first is enqueued; None estimates it from the warm-up.
    """

    jobs: int
    recurring: bool = False
    lead_s: float | None = None


def run_wave(options: WaveOptions) -> dict[str, object]:
    """Run the bench; see `WaveOptions`. Raises BenchError when enqueueing was not finished before the instant."""
    with set_stage() as stage:
        per_second = warm_up(stage)
        estimate_s = MARGIN_S + SAFETY * options.jobs / per_second
        lead_ms = round(1_000 * (estimate_s if options.lead_s is None else options.lead_s))
        at_ms = _instant(wall_now_ms() + lead_ms, recurring=options.recurring)
        say(f"enqueueing {options.jobs:,} jobs due in {(at_ms - wall_now_ms()) / 1000:.0f} s")
        enqueued = enqueue(stage, _jobs(options, at_ms), expected=options.jobs, say=say)
        if wall_now_ms() > at_ms - READY_MS:
            raise BenchError(f"enqueueing took longer than {lead_ms / 1000:.0f} s, until all are due; try a --lead")
        watch = Watch.from_end(stage.connection, stage.target, expected=options.jobs)
        figures = _measured(stage, watch, at_ms)
        return {
            "jobs": options.jobs,
            **figures,
            "enqueue_per_second": enqueued.accepted_per_second,
            **_counted(stage, options, watch, at_ms),
            "warnings": len(stage.scheduler.warnings()),
        }


def _instant(earliest_ms: int, *, recurring: bool) -> int:
    """A whole second, or minute where cron expressions are to name it."""
    step_ms = MINUTE_MS if recurring else 1_000
    return -(-earliest_ms // step_ms) * step_ms


def _jobs(options: WaveOptions, at_ms: int) -> Iterator[Job]:
    for number in range(options.jobs):
        if not options.recurring:
            yield one_off(SERIES, number, at_ms)
        elif number % 2:
            yield every(SERIES, number, interval="PT1H", anchor_ms=at_ms)
        else:
            yield daily(SERIES, number, at_ms=at_ms)


def _measured(stage: Stage, watch: Watch, at_ms: int) -> dict[str, object]:
    jobs = watch.expected
    with Watcher(watch) as watcher:
        pass_until(stage, at_ms)
        costs = stage.costs()
        watched = _await_last(stage, watcher, costs.scheduler)
        cores, used = costs.cores(), costs.scheduler.cores()
    seconds = (watched.last_ms - at_ms) / 1_000
    return {
        "seconds": seconds,
        "per_second": jobs / seconds,
        "first_ms": watched.first_ms - at_ms,
        **cores,
        "cpu_consumer": watched.cpu_s / seconds,
        "cpu_scheduler_us_per_job": used * seconds * 1_000_000 / jobs,
        "rss_mb": costs.scheduler.peak_rss_mb,
    }


def pass_until(stage: Stage, at_ms: int) -> None:
    """Wait for the instant."""
    while (left_ms := at_ms - wall_now_ms()) > LAST_WORD_MS:
        say(f"all due in {left_ms // 1000} s")
        stage.scheduler.pause(min(left_ms - LAST_WORD_MS, SAY_EVERY_MS) / 1_000)
    say("all due within a second")
    stage.scheduler.pause(max(0, at_ms - wall_now_ms()) / 1_000)


def _await_last(stage: Stage, watcher: Watcher, scheduler: Meter) -> Watched:
    """Everything, with a look at the memory every tenth of a second."""
    deadline_s = time.monotonic() + WAVE_TIMEOUT_S
    while (watched := watcher.poll(0.1)) is None:
        scheduler.look()
        stage.scheduler.pause(0.001)
        if time.monotonic() > deadline_s:
            return watcher.stop()
    scheduler.look()
    return watched


def _counted(stage: Stage, options: WaveOptions, watch: Watch, at_ms: int) -> dict[str, object]:
    """What the topics say about it, read after the wave."""
    numbered = _numbered(options.jobs, at_ms)
    found = tally(stage.connection, watch.positions, expected=options.jobs, number_of_run=numbered)
    figures: dict[str, object] = {
        "duplicates": found.duplicates, "missing": found.missing, "foreign": found.foreign
    }  # fmt: skip
    if options.recurring:
        figures |= _cursors(stage, options.jobs, at_ms)
    return figures


def _numbered(jobs: int, at_ms: int) -> Callable[[str], int | None]:
    """Which job a run id belongs to; None unless it is exactly the run of that job at the instant."""

    def number_of_run(run: str) -> int | None:
        try:
            number = number_of(run.rpartition(":")[0].encode())
        except ValueError:
            return None
        return number if number < jobs and run == run_id(job_id(SERIES, number), at_ms, 1) else None

    return number_of_run


def _cursors(stage: Stage, jobs: int, at_ms: int) -> dict[str, object]:
    """Check on `state`, for some of the jobs, that the next due is committed and right."""
    replay = KafkaReplay(stage.connection)
    partitions = stage.partitions("state")
    checked = [*range(0, jobs, max(2, jobs // CURSORS_CHECKED)), *range(1, jobs, max(2, jobs // CURSORS_CHECKED))]
    wanted = {CURSOR + job_id(SERIES, number).encode(): number for number in checked}
    latest: dict[int, int | None] = {}
    start: dict[TopicPartition, int] = dict.fromkeys(partitions, 0)
    for chunk in replay.read(start, replay.stable_offsets(partitions)):
        for record in chunk:
            number = wanted.get(record.key or b"")
            if number is not None:
                latest[number] = None if record.value is None else decode_cursor(record.value).due_ms
    wrong = sum(latest.get(number) != at_ms + (HOUR_MS if number % 2 else DAY_MS) for number in wanted.values())
    return {"cursors_checked": len(wanted), "cursors_wrong": wrong}
