"""The benches: that they count what is there, say when something is not, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.conftest import RunningKafka

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.foreign_topics import create_topics
from noontide.adapters.kafka.requests import RequestProducer
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.ids import run_id
from noontide.core.limits import Limits
from noontide.core.schedule import CronSchedule, IntervalSchedule, OneOff
from noontide.ports.record_log import Record, TopicPartition
from noontide.testing.bench.__main__ import faults
from noontide.testing.bench.arrivals import Watch, Watcher
from noontide.testing.bench.idle import IdleOptions, run_idle
from noontide.testing.bench.lag import LagOptions, Stream
from noontide.testing.bench.load import PAYLOAD_BYTES, Job, daily, every, job_id, number_of, one_off
from noontide.testing.bench.measure import Machine, Meter, percentile
from noontide.testing.bench.report import one_line, table
from noontide.testing.bench.restore import RestoreOptions, run_restore
from noontide.testing.bench.search import SearchOptions, run_search
from noontide.testing.bench.tally import Tally, tally
from noontide.testing.bench.wave import WaveOptions, run_wave

AT_MS = 1_893_456_000_000  # 2030-01-01T00:00:00Z
BENCH = [sys.executable, "-m", "noontide.testing.bench"]


# --- without a broker


@pytest.mark.parametrize(
    "share,expected", [(0.0, 1), (0.01, 1), (0.011, 2), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
)
def test_percentiles_are_the_nearest_rank(share: float, expected: int) -> None:
    assert percentile(list(range(1, 101)), share) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    assert percentile([], 0.5) == 0


def schedule_of(job: Job) -> object:
    context = DefinitionContext(
        key=job[0].decode(), tenant=None, created_ms=AT_MS - 5_000, limits=Limits(), previous=None, topic_prefix="x."
    )
    definition = parse_definition(job[1], context=context)
    assert definition.warnings == ()
    assert len(definition.job.payload) == PAYLOAD_BYTES
    return definition.job.schedule


def test_definitions_are_due_when_they_should_be() -> None:
    once = schedule_of(one_off("w", 7, AT_MS))
    assert isinstance(once, OneOff)
    assert once.at_ms == AT_MS
    hourly = schedule_of(every("w", 7, interval="PT1H", anchor_ms=AT_MS))
    assert isinstance(hourly, IntervalSchedule)
    assert (hourly.next_after(AT_MS - 1), hourly.next_after(AT_MS)) == (AT_MS, AT_MS + 3_600_000)
    cron = schedule_of(daily("w", 7, at_ms=AT_MS))
    assert isinstance(cron, CronSchedule)
    assert (cron.next_after(AT_MS - 1), cron.next_after(AT_MS)) == (AT_MS, AT_MS + 86_400_000)


def test_payloads_are_about_a_kilobyte() -> None:
    assert 950 <= PAYLOAD_BYTES <= 1_024


def test_the_number_is_read_back_from_a_job_id() -> None:
    assert number_of(job_id("wave", 999_999).encode()) == 999_999
    with pytest.raises(ValueError, match="invalid literal"):
        number_of(b"somebody-else's")


def test_half_of_a_stream_is_defined_two_to_five_seconds_ahead() -> None:
    stream = Stream(options=LagOptions(rate=100, seconds=2, settle_s=1), start_ms=AT_MS)
    plan = stream.meanwhile()
    assert sorted(number for _, number in plan) == list(range(1, 300, 2))
    assert [at for at, _ in plan] == sorted(at for at, _ in plan)
    leads = [stream.due_ms(number) - at for at, number in plan]
    assert min(leads) >= 2_000
    assert max(leads) <= 5_000
    assert len(list(stream.beforehand())) == 150
    assert [stream.due_ms(number) - AT_MS for number in (0, 1, 299)] == [0, 10, 2_990]


def test_a_report_is_one_line_of_json_or_a_table() -> None:
    figures = {"jobs": 100_000, "seconds": 1.23456, "per_second": 81_000.4, "killed": {"warnings": 0}}
    assert json.loads(one_line(figures)) == {
        "jobs": 100_000, "seconds": 1.235, "per_second": 81_000, "killed": {"warnings": 0}
    }  # fmt: skip
    assert "\n" not in one_line(figures)
    lines = table("wave", figures).splitlines()
    assert lines[0] == "wave"
    assert lines[1].split() == ["jobs", "100,000"]


def test_what_was_lost_is_a_fault_however_deep() -> None:
    assert faults({"missing": 0, "duplicates": 0}) == []
    assert faults({"missing": 1, "duplicates": 0}) == ["missing"]
    assert faults({"wave": {"duplicates": 2, "cursors_wrong": 1}}) == ["duplicates", "cursors_wrong"]


def test_processor_time_is_that_of_the_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            meter, machine = Meter(busy.pid), Machine()
            with pytest.raises(subprocess.TimeoutExpired):
                busy.wait(0.5)
            assert 0.1 < meter.cores() < 1.1
            assert machine.cores() > 0.1
            assert meter.look() > 1
        finally:
            busy.kill()


# --- the counting, on a broker


def send(bootstrap: str, topic: str, runs: Sequence[str]) -> None:
    """One record per run, alternating between two partitions."""
    producer = RequestProducer(KafkaConnection(bootstrap))
    for place, run in enumerate(runs):
        record = Record(run.rpartition(":")[0].encode(), b"{}", [("noontide-run", run.encode())])
        producer.send(TopicPartition(topic, place % 2), record, lambda _at, _offset: None)
    producer.flush()


@pytest.mark.kafka
def test_lost_doubled_and_foreign_runs_are_seen(kafka: RunningKafka, prefix: str) -> None:
    connection, topic = KafkaConnection(kafka.bootstrap), f"{prefix}target"
    create_topics(connection, {topic: 2}, config={"message.timestamp.type": "LogAppendTime"})
    partitions = [TopicPartition(topic, number) for number in range(2)]
    runs = [run_id(job_id("w", number), AT_MS, 1) for number in range(100)]
    send(kafka.bootstrap, topic, ["before-the-bench:20300101T000000Z"] * 2)
    watch = Watch.from_end(connection, partitions, expected=102, wants_each=True)
    with Watcher(watch) as watcher:
        send(kafka.bootstrap, topic, [*runs[:99], runs[3], runs[3], "stranger:20300101T000000Z"])
        watched = watcher.poll(20)
    assert watched is not None
    assert watched.records == len(watched.arrivals) == 102
    assert all(0 <= each.arrived_ms - each.appended_ms < 20_000 for each in watched.arrivals)
    numbers = {run: number for number, run in enumerate(runs)}
    found = tally(connection, watch.positions, expected=100, number_of_run=numbers.get)
    assert found == Tally(missing=1, duplicates=2, foreign=1)


# --- the benches


def bench(arguments: Sequence[str], folder: Path) -> Mapping[str, object]:
    """Run a bench as a program; its last line on standard output, with nothing left in the temporary folder."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        [*BENCH, *arguments, "--json"], capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.glob("noontide-bench-*")) == []
    figures = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(figures, dict)
    return figures


@pytest.mark.kafka
@pytest.mark.slow
def test_wave(tmp_path: Path) -> None:
    figures = bench(["wave", "--jobs", "2000"], tmp_path)
    assert figures["jobs"] == 2_000
    assert (figures["missing"], figures["duplicates"], figures["foreign"]) == (0, 0, 0)
    assert {"seconds", "per_second", "first_ms", "enqueue_per_second", "cpu_scheduler", "cpu_broker", "rss_mb"} <= set(
        figures
    )


@pytest.mark.kafka
@pytest.mark.slow
def test_wave_of_recurring_jobs_checks_their_cursors() -> None:
    figures = run_wave(WaveOptions(jobs=500, recurring=True))
    assert (figures["missing"], figures["duplicates"], figures["foreign"]) == (0, 0, 0)
    assert (figures["cursors_checked"], figures["cursors_wrong"]) == (500, 0)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_wave_that_comes_too_early_is_refused(tmp_path: Path) -> None:
    command = [*BENCH, "wave", "--jobs", "20000", "--lead", "1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 1
    assert "enqueueing took longer than 1 s" in done.stderr
    assert list(tmp_path.glob("noontide-bench-*")) == []


@pytest.mark.kafka
@pytest.mark.slow
def test_lag(tmp_path: Path) -> None:
    figures = bench(["lag", "--rate", "100", "--seconds", "3", "--settle", "2"], tmp_path)
    assert (figures["missing"], figures["duplicates"], figures["foreign"]) == (0, 0, 0)
    p50_ms, p99_ms, max_ms = (figures[name] for name in ("p50_ms", "p99_ms", "max_ms"))
    assert isinstance(p50_ms, int | float)
    assert isinstance(p99_ms, int | float)
    assert isinstance(max_ms, int | float)
    assert 0 <= p50_ms <= p99_ms <= max_ms


def test_search_looks_at_every_job_and_finds_ids_by_their_beginning() -> None:
    found = run_search(SearchOptions(jobs=500))
    assert (found["looked_at"], found["prefix_found"]) == (500, 10)


@pytest.mark.kafka
@pytest.mark.slow
def test_enqueue(tmp_path: Path) -> None:
    figures = bench(["enqueue", "--jobs", "3000"], tmp_path)
    per_second, producer_per_second = figures["per_second"], figures["producer_per_second"]
    assert isinstance(per_second, int | float)
    assert isinstance(producer_per_second, int | float)
    assert 0 < per_second <= producer_per_second


@pytest.mark.kafka
@pytest.mark.slow
def test_idle() -> None:
    figures = run_idle(IdleOptions(jobs=2_000, seconds=2))
    assert figures["jobs"] == 2_000
    cpu_scheduler = figures["cpu_scheduler"]
    assert isinstance(cpu_scheduler, float)
    assert 0 <= cpu_scheduler < 1


@pytest.mark.kafka
@pytest.mark.slow
def test_restore_replays_everything_only_when_the_index_is_gone() -> None:
    figures = run_restore(RestoreOptions(jobs=2_000))
    clean, log_alone = figures["clean"], figures["log_alone"]
    assert isinstance(clean, dict)
    assert isinstance(log_alone, dict)
    assert clean["replayed"] < 2_000
    assert log_alone["replayed"] >= 2_000 * 2  # definition and cursor of each
    assert 0 < clean["firing_seconds"] < 60


@pytest.mark.kafka
@pytest.mark.slow
def test_an_interrupted_bench_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*BENCH, "idle", "--jobs", "1000", "--seconds", "600"], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if "measuring" in line)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) != 0
    assert list(tmp_path.glob("noontide-bench-*")) == []
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in listing
