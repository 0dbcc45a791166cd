"""How fast executions get into PostgreSQL: a wave of them, then a steady stream, through a real Kafka Connect."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.embedded import EmbeddedKafka
from noontide.adapters.kafka.requests import RequestProducer
from noontide.adapters.kafka.topics import ensure_topics
from noontide.adapters.postgres.table import history_database
from noontide.adapters.system_clock import boot_ms
from noontide.apps.dev_history import DevHistory
from noontide.records.topics import Layout
from noontide.testing.bench.finished import append, pause, until
from noontide.testing.bench.report import say

SLOTS: Final = 8
LOOK_S: Final = 0.05
STREAM_SECONDS: Final = 15
STREAM_RATE: Final = 1_000
WITHIN_S: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """rows: of the wave."""

    rows: int


def run_history(options: HistoryOptions) -> dict[str, object]:
    """Figures: rows_per_second of the wave, from its first append to the last row; lag of a stream of 1,000/s, ms."""
    layout = Layout(slots=SLOTS)
    with _open_folder() as folder, EmbeddedKafka(folder / "kafka") as kafka:
        ensure_topics(kafka.bootstrap, layout)
        with DevHistory(folder, bootstrap=kafka.bootstrap, prefix=layout.prefix) as history:
            return _measure(kafka.bootstrap, history.url, layout, options.rows)


def _measure(bootstrap: str, url: str, layout: Layout, rows: int) -> dict[str, object]:
    producer = RequestProducer(KafkaConnection(bootstrap))
    say("warming up")
    _append(producer, layout, "warm", 0, 2_000)
    _until(lambda: _rows(url, "warm") == 2_000)
    say(f"a wave of {rows:,}")
    began_ms = boot_ms()
    _append(producer, layout, "wave", 0, rows)
    appended_ms = boot_ms()
    _until(lambda: _rows(url, "wave") == rows)
    ended_ms = boot_ms()
    say("a steady stream")
    lags = _stream(producer, layout, url)
    return {
        "rows": rows,
        "rows_per_second": rows * 1000 / (ended_ms - began_ms),
        "append_seconds": (appended_ms - began_ms) / 1000,
        "lag_after_wave_seconds": (ended_ms - appended_ms) / 1000,
        "stream_rows_per_second": STREAM_RATE,
        "stream_lag_p50_ms": lags[len(lags) // 2],
        "stream_lag_max_ms": lags[-1],
        "missing": rows - _rows(url, "wave"),
    }


def _stream(producer: RequestProducer, layout: Layout, url: str) -> list[float]:
    """How long the last record of each second takes to be a row."""
    lags = []
    for second in range(STREAM_SECONDS):
        began_ms, wanted = boot_ms(), (second + 1) * STREAM_RATE
        _append(producer, layout, "stream", second * STREAM_RATE, STREAM_RATE)
        sent_ms = boot_ms()
        _until(lambda wanted=wanted: _rows(url, "stream") >= wanted)  # type: ignore[misc] # a default of int
        lags.append(boot_ms() - sent_ms)
        pause(1 - (boot_ms() - began_ms) / 1000)
    return sorted(lags)


def _append(producer: RequestProducer, layout: Layout, job: str, start: int, count: int) -> None:
    ids = ((number, f"{job}-{number % 1000}") for number in range(start, start + count))
    append(producer, layout, ((number % SLOTS, f"{each}:{number}", each) for number, each in ids))


def _rows(url: str, job: str) -> int:
    with history_database(url) as database:
        row = database.execute(
            "SELECT count(*) FROM noontide.executions WHERE job_id LIKE %s", (f"{job}-%",)
        ).fetchone()
    return 0 if row is None else int(row[0])


def _until(holds: Callable[[], bool]) -> None:
    until(holds, look_s=LOOK_S, within_s=WITHIN_S, what="the rows did not arrive")


@contextmanager
def _open_folder() -> Iterator[Path]:
    """PostgreSQL runs as another user when we are root, so the folder lets others in."""
    with tempfile.TemporaryDirectory(prefix="noontide-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
