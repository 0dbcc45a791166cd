"""`python -m noontide.testing.bench`: the benches, one command each."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import click

from noontide.core.errors import NoontideError
from noontide.testing.bench.enqueue import EnqueueOptions, run_enqueue
from noontide.testing.bench.idle import IdleOptions, run_idle
from noontide.testing.bench.lag import LagOptions, run_lag
from noontide.testing.bench.report import one_line, table
from noontide.testing.bench.restore import RestoreOptions, run_restore
from noontide.testing.bench.wave import WaveOptions, run_wave

Figures = dict[str, object]
MUST_BE_ZERO: Final = ("duplicates", "missing", "foreign", "cursors_wrong")

_BENCHES: dict[str, Callable[[], Figures]] = {
    "wave": lambda: run_wave(WaveOptions(jobs=100_000)),
    "recurring": lambda: run_wave(WaveOptions(jobs=100_000, recurring=True)),
    "lag": lambda: run_lag(LagOptions(rate=1_000, seconds=15)),
    "enqueue": lambda: run_enqueue(EnqueueOptions(jobs=200_000)),
    "idle": lambda: run_idle(IdleOptions(jobs=1_000_000, seconds=30)),
    "restore": lambda: run_restore(RestoreOptions(jobs=1_000_000)),
}

as_json = click.option("--json/--no-json", "as_json", default=False, help="Print one line of JSON, last.")


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
@click.option("--target", type=click.Choice(["topic"]), default="topic", show_default=True, help="Where runs go.")
@click.option("--lead", type=float, default=None, help="Seconds between the start of enqueueing and the instant.")
@as_json
def wave(jobs: int, recurring: bool, target: str, lead: float | None, as_json: bool) -> None:  # noqa: FBT001
    """Many jobs due at one instant, until a read_committed consumer has the last."""
    _run("wave", lambda: run_wave(WaveOptions(jobs=jobs, recurring=recurring, lead_s=lead)), as_json=as_json)


@main.command()
@click.option("--rate", default=1_000, show_default=True, type=click.IntRange(1), help="Jobs due per second.")
@click.option("--seconds", default=15, show_default=True, type=click.IntRange(1), help="For how long.")
@click.option("--settle", default=15, show_default=True, type=click.IntRange(0), help="Seconds of it before that.")
@as_json
def lag(rate: int, seconds: int, settle: int, as_json: bool) -> None:  # noqa: FBT001
    """A steady stream of jobs: arrival at a consumer minus due. Half are defined while it runs."""
    _run("lag", lambda: run_lag(LagOptions(rate=rate, seconds=seconds, settle_s=settle)), as_json=as_json)


@main.command()
@jobs_of(200_000)
@as_json
def enqueue(jobs: int, as_json: bool) -> None:  # noqa: FBT001
    """Definitions accepted and indexed per second."""
    _run("enqueue", lambda: run_enqueue(EnqueueOptions(jobs=jobs)), as_json=as_json)


@main.command()
@jobs_of(1_000_000)
@as_json
def restore(jobs: int, as_json: bool) -> None:  # noqa: FBT001
    """Seconds until a fresh scheduler owns and fires all jobs: after a clean stop, kill -9, and from the log alone."""
    _run("restore", lambda: run_restore(RestoreOptions(jobs=jobs)), as_json=as_json)


@main.command()
@jobs_of(1_000_000)
@click.option("--seconds", default=30, show_default=True, type=click.IntRange(1), help="How long to measure.")
@as_json
def idle(jobs: int, seconds: int, as_json: bool) -> None:  # noqa: FBT001
    """What the scheduler and the broker cost while nothing is due."""
    _run("idle", lambda: run_idle(IdleOptions(jobs=jobs, seconds=seconds)), as_json=as_json)


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
