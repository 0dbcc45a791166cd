"""How soon the agents have counted: a wave of executions of as many jobs, then an alert, through a real broker."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.topics import ensure_topics
from noontide.adapters.system_clock import boot_ms, wall_now_ms
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records.agents_state import JOBS, RowKey
from noontide.records.executions import Times, delivered
from noontide.records.topics import Layout
from noontide.testing.bench.measure import Meter
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import BenchError
from noontide.testing.child_process import ChildProcess, noontide

SLOTS: Final = 8
LOOK_S: Final = 0.2
WITHIN_S: Final = 120
_PAUSE: Final = threading.Event()  # never set: waiting for it is a pause


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsOptions:
    """jobs: of the wave, one execution each."""

    jobs: int


def run_agents_bench(options: AgentsOptions) -> dict[str, object]:
    """Figures: lag of the table after the last append, processor seconds of the agents, what is missing."""
    layout = Layout(slots=SLOTS)
    with tempfile.TemporaryDirectory(prefix="noontide-bench-") as name, EmbeddedKafka(Path(name) / "kafka") as kafka:
        ensure_topics(kafka.bootstrap, layout)
        command = noontide("agents", "--bootstrap", kafka.bootstrap, "--data", str(Path(name) / "agents"))
        with ChildProcess(command=command, log=Path(name) / "agents.log") as agents:
            agents.start().until_logged("agents_ready")
            return _measure(kafka.bootstrap, layout, options.jobs, agents.pid)


def _measure(bootstrap: str, layout: Layout, jobs: int, pid: int) -> dict[str, object]:
    connection = KafkaConnection(bootstrap)
    producer, counted = RequestProducer(connection), _Counted(connection, layout)
    say("warming up")
    _append(producer, layout, "warm", 2_000)
    _until(lambda: counted.of("warm") == 2_000)
    say(f"a wave of {jobs:,}")
    meter, began_ms = Meter(pid), boot_ms()
    _append(producer, layout, "wave", jobs)
    appended_ms = boot_ms()
    _until(lambda: counted.of("wave") >= jobs)
    ended_ms = boot_ms()
    return {
        "jobs": jobs,
        "append_seconds": (appended_ms - began_ms) / 1000,
        "lag_after_wave_seconds": (ended_ms - appended_ms) / 1000,
        "executions_per_second": jobs * 1000 / (ended_ms - began_ms),
        "cpu_agents": meter.cores(),
        "rows_written": counted.records,
        "missing": jobs - counted.of("wave"),
    }


class _Counted:
    """What the rows of jobs come to, over a day."""

    def __init__(self, connection: KafkaConnection, layout: Layout) -> None:
        self.records = 0
        self._replay = KafkaReplay(connection)
        self._places = [TopicPartition(layout.name("agents-state"), number) for number in range(layout.slots)]
        self._next = dict.fromkeys(self._places, 0)
        self._rows: dict[str, dict[str, int]] = {}

    def of(self, wave: str) -> int:
        """Executions of a wave that are counted now."""
        ends = self._replay.stable_offsets(self._places)
        for records in self._replay.read(self._next, ends):
            for record in records:
                self._take(record)
        self._next = ends
        return sum(row.get(wave, 0) for row in self._rows.values())

    def _take(self, record: Incoming) -> None:
        self.records += 1
        text = (record.key or b"").decode()
        key = RowKey.of(text)
        if key is not None and key.kind == JOBS and key.window == "24h" and record.value is not None:
            row = self._rows[text] = {}
            for jobs in orjson.loads(record.value)["jobs"].values():
                for job, tally in jobs.items():
                    wave = job.partition("-")[0]
                    row[wave] = row.get(wave, 0) + int(tally["succeeded"])


def _append(producer: RequestProducer, layout: Layout, wave: str, count: int) -> None:
    now_ms = wall_now_ms()
    times, topic = Times(now_ms, now_ms, now_ms, now_ms + 3), layout.name("executions")
    for number in range(count):
        job_id = f"{wave}-{number}"
        value = delivered(f"{job_id}:1", job_id, tenant="default", target="kafka://orders", times=times)
        slot = layout.slot_of(layout.partition_of(job_id))
        producer.send(TopicPartition(topic, slot), Record(f"{job_id}:1".encode(), value), _acknowledged)
        if number % 1000 == 0:
            producer.poll()
    producer.flush()


def _acknowledged(*outcome: object) -> None:
    """Executions are counted in the table, not here."""


def _until(holds: Callable[[], bool]) -> None:
    deadline_ms = boot_ms() + WITHIN_S * 1000
    while not holds():
        if boot_ms() > deadline_ms:
            raise BenchError(f"the agents have not counted everything within {WITHIN_S} s")
        _PAUSE.wait(LOOK_S)
