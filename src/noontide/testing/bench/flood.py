"""A flood of one tenant beside the trickle of another: the cap holds, and the trickle is not late.

Tenant `flood` has a cap and far more runs of a second each than it may have at a time, all due at one instant. Tenant
`trickle` has some runs each second. Everything is judged from topics: `results` (handlers say when they began and
ended), `leases`, and `state`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.instants import format_instant, parse_instant
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.topics import Layout
from noontide.testing.bench.load import Acceptance, Job, Sending, enqueue
from noontide.testing.bench.measure import percentiles
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, Stage, set_stage
from noontide.testing.bench.warmup import warm_up
from noontide.testing.bench.workers import bench_worker, to_handler, warm_up_handlers
from noontide.testing.permits_judge import leaked_permits, most_at_once, most_permits

FLOOD, TRICKLE = "flood", "trickle"
LIMITER: Final = f"tenant/{FLOOD}"
QUIET_S: Final = 120.0
LEAD_S: Final = 5.0
SLOW_MS: Final = 1_000
SHOWN: Final = 10
"""Of runs later than that, how long after the flood these were due, of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodOptions:
    """runs: of the flood, a second each. cap: of its tenant. rate: runs per second of the other tenant.

    places: of the one worker. seconds: how long it is watched; the rest of the flood is then cancelled.
    """

    runs: int = 200_000
    cap: int = 500
    rate: int = 10
    places: int = 1_000
    seconds: int = 60


class KafkaTopics(NamedTuple):
    """Topics of a stage, read to their ends, for a judge."""

    stage: Stage

    @property
    def layout(self) -> Layout:
        """How the topics are named and cut."""
        return self.stage.layout

    def records(self, topic: str) -> list[Incoming]:
        """All committed records of a topic (full name)."""
        short = self.layout.short(topic)
        partitions = self.stage.partitions(short)
        replay = KafkaReplay(self.stage.connection)
        return [each for chunk in replay.read(dict.fromkeys(partitions, 0), replay.stable_offsets(partitions))
                for each in chunk]  # fmt: skip


def run_flood(options: FloodOptions) -> dict[str, object]:
    """Run the bench; raises BenchError when the stage could not be set."""
    with ExitStack() as stack:
        stage = stack.enter_context(set_stage())
        worker = stack.enter_context(bench_worker(stage, concurrency=options.places))
        configure(stage, LIMITER, {"concurrency_max": options.cap})
        per_second = warm_up(stage)
        warm_up_handlers(stage, to_handler("brief"))
        at_ms = wall_now_ms() // 1_000 * 1_000 + round(1_000 * (LEAD_S + 1.5 * options.runs / per_second))
        count = options.runs + options.rate * options.seconds
        say(f"enqueueing {count:,} jobs, the flood due in {(at_ms - wall_now_ms()) / 1000:.0f} s")
        enqueue(stage, _jobs(options, at_ms), expected=count, say=say)
        if wall_now_ms() > at_ms:
            raise BenchError("enqueueing took longer than the time until the flood is due")
        costs = stage.costs()
        _pass(stage, at_ms - wall_now_ms())
        costs.reset()
        _pass(stage, 1_000 * options.seconds)
        cores = costs.cores()
        say("cancelling the rest")
        _cancel(stage, options)
        figures = _judged(stage, options, at_ms)
        warnings = len(stage.scheduler.warnings()) + len(worker.warnings())
        return {**figures, **cores, "warnings": warnings}


def configure(stage: Stage, key: str, document: dict[str, object]) -> None:
    """Write a configuration."""
    producer = RequestProducer(stage.connection)
    at = TopicPartition(stage.layout.name("config"), 0)
    producer.send(at, Record(key.encode(), orjson.dumps(document)), lambda _at, _offset: None)
    producer.flush()


def limited_job(job_id: str, tenant: str, handler: str, at_ms: int) -> Job:
    """A job of a tenant for a handler, once."""
    schedule = b'{"at":"%s"}' % format_instant(at_ms).encode()
    document = b'{"tenant":"%s","schedule":%s,"target":%s}' % (tenant.encode(), schedule, to_handler(handler))
    return job_id.encode(), document


def _jobs(options: FloodOptions, at_ms: int) -> Iterator[Job]:
    for number in range(options.rate * options.seconds):
        yield limited_job(f"{TRICKLE}-{number:06d}", TRICKLE, "brief", at_ms + number * 1_000 // options.rate)
    for number in range(options.runs):
        yield limited_job(f"{FLOOD}-{number:06d}", FLOOD, "slow", at_ms)


def _pass(stage: Stage, duration_ms: int) -> None:
    stage.scheduler.pause(max(0, duration_ms) / 1_000)


def _cancel(stage: Stage, options: FloodOptions) -> None:
    """Delete the jobs of the flood: what waits is cancelled, what runs ends; then wait until nothing is live."""
    gone = ((f"{FLOOD}-{number:06d}".encode(), None) for number in range(options.runs))
    with Acceptance(stage, expected=options.runs, say=lambda _text: None) as acceptance:
        sending = Sending(stage)
        sending.send(gone)  # type: ignore[arg-type]
        sending.flush()
        acceptance.await_all()
    deadline_s = time.monotonic() + QUIET_S
    while live := _live(stage):
        if time.monotonic() > deadline_s:
            raise BenchError(f"{live} runs are still live {QUIET_S:.0f} s after everything was cancelled")
        _pass(stage, 1_000)


def _live(stage: Stage) -> int:
    newest = {each.key: each.value for each in KafkaTopics(stage).records(stage.layout.name("leases"))}
    return sum(value is not None for value in newest.values())


def _judged(stage: Stage, options: FloodOptions, at_ms: int) -> dict[str, object]:
    topics = KafkaTopics(stage)
    results = [orjson.loads(each.value or b"{}") for each in topics.records(stage.layout.name("results"))]
    flood, trickle = ([each for each in results if each.get("tenant") == of] for of in (FLOOD, TRICKLE))
    spans = [(each["result"]["started"], each["result"]["ended"]) for each in flood if each.get("result")]
    lags = [(each["result"]["started"] - _ms(each["due"]), _ms(each["due"])) for each in trickle if each.get("result")]
    late_ms = sorted(lag_ms for lag_ms, _ in lags)
    slow = [due_ms - at_ms for lag_ms, due_ms in sorted(lags, reverse=True)[:SHOWN] if lag_ms > SLOW_MS]
    held = most_permits(topics.records(stage.layout.name("leases")), LIMITER)
    most = max(most_at_once(spans), held)
    return {
        "runs": options.runs,
        "cap": options.cap,
        "rate": options.rate,
        "places": options.places,
        "seconds": options.seconds,
        **percentiles(late_ms, prefix="b_"),
        "b_missing": options.rate * options.seconds - len(late_ms),
        "b_slow_after_ms": " ".join(map(str, sorted(slow))),
        "a_most": most,
        "a_over_cap": max(0, most - options.cap),
        "a_per_second": _in_time(spans, at_ms, options.seconds) / options.seconds,
        "leaked_permits": leaked_permits(topics),
    }


def _ms(instant: object) -> int:
    return parse_instant(instant, zone=None, pointer="/due")


def _in_time(spans: Sequence[tuple[int, int]], at_ms: int, seconds: int) -> int:
    return sum(at_ms <= end < at_ms + 1_000 * seconds for _, end in spans)
