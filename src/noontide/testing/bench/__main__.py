"""`python -m noontide.testing.bench`: the benches, one command each."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import click

from noontide.core.errors import NoontideError
from noontide.testing.bench.api import ApiOptions, run_api_bench
from noontide.testing.bench.dashboard import DashboardOptions, run_dashboard
from noontide.testing.bench.enqueue import EnqueueOptions, run_enqueue
from noontide.testing.bench.failover import FailoverOptions, run_failover
from noontide.testing.bench.flood import FloodOptions, run_flood
from noontide.testing.bench.forecast import ForecastOptions, run_forecast
from noontide.testing.bench.handler_lag import run_handler_lag
from noontide.testing.bench.handler_wave import HandlerWaveOptions, run_handler_wave
from noontide.testing.bench.heartbeats import HeartbeatsOptions, run_heartbeats
from noontide.testing.bench.held import HeldOptions, run_held
from noontide.testing.bench.http import run_http
from noontide.testing.bench.idle import IdleOptions, run_idle
from noontide.testing.bench.lag import LagOptions, run_lag
from noontide.testing.bench.limits import LimitsOptions, run_limits
from noontide.testing.bench.report import one_line, table
from noontide.testing.bench.restore import RestoreOptions, run_restore
from noontide.testing.bench.search import SearchOptions, run_search
from noontide.testing.bench.wave import WaveOptions, run_wave
from noontide.testing.bench.workers import CONCURRENCY, KINDS

Figures = dict[str, object]
MUST_BE_ZERO: Final = (
    "duplicates", "missing", "foreign", "cursors_wrong", "expired", "lost", "a_over_cap", "over_cap",
    "leaked_permits", "b_missing", "duplicate_claims",
    "failed", "not_read_back",
)  # fmt: skip

_BENCHES: dict[str, Callable[[], Figures]] = {
    "wave": lambda: run_wave(WaveOptions(jobs=100_000)),
    "recurring": lambda: run_wave(WaveOptions(jobs=100_000, recurring=True)),
    "lag": lambda: run_lag(LagOptions(rate=1_000, seconds=15)),
    "handler_wave": lambda: run_handler_wave(HandlerWaveOptions(jobs=100_000)),
    "handler_lag": lambda: run_handler_lag(LagOptions(rate=1_000, seconds=15), kind=KINDS[0], concurrency=CONCURRENCY),
    "http": lambda: run_http(LagOptions(rate=500, seconds=15, settle_s=10)),
    "flood": lambda: run_flood(FloodOptions()),
    "limits": lambda: run_limits(LimitsOptions()),
    "heartbeats": lambda: run_heartbeats(HeartbeatsOptions()),
    "api": lambda: run_api_bench(ApiOptions()),
    "enqueue": lambda: run_enqueue(EnqueueOptions(jobs=200_000)),
    "idle": lambda: run_idle(IdleOptions(jobs=1_000_000, seconds=30)),
    "restore": lambda: run_restore(RestoreOptions(jobs=1_000_000)),
    "failover": lambda: run_failover(FailoverOptions(jobs=1_000_000)),
}

as_json = click.option("--json/--no-json", "as_json", default=False, help="Print one line of JSON, last.")


def for_handlers(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--target`, and what can be said about a worker."""
    target = click.option(
        "--target", type=click.Choice(["topic", "handler"]), default="topic", show_default=True, help="Where runs go."
    )
    kind = click.option(
        "--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="What the handler is."
    )
    concurrency = click.option(
        "--concurrency", type=click.IntRange(1), default=CONCURRENCY, show_default=True, help="Of the one worker."
    )
    return target(kind(concurrency(command)))


def jobs_of(default: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--jobs`."""
    return click.option("--jobs", default=default, show_default=True, type=click.IntRange(1), help="How many.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure the scheduler on this machine: a real broker and `noontide scheduler` with its shipped defaults.

    Each bench makes its own stage in a temporary folder and removes it. What was lost or doubled is counted from the
    topics; a bench that finds such a thing prints its figures and exits with 1.
    """
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signum: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


@main.command()
@jobs_of(100_000)
@click.option("--recurring", is_flag=True, help="Half cron, half interval jobs instead of one-off ones.")
@for_handlers
@click.option("--lead", type=float, default=None, help="Seconds between the start of enqueueing and the instant.")
@as_json
def wave(jobs: int, recurring: bool, lead: float | None, as_json: bool, **handlers: Any) -> None:  # noqa: FBT001
    """Many jobs due at one instant, until a read_committed consumer has the last, or the last handler has started."""
    if handlers.pop("target") == "handler":
        if recurring:
            raise click.UsageError("--recurring is for the target topic")
        options = HandlerWaveOptions(jobs=jobs, lead_s=lead, **handlers)
        _run("wave of handlers", lambda: run_handler_wave(options), as_json=as_json)
    else:
        _run("wave", lambda: run_wave(WaveOptions(jobs=jobs, recurring=recurring, lead_s=lead)), as_json=as_json)


@main.command()
@jobs_of(100_000)
@as_json
def forecast(jobs: int, as_json: bool) -> None:  # noqa: FBT001
    """The runs of the next day out of the index of one slot: processor time per job. Needs no broker."""
    _run("forecast", lambda: run_forecast(ForecastOptions(jobs=jobs)), as_json=as_json)


@main.command()
@click.option("--rate", default=1_000, show_default=True, type=click.IntRange(1), help="Jobs due per second.")
@click.option("--seconds", default=15, show_default=True, type=click.IntRange(1), help="For how long.")
@click.option("--settle", default=60, show_default=True, type=click.IntRange(0), help="Seconds of it before that.")
@click.option("--slots", default=8, show_default=True, type=click.IntRange(1, 64), help="Slots of the one scheduler.")
@for_handlers
@as_json
def lag(rate: int, seconds: int, settle: int, slots: int, as_json: bool, **handlers: Any) -> None:  # noqa: FBT001
    """A steady stream of jobs: arrival at a consumer, or start of a handler, minus due. Half are defined meanwhile."""
    options = LagOptions(rate=rate, seconds=seconds, settle_s=settle, slots=slots)
    if handlers.pop("target") == "handler":
        _run("lag of handlers", lambda: run_handler_lag(options, **handlers), as_json=as_json)
    else:
        _run("lag", lambda: run_lag(options), as_json=as_json)


@main.command()
@click.option("--rate", default=500, show_default=True, type=click.IntRange(1), help="Requests due per second.")
@click.option("--seconds", default=15, show_default=True, type=click.IntRange(1), help="For how long.")
@click.option("--settle", default=10, show_default=True, type=click.IntRange(0), help="Seconds of it before that.")
@as_json
def http(rate: int, seconds: int, settle: int, as_json: bool) -> None:  # noqa: FBT001
    """A steady stream of HTTP targets on a server of this machine: arrival of the request minus due."""
    _run("http", lambda: run_http(LagOptions(rate=rate, seconds=seconds, settle_s=settle)), as_json=as_json)


@main.command()
@click.option("--runs", default=14_000, show_default=True, type=click.IntRange(1), help="Held at the same time.")
@click.option("--workers", default=280, show_default=True, type=click.IntRange(1), help="Workers that hold them.")
@click.option("--processes", default=0, type=click.IntRange(0), help="Real worker processes instead; 0 = none.")
@click.option("--seconds", default=60, show_default=True, type=click.IntRange(1), help="For how long.")
@as_json
def heartbeats(runs: int, workers: int, processes: int, seconds: int, as_json: bool) -> None:  # noqa: FBT001
    """Runs that are held by many workers: what their heartbeats cost the owner, and that none is taken for lost."""
    if processes:
        held = HeldOptions(runs=runs, processes=processes, seconds=seconds)
        _run("heartbeats", lambda: run_held(held), as_json=as_json)
        return
    options = HeartbeatsOptions(runs=runs, workers=workers, seconds=seconds)
    _run("heartbeats", lambda: run_heartbeats(options), as_json=as_json)


@main.command()
@click.option("--runs", default=200_000, show_default=True, type=click.IntRange(1), help="Runs of the flood, 1 s each.")
@click.option("--cap", default=500, show_default=True, type=click.IntRange(1), help="Of its tenant.")
@click.option("--rate", default=10, show_default=True, type=click.IntRange(1), help="Runs per second of the other.")
@click.option("--places", default=1_000, show_default=True, type=click.IntRange(1), help="Of the one worker.")
@click.option("--seconds", default=60, show_default=True, type=click.IntRange(1), help="How long it is watched.")
@as_json
def flood(as_json: bool, **options: int) -> None:  # noqa: FBT001
    """One tenant with far more runs than its cap beside another with a few each second: is anybody late?"""
    _run("flood", lambda: run_flood(FloodOptions(**options)), as_json=as_json)


@main.command()
@click.option("--runs", default=20_000, show_default=True, type=click.IntRange(1), help="All due at one instant.")
@click.option("--cap", default=1_000, show_default=True, type=click.IntRange(0), help="Of their tenant; 0 = none.")
@click.option("--places", default=1_000, show_default=True, type=click.IntRange(1), help="Of the one worker.")
@as_json
def limits(as_json: bool, **options: int) -> None:  # noqa: FBT001
    """Permits per second: runs of a capped tenant that take no time."""
    _run("limits", lambda: run_limits(LimitsOptions(**options)), as_json=as_json)


@main.command()
@jobs_of(200_000)
@as_json
def enqueue(jobs: int, as_json: bool) -> None:  # noqa: FBT001
    """Definitions accepted and indexed per second."""
    _run("enqueue", lambda: run_enqueue(EnqueueOptions(jobs=jobs)), as_json=as_json)


@main.command()
@click.option("--seconds", default=10.0, show_default=True, help="Of each part.")
@click.option("--connections", default=256, show_default=True, type=click.IntRange(1), help="That ask at once.")
@click.option("--rate", default=500, show_default=True, type=click.IntRange(1), help="Creates per second for the p99.")
@as_json
def api(seconds: float, connections: int, rate: int, as_json: bool) -> None:  # noqa: FBT001
    """Creates (flat out, and their time at a rate), reads and batches over HTTP."""
    options = ApiOptions(seconds=seconds, connections=connections, rate=rate)
    _run("api", lambda: run_api_bench(options), as_json=as_json)


@main.command()
@jobs_of(1_000_000)
@click.option("--rate", default=1_000, show_default=True, type=click.IntRange(1), help="Jobs due per second meanwhile.")
@click.option("--seconds", default=15, show_default=True, type=click.IntRange(1), help="Of each part.")
@as_json
def dashboard(jobs: int, rate: int, seconds: int, as_json: bool) -> None:  # noqa: FBT001
    """Nobody looks; a browser opens pages; people search: first paints, times of searches, and how late runs are."""
    options = DashboardOptions(jobs=jobs, rate=rate, seconds=seconds)
    _run("dashboard", lambda: run_dashboard(options), as_json=as_json)


@main.command()
@jobs_of(1_000_000)
@as_json
def search(jobs: int, as_json: bool) -> None:  # noqa: FBT001
    """A search that finds nothing among all jobs of a process, and ids by their beginning; no broker."""
    _run("search", lambda: run_search(SearchOptions(jobs=jobs)), as_json=as_json)


@main.command()
@jobs_of(1_000_000)
@as_json
def restore(jobs: int, as_json: bool) -> None:  # noqa: FBT001
    """Seconds until a fresh scheduler owns and fires all jobs: after a clean stop, kill -9, and from the log alone."""
    _run("restore", lambda: run_restore(RestoreOptions(jobs=jobs)), as_json=as_json)


@main.command()
@jobs_of(1_000_000)
@click.option("--rate", default=500, show_default=True, type=click.IntRange(64), help="Dispatches per second.")
@click.option("--session", default=6_000, show_default=True, type=click.IntRange(1_000), help="Session timeout, ms.")
@as_json
def failover(jobs: int, rate: int, session: int, as_json: bool) -> None:  # noqa: FBT001
    """Two schedulers under load: SIGTERM to one, then kill -9 to the other; for how long nothing was dispatched."""
    options = FailoverOptions(jobs=jobs, rate=rate, session_ms=session)
    _run("failover", lambda: run_failover(options), as_json=as_json)


@main.command()
@jobs_of(1_000_000)
@click.option("--seconds", default=30, show_default=True, type=click.IntRange(1), help="How long to measure.")
@as_json
def idle(jobs: int, seconds: int, as_json: bool) -> None:  # noqa: FBT001
    """What the scheduler and the broker cost while nothing is due."""
    _run("idle", lambda: run_idle(IdleOptions(jobs=jobs, seconds=seconds)), as_json=as_json)


@main.command()
@click.option("--rows", default=100_000, show_default=True, type=click.IntRange(1), help="Executions of the wave.")
@as_json
def history(rows: int, as_json: bool) -> None:  # noqa: FBT001
    """Executions into PostgreSQL by Kafka Connect: a wave, then a steady stream."""
    from noontide.testing.bench.history import HistoryOptions, run_history  # needs the extra `history`

    _run("history", lambda: run_history(HistoryOptions(rows=rows)), as_json=as_json)


@main.command()
@jobs_of(100_000)
@as_json
def agents(jobs: int, as_json: bool) -> None:  # noqa: FBT001
    """Executions of as many jobs into the tables of the agents: how far behind they are after a wave."""
    from noontide.testing.bench.agents import AgentsOptions, run_agents_bench  # needs the extra `agents`

    _run("agents", lambda: run_agents_bench(AgentsOptions(jobs=jobs)), as_json=as_json)


@main.command("all")
@click.argument("names", nargs=-1, type=click.Choice(tuple(_BENCHES)))
@as_json
def every(names: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Several benches with their defaults, one after the other; all of them when none is named."""
    _run("all", lambda: {name: _BENCHES[name]() for name in names or _BENCHES}, as_json=as_json)


def _run(name: str, bench: Callable[[], Figures], *, as_json: bool) -> None:
    try:
        figures = bench()
    except NoontideError as error:
        raise click.ClickException(str(error)) from error
    click.echo(one_line(figures) if as_json else table(name, figures))
    if faults(figures):
        sys.exit(1)


def faults(figures: Figures) -> list[str]:
    """Names of the counts that must be zero and are not, in nested figures too."""
    nested = [name for value in figures.values() if isinstance(value, dict) for name in faults(value)]
    return nested + [name for name in MUST_BE_ZERO if figures.get(name)]


if __name__ == "__main__":
    main()
