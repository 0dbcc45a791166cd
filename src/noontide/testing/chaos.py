"""Chaos: schedulers, workers and brokers under load are killed and frozen at random; then the topics are judged.

    python -m noontide.testing.chaos --minutes 2 --seed 7 --brokers 3

What happens to whom, and after which pause, follows from the seed alone. Jobs end by themselves (`ends_at`); when all
of them are over and every process is back, nothing may be lost, double, or accepted from a worker that had no lease.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Final

import click
import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.foreign_topics import Unreachable, create_topics
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.topic_plan import ConfigChange
from noontide.adapters.kafka.topics import apply_plan, ensure_topics, plan_topics
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.errors import NoontideError
from noontide.ports.record_log import Doubt, Record, TopicPartition
from noontide.records.topics import Layout
from noontide.testing.chaos_brokers import BrokerBlow, Brokers
from noontide.testing.chaos_jobs import TARGET, definitions
from noontide.testing.checker import Report, check
from noontide.testing.child_process import ChildProcess, noontide
from noontide.testing.runs_judge import RunReport, gather_runs, judge_runs

STARTS: Final = "chaos.starts"
TARGET_PARTITIONS: Final = 4
LEASE_S: Final = 3
WARM_UP_MS: Final = 3_000
READY_TIMEOUT_S: Final = 120.0
DRAIN_TIMEOUT_S: Final = 150.0
LOOK_S: Final = 1.0
SPARED_S: Final = 9.0
"""How long the other schedulers are left alone after a blow on one: a session of 6 s, and the take-over."""
KEPT_MS: Final = 86_400_000
BROKER: Final = {
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
}


class Blow(StrEnum):
    """What can happen to a process."""

    KILL = "kill"
    """kill -9, and a start after a pause."""
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT after a pause, which may be longer than a lease."""
    RESTART = "restart"
    """SIGTERM, and a start at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """seconds: how long jobs are due and blows fall; jobs: recurring ones, of one and two seconds.

    brokers: 1, which is left alone, or 3, of which one at a time is killed or frozen.

    logs: a folder that keeps the logs of all processes; None = they go with the rest.
    """

    seconds: float = 120.0
    seed: int = 1
    jobs: int = 300
    schedulers: int = 2
    workers: int = 3
    brokers: int = 1
    logs: Path | None = None


@dataclass(slots=True)
class Dice:
    """Numbers that follow from a seed."""

    seed: int
    thrown: int = 0

    def below(self, sides: int) -> int:
        """0 to sides - 1."""
        self.thrown += 1
        digest = blake2b(b"%d/%d" % (self.seed, self.thrown), digest_size=8).digest()
        return int.from_bytes(digest) % sides

    def between(self, least_s: float, most_s: float) -> float:
        """Seconds, by the millisecond."""
        return least_s + self.below(round((most_s - least_s) * 1_000) + 1) / 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the topics say in the end. blows: what was done, and how often."""

    seed: int
    blows: dict[str, int]
    occurrences: Report
    runs: RunReport

    @property
    def ok(self) -> bool:
        """Nothing lost, double or wrongly accepted, and every job was judged."""
        return self.occurrences.ok and self.runs.ok and not self.occurrences.unjudged

    def as_json(self) -> dict[str, object]:
        """The report."""
        found = self.occurrences
        wrong = {
            name: [each._asdict() for each in findings[:20]]
            for name in ("missing", "duplicates", "unexpected", "early")
            if (findings := getattr(found, name))
        }
        return {
            "seed": self.seed,
            "ok": self.ok,
            "blows": self.blows,
            "occurrences": found.expected,
            "delivered": found.delivered,
            "decided": found.decided,
            "lost": len(found.missing),
            "duplicates": len(found.duplicates),
            "unexpected": len(found.unexpected),
            "early": len(found.early),
            "unjudged": len(found.unjudged),
            **self.runs.as_json(),
            **wrong,
        }


@dataclass(slots=True, kw_only=True)
class Arena:
    """Everything that runs. thaw_s: frozen processes and when they go on; start_s: the same of dead ones."""

    options: ChaosOptions
    connection: KafkaConnection
    layout: Layout
    processes: list[ChildProcess]
    brokers: Brokers
    blows: dict[str, int] = field(default_factory=dict)
    _thaw_s: dict[int, float] = field(default_factory=dict)
    _start_s: dict[int, float] = field(default_factory=dict)
    _spared_until_s: float = 0.0

    def rage(self, until_ms: int) -> None:
        """Let blows fall until a time."""
        dice = Dice(self.options.seed)
        while wall_now_ms() < until_ms:
            self._pass(dice.between(0.3, 2.0))
            victim, blow = dice.below(len(self.processes)), list(Blow)[dice.below(len(Blow))]
            pause_s = dice.between(0.2, 2.5 * LEASE_S)
            self._strike_broker(dice)
            spares = dice.below(4) > 0
            if victim not in self._thaw_s and victim not in self._start_s and not (spares and self._is_spared(victim)):
                self._strike(victim, blow, pause_s)
        self._thaw_s = dict.fromkeys(self._thaw_s, 0.0)
        self._start_s = dict.fromkeys(self._start_s, 0.0)
        self.brokers.come_back()

    def _strike_broker(self, dice: Dice) -> None:
        """With more than one broker, every second look brings a blow, if the cluster is whole again by then."""
        if self.options.brokers < 2:
            return
        is_due, number = dice.below(2), dice.below(self.options.brokers)
        blow = list(BrokerBlow)[dice.below(len(BrokerBlow))]
        pause_s = dice.between(0.5, 6.0)
        if is_due and (struck := self.brokers.strike(blow, number, pause_s)) is not None:
            self.blows[blow] = self.blows.get(blow, 0) + 1
            say(f"{blow} {struck} for {pause_s:.1f} s")

    def _is_spared(self, victim: int) -> bool:
        """Mostly some scheduler is left to take over: when none ever works, nothing is there to be broken."""
        return victim < self.options.schedulers and time.monotonic() < self._spared_until_s

    def _strike(self, victim: int, blow: Blow, pause_s: float) -> None:
        process = self.processes[victim]
        who = "scheduler" if victim < self.options.schedulers else "worker"
        if who == "scheduler":
            self._spared_until_s = time.monotonic() + SPARED_S
        self.blows[f"{blow} {who}"] = self.blows.get(f"{blow} {who}", 0) + 1
        say(f"{blow} {who} {victim} for {pause_s:.1f} s")
        match blow:
            case Blow.KILL:
                process.kill()
                self._start_s[victim] = time.monotonic() + pause_s
            case Blow.FREEZE:
                process.freeze()
                self._thaw_s[victim] = time.monotonic() + pause_s
            case Blow.RESTART:
                process.ask_to_end()
                self._start_s[victim] = time.monotonic()

    def _pass(self, duration_s: float) -> None:
        until_s = time.monotonic() + duration_s
        while (left_s := until_s - time.monotonic()) > 0:
            self._revive()
            wait(min(left_s, 0.05))

    def _revive(self) -> None:
        self.brokers.revive()
        now_s = time.monotonic()
        for number, at_s in list(self._thaw_s.items()):
            if at_s <= now_s:
                del self._thaw_s[number]
                if self.processes[number].running:
                    self.processes[number].thaw()
        for number, at_s in list(self._start_s.items()):
            if at_s <= now_s and not self.processes[number].running:
                del self._start_s[number]
                self.processes[number].start()

    def await_all(self) -> None:
        """Bring everybody back at once; whoever is still ending, as soon as it has ended."""
        while self._start_s or self._thaw_s or not self.brokers.whole:
            self._revive()
            wait(0.05)


def run_chaos(options: ChaosOptions) -> Outcome:
    """Set everything up, let it rage, let it drain, and judge."""
    with _arena(options) as arena:
        _await_owned(arena)
        starts_ms = wall_now_ms() + WARM_UP_MS
        ends_ms = starts_ms + round(options.seconds * 1_000)
        defined = _define(arena, starts_ms, ends_ms)
        _await_accepted(arena, defined)
        arena.rage(ends_ms)
        arena.await_all()
        say("draining")
        return _settled(arena, ends_ms, defined)


def _await_owned(arena: Arena) -> None:
    """Let the schedulers find to each other first: a blow on a process that has not begun strikes nothing."""
    _await_keys(arena, "owners", 1, lambda key: b"/" not in key, count=arena.layout.slots)


def _await_accepted(arena: Arena, defined: int) -> None:
    """Let there be load first, too."""
    _await_keys(arena, "jobs", arena.layout.partitions, lambda _key: True, count=defined)


def _await_keys(arena: Arena, topic: str, partitions: int, counts: Callable[[bytes], bool], *, count: int) -> None:
    """Wait until a topic has records with so many different keys."""
    replay, name = KafkaReplay(arena.connection), arena.layout.name(topic)
    places = [TopicPartition(name, number) for number in range(partitions)]
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        ends = replay.stable_offsets(places)
        seen = {
            each.key for chunk in replay.read(dict.fromkeys(ends, 0), ends) for each in chunk if counts(each.key or b"")
        }
        if len(seen) >= count:
            return
        if time.monotonic() > deadline_s:
            raise NoontideError(f"{topic} has {len(seen)} of {count} keys after {READY_TIMEOUT_S:.0f} s")
        wait(LOOK_S)


def _settled(arena: Arena, ends_ms: int, defined: int) -> Outcome:
    """The judgement, once nothing is missing or live, or when less and less is left no longer for a while."""
    deadline_s, least = time.monotonic() + DRAIN_TIMEOUT_S, 1 << 62
    while True:
        try:
            runs = judge_runs(gather_runs(arena.connection, arena.layout, STARTS))
            occurrences = check(arena.connection, arena.layout, until_ms=ends_ms)
        except (Doubt, Unreachable) as error:  # leaders may still move
            if time.monotonic() > deadline_s:
                raise
            say(f"draining: {error}")
            wait(LOOK_S)
            continue
        # What a transaction wrote to several topics does not become readable on all of them at once.
        halves = len(runs.without_result)
        left = len(occurrences.missing) + len(runs.live) + halves + max(0, defined - occurrences.jobs)
        if left < least:
            deadline_s, least = time.monotonic() + DRAIN_TIMEOUT_S, left
        if time.monotonic() > deadline_s or (not left and wall_now_ms() > ends_ms + 2 * LEASE_S * 1_000):
            return Outcome(seed=arena.options.seed, blows=arena.blows, occurrences=occurrences, runs=runs)
        say(f"draining: {left} left")
        wait(LOOK_S)


@contextmanager
def _arena(options: ChaosOptions) -> Iterator[Arena]:
    folder = Path(tempfile.mkdtemp(prefix="noontide-chaos-"))
    try:
        with (
            EmbeddedKafka(folder / "kafka", brokers=options.brokers, properties=BROKER) as kafka,
            ExitStack() as ends,
        ):
            connection = KafkaConnection(kafka.bootstrap, client_id="noontide-chaos")
            layout = Layout(partitions=16, slots=4)
            _create_topics(connection, layout)
            stamps = {"message.timestamp.type": "LogAppendTime"}
            create_topics(connection, {TARGET: TARGET_PARTITIONS, STARTS: 1}, config=stamps)
            processes = [ends.enter_context(each) for each in _processes(options, kafka.bootstrap, folder)]
            for process in processes:
                process.start()
            brokers = Brokers(kafka=kafka, connection=connection, state_topic=layout.name("state"))
            yield Arena(options=options, connection=connection, layout=layout, processes=processes, brokers=brokers)
    finally:
        if options.logs is not None:
            for log in folder.glob("kafka/**/broker.log"):
                shutil.copy(log, options.logs / f"{log.parent.name}.log")
        shutil.rmtree(folder, ignore_errors=True)


def _create_topics(connection: KafkaConnection, layout: Layout) -> None:
    """As always, but that `leases` keeps every grant: compaction begins after ten minutes, and the judge reads them."""
    ensure_topics(connection, layout)
    lag = "min.compaction.lag.ms"
    kept = ConfigChange(topic=layout.name("leases"), setting=lag, old=None, new=str(KEPT_MS), why="evidence")
    apply_plan(connection, layout, plan=replace(plan_topics(connection, layout), changes=(kept,)))


def _processes(options: ChaosOptions, bootstrap: str, folder: Path) -> Iterator[ChildProcess]:
    """The schedulers, then the workers."""
    logs = folder if options.logs is None else options.logs
    for number in range(options.schedulers):
        data = ("--data", str(folder / f"scheduler-{number}"))
        command = noontide("scheduler", "--bootstrap", bootstrap, *data)
        yield ChildProcess(command=command, log=logs / f"scheduler-{number}.log")
    for number in range(options.workers):
        command = noontide("worker", "noontide.testing.chaos_handlers", "--bootstrap", bootstrap, "--drain", "1s")
        variables = {"CHAOS_BOOTSTRAP": bootstrap, "CHAOS_STARTS": STARTS}
        yield ChildProcess(command=command, log=logs / f"worker-{number}.log", variables=variables)


def _define(arena: Arena, starts_ms: int, ends_ms: int) -> int:
    """Send the definitions; returns how many."""
    producer, layout = RequestProducer(arena.connection), arena.layout

    def send(topic: str, partition: int, key: str, document: object) -> None:
        record = Record(key.encode(), orjson.dumps(document))
        producer.send(TopicPartition(layout.prefix + topic, partition), record, lambda _at, _offset: None)

    send("config", 0, f"target/{TARGET}", {"topic": TARGET})
    producer.flush()
    made = list(definitions(arena.options.jobs, starts_ms=starts_ms, ends_ms=ends_ms, lease_s=LEASE_S))
    for job_id, definition in made:
        send("requests.public", layout.partition_of(job_id.encode()), job_id, definition)
    producer.flush()
    return len(made)


def wait(duration_s: float) -> None:
    """Let real time pass: the processes live by it."""
    time.sleep(duration_s)  # noqa: TID251


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"chaos: {text}", file=sys.stderr, flush=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", type=click.FloatRange(min=0.05), default=2.0, show_default=True, help="How long blows fall.")
@click.option("--seed", type=int, default=None, help="What happens; the same again.  [default: drawn from the clock]")
@click.option("--jobs", type=click.IntRange(8), default=300, show_default=True, help="Recurring jobs.")
@click.option("--schedulers", type=click.IntRange(1), default=2, show_default=True, help="Scheduler processes.")
@click.option(
    "--brokers", type=click.IntRange(1, 5), default=1, show_default=True, help="With more than one, they suffer too."
)
@click.option("--logs", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Folder to keep logs in.")
@click.option("--workers", type=click.IntRange(1), default=3, show_default=True, help="Worker processes.")
def main(minutes: float, seed: int | None, logs: Path | None, **sizes: int) -> None:
    """Kill and freeze schedulers, workers and brokers at random, then judge the topics; prints a report as JSON.

    Exit code 1 when something was lost, double, or accepted from a worker without the lease.
    """
    options = ChaosOptions(
        seconds=60 * minutes, seed=wall_now_ms() % 100_000 if seed is None else seed, logs=logs, **sizes
    )
    say(f"seed {options.seed}")
    outcome = run_chaos(options)
    click.echo(json.dumps(outcome.as_json(), indent=2))
    sys.exit(0 if outcome.ok else 1)


if __name__ == "__main__":
    main()
