"""`bench dashboard`: what people see who look and search among many jobs, and what that does to runs due meanwhile.

A stream of jobs is due all the time. In its first part nobody looks; in the second a real browser opens pages; in the
third some people search for what is not there, one search after another, which looks at every job.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from noontide.adapters.system_clock import wall_now_ms
from noontide.testing.bench.api import api_of
from noontide.testing.bench.arrivals import Arrival, Watch, Watcher
from noontide.testing.bench.enqueue import SPREAD_MS, YEAR_MS
from noontide.testing.bench.lag import LagOptions, Stream, begin_stream, define_meanwhile
from noontide.testing.bench.load import TO_TOPIC, enqueue, number_of, one_off
from noontide.testing.bench.measure import percentiles
from noontide.testing.bench.report import say
from noontide.testing.bench.stage import set_stage
from noontide.testing.bench.warmup import drained, warm_up

DRAIN_S: Final = 30.0
ABSENT: Final = "no job says this"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
_PAINT: Final = """async () => {
  const paints = performance.getEntriesByType('paint');
  return paints.find((each) => each.name === 'first-contentful-paint')?.startTime ?? null;
}"""
_TASKS: Final = """() => {
  window.longest = 0;
  const note = (list) => list.getEntries().forEach((each) => {
    window.longest = Math.max(window.longest, each.duration);
  });
  new PerformanceObserver(note).observe({ type: 'longtask', buffered: true });
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """jobs: that are not due; rate: jobs due per second; seconds: of each part; searchers: who search at once."""

    jobs: int = 1_000_000
    rate: int = 1_000
    seconds: int = 15
    searchers: int = 4


@dataclass(slots=True)
class _Seen:
    """What was measured beside the stream."""

    pages: dict[str, float] = field(default_factory=dict)
    looks: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    scanned: int = 0
    problems: list[str] = field(default_factory=list)


def run_dashboard(options: DashboardOptions) -> dict[str, object]:
    """Run the bench; lateness is that of arrival at a read_committed consumer."""
    os.environ["NOONTIDE_INTERNAL_SECRET"] = secrets.token_urlsafe()
    first_ms = wall_now_ms() + YEAR_MS
    step_ms = max(1, SPREAD_MS // options.jobs)
    with set_stage(extra=("--internal-host", "127.0.0.1")) as stage, api_of(stage) as (url, meter):
        warm_up(stage)
        jobs = (one_off("far", number, first_ms + number * step_ms) for number in range(options.jobs))
        enqueue(stage, jobs, expected=options.jobs, say=say)
        lag = LagOptions(rate=options.rate, seconds=3 * options.seconds, settle_s=15)
        stream = begin_stream(stage, lag, target=TO_TOPIC)
        costs, seen = stage.costs(), _Seen()
        watch = Watch.from_end(stage.connection, stage.target, expected=lag.jobs, wants_each=True)
        with Watcher(watch) as watcher, _beside(stream, options, url, seen):
            define_meanwhile(stage, stream, costs)
            arrivals = drained(stage, watcher, timeout_s=DRAIN_S).arrivals
        return {
            "jobs": options.jobs,
            "rate": options.rate,
            **_lateness(stream, arrivals, options),
            **seen.pages,
            "search_all_seconds": min(seen.passes, default=None),
            "search_jobs_per_second": round(seen.scanned / options.seconds),
            "search_page_p99_ms": percentiles(sorted(round(1000 * each) for each in seen.looks)).get("p99_ms"),
            "problems": len(seen.problems),
            "first_problem": next(iter(seen.problems), None),
            **costs.cores(),
            "cpu_api": meter.cores(),
            "missing": lag.jobs - len(arrivals),
            "warnings": len(stage.scheduler.warnings()),
        }


@contextmanager
def _beside(stream: Stream, options: DashboardOptions, url: str, seen: _Seen) -> Iterator[None]:
    """Threads that look and search while the stream runs, each in its part."""
    start_s = time.monotonic() + (stream.start_ms - wall_now_ms()) / 1000 + stream.options.settle_s
    part_s = options.seconds

    def look() -> None:
        _look(url, start_s + part_s, start_s + 2 * part_s, seen)

    def search() -> None:
        _search(url, start_s + 2 * part_s, start_s + 3 * part_s, seen)

    acts = [look, *[search] * options.searchers]
    threads = [threading.Thread(target=_guarded, args=(seen, act)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


def _guarded(seen: _Seen, act: Callable[[], None]) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - a figure of the report
        seen.problems.append(f"{type(error).__name__}: {error}"[:300])


def _wait_until(at_s: float) -> None:
    threading.Event().wait(max(0.0, at_s - time.monotonic()))


def _search(url: str, begin_s: float, until_s: float, seen: _Seen) -> None:
    """Searches that find nothing, one after another."""
    with httpx.Client(base_url=url, timeout=30) as client:
        client.get("/v1/meta")
        _wait_until(begin_s)
        began_s, cursor = time.monotonic(), None
        while time.monotonic() < until_s:
            asked_s = time.monotonic()
            page = client.get(
                "/v1/jobs", params={"text": ABSENT, "limit": 25, **({"cursor": cursor} if cursor else {})}
            )
            found = page.raise_for_status().json()
            seen.looks.append(time.monotonic() - asked_s)
            seen.scanned += found["scanned"]
            cursor = found["next_cursor"]
            if cursor is None:
                seen.passes.append(time.monotonic() - began_s)
                began_s = time.monotonic()


def _look(url: str, begin_s: float, until_s: float, seen: _Seen) -> None:
    """A browser opens the overview and the list of jobs, and searches; then it stays on the overview."""
    import shutil

    from playwright.sync_api import sync_playwright  # of the development tools: this bench is for a checkout

    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[] if os.geteuid() else ["--no-sandbox"])
        page: Any = browser.new_context().new_page()
        page.set_default_timeout(20_000)
        _wait_until(begin_s)
        for name, at, shown in (
            ("overview", "/#/", ".figures"), ("jobs", "/#/jobs", "tbody tr"),
            ("prefix", "/#/jobs?text=far-order-reminder-000000000", ".begins"),
        ):  # fmt: skip
            page.goto("about:blank")
            began_s = time.monotonic()
            page.goto(url + at)
            page.locator(shown).first.wait_for()
            seen.pages[f"{name}_shown_ms"] = round((time.monotonic() - began_s) * 1000)
            seen.pages[f"{name}_first_paint_ms"] = round(page.evaluate(_PAINT) or 0)
        page.goto("about:blank")
        page.goto(f"{url}/#/")
        page.evaluate(_TASKS)
        page.wait_for_timeout(max(0.0, until_s - time.monotonic()) * 1000)
        seen.pages["longest_task_ms"] = round(page.evaluate("window.longest"))
        browser.close()


def _lateness(stream: Stream, arrivals: list[Arrival], options: DashboardOptions) -> dict[str, object]:
    """Percentiles of lateness in each of the three parts."""
    found: dict[str, object] = {}
    numbered = [(number_of(each.key), each) for each in arrivals]
    for part, name in enumerate(("quiet_", "looked_at_", "searched_")):
        first = stream.options.first + part * options.rate * options.seconds
        mine = [
            each.arrived_ms - stream.due_ms(number)
            for number, each in numbered
            if first <= number < first + options.rate * options.seconds
        ]
        found |= percentiles(sorted(mine), prefix=name)
    return found
