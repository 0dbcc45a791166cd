"""The stage of a bench: an embedded broker, the topics, a registered target, and the scheduler as it is shipped."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.foreign_topics import create_topics
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.topics import ensure_topics
from noontide.core.errors import NoontideError
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.topics import Layout
from noontide.testing.bench.measure import Costs, Meter

TARGET: Final = "bench.target"
TARGET_PARTITIONS: Final = 16
OWNED_TIMEOUT_S: Final = 600.0
STOP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02
_OWNED: Final = re.compile(r"slot (\d+): owned after (\d+) ms \((\d+) records replayed")


class BenchError(NoontideError):
    """The bench could not be run, or what it measured would mean nothing; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A slot that the scheduler says it owns. after_ms: from the start of its take-over; records: replayed."""

    slot: int
    after_ms: int
    records: int


@dataclass(slots=True, kw_only=True)
class SchedulerProcess:
    """`noontide scheduler` with its shipped defaults, in a session of its own; its log is kept in a file.

    extra: further arguments.
    """

    bootstrap: str
    prefix: str
    data: Path
    log: Path
    extra: tuple[str, ...] = ()
    started_s: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _log_start: int = 0

    def start(self) -> None:
        """Start it; `started_s` is the moment on `time.monotonic`."""
        command = [sys.executable, "-m", "noontide.apps.cli.main", "scheduler"]
        command += ["--bootstrap", self.bootstrap, "--prefix", self.prefix, "--data", str(self.data), *self.extra]
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self.started_s = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def meter(self) -> Meter:
        """Its processor time and memory."""
        return Meter(self._running().pid)

    def owned(self) -> list[Owned]:
        """What its log says it owns since this start."""
        return [Owned(slot=int(a), after_ms=int(b), records=int(c)) for a, b, c in _OWNED.findall(self._text())]

    def await_owned(
        self, slots: int, *, while_waiting: Callable[[], object] | None = None, within_s: float = OWNED_TIMEOUT_S
    ) -> list[Owned]:
        """Wait until it owns that many slots. Raises BenchError when it ends, or when it takes too long."""
        deadline_s = time.monotonic() + within_s
        while len({each.slot for each in self.owned()}) < slots:
            if time.monotonic() > deadline_s:
                raise BenchError(f"the scheduler does not own all {slots} slots after {within_s:.0f} s")
            self.pause(_POLL_S)
            if while_waiting is not None:
                while_waiting()
        return self.owned()

    def pause(self, duration_s: float) -> None:
        """Let time pass. Raises BenchError when the scheduler ends meanwhile, with the end of its log."""
        process = self._running()
        with suppress(subprocess.TimeoutExpired):
            process.wait(duration_s)
        if process.returncode is not None:
            raise BenchError(f"the scheduler ended with {process.returncode}:\n{self._text()[-2_000:]}")

    def stop(self) -> None:
        """End it as an operator would (SIGTERM), or for good after a minute."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def warnings(self) -> list[str]:
        """Lines of this start's log above INFO: a bench with some of them measured something else as well."""
        return [line for line in self._text().splitlines() if " WARNING " in line or " ERROR " in line]

    def _end(self, signum: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signum)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BenchError("the scheduler is not running")
        return self._process

    def _text(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that a bench measures, running."""

    kafka: EmbeddedKafka
    connection: KafkaConnection
    layout: Layout
    scheduler: SchedulerProcess
    folder: Path = field(repr=False)

    def costs(self) -> Costs:
        """Processor time and memory of scheduler and broker, counted from now on."""
        return Costs(scheduler=self.scheduler.meter, broker=Meter(self.kafka.pids[0]))

    @property
    def target(self) -> list[TopicPartition]:
        """Partitions of the topic that runs go to."""
        return [TopicPartition(TARGET, number) for number in range(TARGET_PARTITIONS)]

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Partitions of one of our topics, by its short name."""
        return [TopicPartition(self.layout.name(topic), each) for each in range(self.layout.topic_partitions(topic))]


@contextmanager
def set_stage(
    *, slots: int = 8, starts: bool = True, properties: Mapping[str, str] | None = None, extra: tuple[str, ...] = ()
) -> Iterator[Stage]:
    """A stage in a temporary folder, with the scheduler owning all slots; nothing of it is left afterwards.

    properties: settings of the broker beside the embedded one's. extra: arguments of the scheduler.
    """
    folder = Path(tempfile.mkdtemp(prefix="noontide-bench-"))
    try:
        with EmbeddedKafka(folder / "kafka", properties=properties or {}) as kafka:
            stage = _furnished(kafka, folder, slots)
            stage.scheduler.extra = extra
            try:
                if starts:
                    stage.scheduler.start()
                    stage.scheduler.await_owned(slots)
                yield stage
            finally:
                stage.scheduler.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _furnished(kafka: EmbeddedKafka, folder: Path, slots: int) -> Stage:
    connection = KafkaConnection(kafka.bootstrap, client_id="noontide-bench")
    layout = Layout(slots=slots)
    ensure_topics(connection, layout)
    create_topics(connection, {TARGET: TARGET_PARTITIONS}, config={"message.timestamp.type": "LogAppendTime"})
    _register(connection, layout, [TARGET])
    scheduler = SchedulerProcess(
        bootstrap=kafka.bootstrap, prefix=layout.prefix, data=folder / "scheduler", log=folder / "scheduler.log"
    )
    return Stage(kafka=kafka, connection=connection, layout=layout, scheduler=scheduler, folder=folder)


def _register(connection: KafkaConnection, layout: Layout, topics: Sequence[str]) -> None:
    """Let runs be written to these topics in the transaction that claims them."""
    producer = RequestProducer(connection)
    for topic in topics:
        record = Record(f"target/{topic}".encode(), b'{"topic":"%s"}' % topic.encode())
        producer.send(TopicPartition(layout.name("config"), 0), record, lambda _at, _offset: None)
    producer.flush()
