"""How soon the agents have counted: a wave of executions of as many jobs, then an alert, through a real broker."""

from __future__ import annotations

import tempfile
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
from noontide.adapters.system_clock import boot_ms
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records.agents_state import JOBS, RowKey
from noontide.records.topics import Layout
from noontide.testing.bench.finished import append, until
from noontide.testing.bench.measure import Meter
from noontide.testing.bench.report import say
from noontide.testing.child_process import ChildProcess, noontide

SLOTS: Final = 8
LOOK_S: Final = 0.2
WITHIN_S: Final = 120


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
    ids = (f"{wave}-{number}" for number in range(count))
    append(producer, layout, ((layout.slot_of(layout.partition_of(each)), f"{each}:1", each) for each in ids))


def _until(holds: Callable[[], bool]) -> None:
    until(holds, look_s=LOOK_S, within_s=WITHIN_S, what="the agents have not counted everything")
