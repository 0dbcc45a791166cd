"""Searches among many jobs of an index on disk: how long until the last page, at the shipped share of a core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from noontide.actors.settings import SchedulerSettings
from noontide.adapters.rocksdb.index import RocksIndex
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.port import wire
from noontide.apps.port.job_pages import JobPages
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.ports.due_index import IndexBatch
from noontide.records import rows
from noontide.records.job_row import encode_job_row
from noontide.records.topics import Layout
from noontide.testing.bench.enqueue import YEAR_MS
from noontide.testing.bench.load import job_id, one_off

WRITE_ROWS = 5_000
ABSENT = "no job says this"
LIMIT = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """jobs: how many, of one process, with a payload of 1 KB each."""

    jobs: int = 1_000_000


def run_search(options: SearchOptions) -> dict[str, object]:
    """Run the bench. No broker is needed."""
    with TemporaryDirectory() as folder:
        layout, index = Layout(), RocksIndex(Path(folder) / "slots", format_id=rows.FORMAT_ID)
        try:
            made = _rows(layout, options.jobs)
            while some := dict(islice(made, WRITE_ROWS)):
                index.write(IndexBatch(puts=cast("dict[bytes, bytes | None]", some)))
            index.checkpoint()
            return asyncio.run(_measured(index, layout, options))
        finally:
            index.close()


async def _measured(index: RocksIndex, layout: Layout, options: SearchOptions) -> dict[str, object]:
    pages = JobPages(layout, lambda _slot: (cast("Any", SimpleNamespace()), index), SchedulerSettings())
    began_s, spent_s = time.perf_counter(), time.process_time()
    scanned = count = 0
    async for found in _all_pages(pages, layout, wire.JobFilter(text=ABSENT)):
        scanned += found.scanned
        count += 1
    seconds, spent_s = time.perf_counter() - began_s, time.process_time() - spent_s
    asked_s = time.perf_counter()
    prefix = job_id("search", options.jobs - 1)[:-1]
    last = await pages.of(_page(layout, wire.JobFilter(), prefix=prefix))
    return {
        "jobs": options.jobs,
        "looked_at": scanned,
        "seconds": seconds,
        "cpu_seconds": spent_s,
        "us_per_job": 1e6 * spent_s / options.jobs,
        "pages": count,
        "longest_piece_ms": 1_000 * pages.longest_s,
        "prefix_ms": 1_000 * (time.perf_counter() - asked_s),
        "prefix_found": len(last.jobs),
    }


async def _all_pages(pages: JobPages, layout: Layout, wanted: wire.JobFilter) -> AsyncIterator[wire.FoundJobs]:
    after: str | None = ""
    while after is not None:
        found = await pages.of(_page(layout, wanted, after=after))
        yield found
        after = found.reached


def _page(layout: Layout, wanted: wire.JobFilter, *, after: str = "", prefix: str = "") -> wire.JobPage:
    return wire.JobPage(slots=list(range(layout.slots)), after=after, limit=LIMIT, filter=wanted, prefix=prefix)


def _rows(layout: Layout, jobs: int) -> Iterator[tuple[bytes, bytes]]:
    """Rows that differ in their numbers, which are as long as each other: one is made, the others from its bytes."""
    now_ms = wall_now_ms()
    key, document = one_off("search", 123_456_789, now_ms + YEAR_MS)
    context = DefinitionContext(key=key.decode(), tenant=None, created_ms=now_ms)
    definition = parse_definition(document, context=context)
    model = encode_job_row(definition.job, definition.document, etag="api-0-1", created_ms=now_ms)
    for number in range(jobs):
        name = job_id("search", number).encode()
        yield rows.job_key(layout.partition_of(name), name), model.replace(b"123456789", b"%09d" % number)
