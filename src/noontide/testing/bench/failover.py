"""Two schedulers under load: one hands its slots over, later the other is killed. How long nothing was dispatched."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.tail import Tail, offsets_since
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.ids import OccurrenceRunId, parse_run_id
from noontide.ports.record_log import TopicPartition
from noontide.testing.bench.load import Job, enqueue, every, one_off
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError, SchedulerProcess, Stage, set_stage
from noontide.testing.bench.tally import RUN_HEADER

YEAR_MS: Final = 365 * 86_400_000
SPREAD_MS: Final = 30 * 86_400_000
PERIOD_MS: Final = 1_000
LOAD: Final = "load"
WARM_TIMEOUT_S: Final = 1_800.0
CALM_S, AFTER_S, RECOVER_TIMEOUT_S = 10.0, 15.0, 60.0
STALE_MS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    """jobs: armed and due a year ahead; rate: dispatches per second, of as many jobs with a period of one second.

    session_ms: silence after which the group takes a scheduler for dead.
    """

    jobs: int
    rate: int = 500
    session_ms: int = 6_000


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A record on the target: of which job, due and appended when (ms since the epoch)."""

    job: bytes
    due_ms: int
    appended_ms: int


def run_failover(options: FailoverOptions) -> dict[str, object]:
    """Run the bench; see `FailoverOptions` and docs/reference/performance.md."""
    lowered = {"group.min.session.timeout.ms": str(options.session_ms)} if options.session_ms < 6_000 else {}
    with set_stage(starts=False, properties=lowered) as stage:
        first, second = _schedulers(stage, options)
        try:
            return _measured(stage, options, first, second)
        finally:
            first.kill()
            second.kill()


def _schedulers(stage: Stage, options: FailoverOptions) -> tuple[SchedulerProcess, SchedulerProcess]:
    stage.scheduler.extra = ("--setting", f"session_timeout_ms={options.session_ms}")
    other = SchedulerProcess(
        bootstrap=stage.kafka.bootstrap,
        prefix=stage.layout.prefix,
        data=stage.folder / "scheduler-2",
        log=stage.folder / "scheduler-2.log",
        extra=stage.scheduler.extra,
    )
    return stage.scheduler, other


def _measured(
    stage: Stage, options: FailoverOptions, first: SchedulerProcess, second: SchedulerProcess
) -> dict[str, object]:
    first.start()
    first.await_owned(stage.layout.slots)
    enqueue(stage, _jobs(options), expected=options.jobs + options.rate, say=say)
    began_ms, began_s = wall_now_ms() + 2 * PERIOD_MS, time.monotonic()
    second.start()
    _await_warm(stage, "the second scheduler is to be warm")
    warm_s = time.monotonic() - began_s
    meter = second.meter
    first.pause(CALM_S)
    copying_cores = meter.cores()

    handed_over_ms = wall_now_ms()
    say("planned: SIGTERM to the first")
    first.stop()
    stopped_ms = wall_now_ms()
    second.pause(AFTER_S)
    first.start()
    _await_warm(stage, "the first scheduler is to be back")

    killed_ms = wall_now_ms()
    say("kill -9 to the second")
    second.kill()
    taken_over = _await_all_slots(stage, first, killed_ms)
    first.pause(AFTER_S)
    until_ms = wall_now_ms() - 5 * PERIOD_MS
    dispatches = _dispatches(stage, began_ms)
    return {
        "jobs": options.jobs,
        "rate": options.rate,
        "session_ms": options.session_ms,
        **_gaps(stage, dispatches, killed_ms, until_ms),
        "handover_late_ms_max": _latest(dispatches, handed_over_ms - PERIOD_MS, stopped_ms + 1_000 * int(AFTER_S)),
        "handover_ms": stopped_ms - handed_over_ms,
        "take_over_ms_max": taken_over,
        "warm_after_s": warm_s,
        "cpu_standby_and_half_the_load": copying_cores,
        "rss_mb": first.meter.look(),
        **_counts(dispatches, options, began_ms, until_ms),
    }


def _jobs(options: FailoverOptions) -> Iterator[Job]:
    now_ms = wall_now_ms() // PERIOD_MS * PERIOD_MS
    step_ms = max(1, SPREAD_MS // max(1, options.jobs))
    for number in range(options.rate):
        yield every(LOAD, number, interval="PT1S", anchor_ms=now_ms + number * PERIOD_MS // options.rate)
    yield from (one_off("armed", number, now_ms + YEAR_MS + number * step_ms) for number in range(options.jobs))


def _await_warm(stage: Stage, what: str) -> None:
    """Wait until two processes own half of the slots each, and each slot has a warm standby, by `owners`."""
    deadline_s = time.monotonic() + WARM_TIMEOUT_S
    said = Said(stage)
    while not said.is_shared_and_warm(stage.layout.slots):
        if time.monotonic() > deadline_s:
            raise BenchError(f"{what}, and is not after {WARM_TIMEOUT_S:.0f} s")
        say(f"{what}: {said.summary()}")
        stage.scheduler.pause(1.0)


class Said:
    """What the schedulers say on `owners`."""

    def __init__(self, stage: Stage) -> None:
        self._tail = Tail(stage.connection, {TopicPartition(stage.layout.name("owners"), 0): 0})
        self._latest: dict[bytes, Mapping[str, object]] = {}

    def is_shared_and_warm(self, slots: int) -> bool:
        """Whether two processes share the slots, and all have a warm standby."""
        self._read()
        owners: dict[object, int] = defaultdict(int)
        for each in self._fresh("owner", "working"):
            owners[each["owner"]] += 1
        standbys = {each["slot"] for each in self._fresh("standby", "warm")}
        return len(standbys) == slots and sorted(owners.values()) == [slots // 2, slots - slots // 2]

    def summary(self) -> str:
        """How far the standbys are."""
        copying = [each for each in self._latest.values() if each.get("phase") == "copying"]
        left = sum(int(str(each["lag"])) for each in copying)
        return f"{len(copying)} copies under way, {left:,} records left"

    def _read(self) -> None:
        while found := self._tail.poll(0.2):
            for record in found:
                key = record.key or b""
                self._latest.pop(key, None)
                if record.value is not None:
                    self._latest[key] = {**orjson.loads(record.value), "said_ms": record.appended_ms}

    def _fresh(self, role: str, phase: str) -> Iterator[Mapping[str, object]]:
        since_ms = wall_now_ms() - STALE_MS
        for each in self._latest.values():
            if each["role"] == role and each["phase"] == phase and int(str(each["said_ms"])) > since_ms:
                yield each


def _await_all_slots(stage: Stage, scheduler: SchedulerProcess, killed_ms: int) -> int:
    """Wait until one process owns all slots; the slowest take-over since the kill, in ms."""
    deadline_s, before = time.monotonic() + RECOVER_TIMEOUT_S, stage.layout.slots // 2
    while len({each.slot for each in scheduler.owned()}) < stage.layout.slots:
        if time.monotonic() > deadline_s:
            raise BenchError(f"not all slots are owned {RECOVER_TIMEOUT_S:.0f} s after the kill")
        scheduler.pause(0.05)
    return max(each.after_ms for each in scheduler.owned()[before:])


def _dispatches(stage: Stage, since_ms: int) -> list[Dispatch]:
    replay = KafkaReplay(stage.connection)
    ends = replay.stable_offsets(stage.target)
    found = []
    for chunk in replay.read(offsets_since(stage.connection, stage.target, since_ms=since_ms), ends):
        for record in chunk:
            run = next(value.decode() for name, value in record.headers if name == RUN_HEADER)
            found.append(Dispatch(record.key or b"", due_ms_of(run), record.appended_ms))
    return found


def due_ms_of(run: str) -> int:
    """When the occurrence of a run was due."""
    parsed = parse_run_id(run, "")
    assert isinstance(parsed, OccurrenceRunId), f"nobody triggered anything: {run}"
    return parsed.due_ms


def _gaps(stage: Stage, dispatches: list[Dispatch], killed_ms: int, until_ms: int) -> dict[str, object]:
    """The longest time in which a partition dispatched nothing, from just before the kill on."""
    times: dict[int, list[int]] = defaultdict(list)
    for each in dispatches:
        if killed_ms - 2 * PERIOD_MS <= each.appended_ms:
            times[stage.layout.partition_of(each.job)].append(each.appended_ms)
    worst = {
        number: max(after - before for before, after in zip(sorted(found), sorted(found)[1:], strict=False))
        for number, found in times.items()
        if len(found) > 1
    }
    recovered = [min(at for at in found if at > killed_ms + worst[number] // 2) for number, found in times.items()]
    return {
        "gap_ms_max": max(worst.values()),
        "partitions_dispatching": len(worst),
        "all_dispatch_after_ms": max(recovered) - killed_ms,
        "late_ms_max_after_kill": _latest(dispatches, killed_ms - PERIOD_MS, until_ms),
    }


def _latest(dispatches: list[Dispatch], since_ms: int, until_ms: int) -> int:
    """The most that a run was late which fell due in a time."""
    return max(each.appended_ms - each.due_ms for each in dispatches if since_ms <= each.due_ms < until_ms)


def _counts(dispatches: list[Dispatch], options: FailoverOptions, since_ms: int, until_ms: int) -> dict[str, object]:
    """Each job has one instant per period; those between the two times must be there, each once."""
    seen: dict[tuple[bytes, int], int] = defaultdict(int)
    for each in dispatches:
        seen[each.job, each.due_ms] += 1
    phases: dict[bytes, int] = {each.job: each.due_ms % PERIOD_MS for each in dispatches}
    first_ms = -(-(since_ms + PERIOD_MS) // PERIOD_MS) * PERIOD_MS
    instants = range(first_ms, until_ms, PERIOD_MS)
    expected = [(job, at + phase) for job, phase in phases.items() for at in instants]
    return {
        "runs": len(dispatches),
        "lost": sum(key not in seen for key in expected) + (options.rate - len(phases)) * len(instants),
        "duplicate_claims": sum(count - 1 for count in seen.values()),
    }
