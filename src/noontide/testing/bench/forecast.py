"""A forecast of many jobs from an index on disk: processor time per job, and the longest piece without a rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from noontide.actors.next_cursor import Terms, cursor_after
from noontide.actors.settings import SchedulerSettings
from noontide.adapters.rocksdb.index import RocksIndex
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.port.forecasts import Forecasts, Outlook
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.ports.due_index import IndexBatch
from noontide.records import rows
from noontide.records.config import ConfigView
from noontide.records.job_row import encode_job_row
from noontide.records.topics import Layout

MINUTE_MS, DAY_MINUTES = 60_000, 1_440
WRITE_ROWS = 5_000
_SCHEDULES = ('"{minute} {hour} * * *"', '"{minute} * * * *"', '"*/5 * * * *"', '{{"every":"PT10M"}}')


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """jobs: how many, of one slot; daily, hourly, every five and every ten minutes, of 20 tenants, a tenth exact."""

    jobs: int = 100_000


def run_forecast(options: ForecastOptions) -> dict[str, object]:
    """Run the bench. No broker is needed."""
    with TemporaryDirectory() as folder:
        index = RocksIndex(Path(folder) / "slot", format_id=rows.FORMAT_ID)
        try:
            layout = Layout(partitions=8, slots=1)
            _fill(index, layout, options.jobs)
            return _measured(index, layout, options)
        finally:
            index.close()


def _measured(index: RocksIndex, layout: Layout, options: ForecastOptions) -> dict[str, object]:
    slot = SimpleNamespace(config=ConfigView())
    settings = replace(SchedulerSettings(), forecast_cpu_percent=100)
    forecasts = Forecasts(layout, lambda _slot: (cast("Any", slot), index), settings)
    began_s = time.process_time()
    outlook = asyncio.run(_made(forecasts))
    seconds = time.process_time() - began_s
    runs = sum(sum(series.runs) for series in outlook.book.groups.values())
    return {
        "jobs": options.jobs,
        "looked_at": outlook.book.jobs,
        "runs": runs,
        "cpu_seconds": seconds,
        "us_per_job": 1e6 * seconds / options.jobs,
        "longest_piece_ms": 1_000 * forecasts.longest_s,
        "groups": len(outlook.book.groups),
    }


async def _made(forecasts: Forecasts) -> Outlook:
    now_ms = wall_now_ms() // MINUTE_MS * MINUTE_MS
    while True:
        found = await forecasts.of([0], from_ms=now_ms, minutes=DAY_MINUTES)
        if found:
            return found[0]


def _fill(index: RocksIndex, layout: Layout, jobs: int) -> None:
    batch = IndexBatch()
    for key, value in _rows(layout, jobs):
        batch.puts[key] = value
        if len(batch.puts) >= WRITE_ROWS:
            index.write(batch)
            batch = IndexBatch()
    index.write(batch)
    index.checkpoint()


def _rows(layout: Layout, jobs: int) -> Iterator[tuple[bytes, bytes]]:
    now_ms, terms = wall_now_ms(), Terms(ConfigView(), 1)
    for number in range(jobs):
        job_id = f"job-{number:08d}"
        schedule = _SCHEDULES[number % len(_SCHEDULES)].format(minute=number % 60, hour=number // 60 % 24)
        timing = "exact" if number % 10 == 0 else "relaxed"
        document = (
            f'{{"schedule":{schedule},"target":"handler:h{number % 5}","tenant":"t{number % 20}","timing":"{timing}"}}'
        )
        context = DefinitionContext(key=job_id, tenant=None, created_ms=now_ms)
        definition = parse_definition(document.encode(), context=context)
        cursor = cursor_after(definition.job, None, None, at_ms=now_ms, terms=terms)
        partition, key = layout.partition_of(job_id), job_id.encode()
        yield (
            rows.job_key(partition, key),
            encode_job_row(definition.job, definition.document, etag="api-0-1", created_ms=now_ms),
        )
        due = rows.due_row_of(partition, key, cursor)
        if due is not None:
            yield due
