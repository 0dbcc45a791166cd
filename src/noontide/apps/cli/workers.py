"""`noontide workers`: who runs what, read from `leases`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from noontide.apps.cli.common import Cluster, broker_options, json_option
from noontide.apps.cli.spans import words
from noontide.apps.cli.tables import show_json, show_table, utc
from noontide.apps.shares import stage_of

if TYPE_CHECKING:
    from noontide.core.run import Run

OLDEST_SHOWN: Final = 10
WORKER_HEADS: Final = ("worker", "runs", "oldest since (UTC)", "for", "lanes")
LANE_HEADS: Final = ("lane", "ready", "queued", "running", "open", "waiting")
RUN_HEADS: Final = ("running since (UTC)", "for", "attempt", "worker", "run", "target")
_COUNTS: Final = LANE_HEADS[1:]


class Busy(NamedTuple):
    """A worker that holds runs. oldest_ms: the earliest grant among them."""

    worker: str
    runs: int
    oldest_ms: int
    lanes: tuple[str, ...]


@click.command()
@json_option
@broker_options
def workers(as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Show who runs what: workers with runs, what waits in each lane, and the runs that have run longest.

    A worker that is silent keeps its runs until their lease ends; they are then among the longest.
    """
    from noontide.adapters.system_clock import wall_now_ms
    from noontide.apps.cli.reading import Reader

    reader = Reader(connection=cluster.connection(), layout=cluster.layout())
    found = [run for run in reader.leases(range(reader.layout.slots)) if run.lane]
    if as_json:
        show_json(_as_json(found))
    else:
        _show(found, wall_now_ms())


def busy_workers(runs: Iterable[Run]) -> list[Busy]:
    """Workers that hold runs, the one with the oldest first."""
    held: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.worker is not None and run.state == "running":
            held[run.worker].append(run)
    found = [
        Busy(worker, len(its), min(run.granted_ms for run in its), tuple(sorted({run.lane for run in its})))
        for worker, its in held.items()
    ]
    return sorted(found, key=lambda busy: (busy.oldest_ms, busy.worker))


def lane_counts(runs: Iterable[Run]) -> dict[str, Counter[str]]:
    """How many runs of each lane are ready, queued, running, open (their target completes them), or waiting."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        counts[run.lane][_stage(run)] += 1
    return dict(sorted(counts.items()))


def _stage(run: Run) -> str:
    stage = stage_of(run)
    return "open" if stage == "running" and run.worker is None else stage


def longest(runs: Iterable[Run]) -> list[Run]:
    """Running runs by age, at most ten."""
    running = (run for run in runs if run.state == "running")
    return sorted(running, key=lambda run: (run.granted_ms, run.run_id))[:OLDEST_SHOWN]


def _show(found: Sequence[Run], now_ms: int) -> None:
    def age(since_ms: int) -> str:
        return words(max(now_ms - since_ms, 0))

    busy = busy_workers(found)
    rows = ((b.worker, str(b.runs), utc(b.oldest_ms), age(b.oldest_ms), ", ".join(b.lanes)) for b in busy)
    show_table(WORKER_HEADS, rows, empty="no worker has a run")
    click.echo()
    lanes = ((lane, *(str(counts[name]) for name in _COUNTS)) for lane, counts in lane_counts(found).items())
    show_table(LANE_HEADS, lanes, empty="no live runs in any lane")
    if oldest := longest(found):
        click.echo()
        show_table(RUN_HEADS, (_row(run, age(run.granted_ms)) for run in oldest), empty="")


def _row(run: Run, age: str) -> tuple[str, ...]:
    return utc(run.granted_ms), age, str(run.attempt), run.worker or "(its target)", run.run_id, run.target


def _as_json(found: Sequence[Run]) -> dict[str, object]:
    names = ("run_id", "worker", "granted_ms", "attempt", "token", "lane", "target")
    return {
        "workers": [busy._asdict() for busy in busy_workers(found)],
        "lanes": [
            {"lane": lane, **{name: counts[name] for name in _COUNTS}} for lane, counts in lane_counts(found).items()
        ],
        "longest": [{name: getattr(run, name) for name in names} for run in longest(found)],
    }
