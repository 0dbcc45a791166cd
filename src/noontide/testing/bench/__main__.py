"""`python -m noontide.testing.bench`: the benches, one command each."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from noontide.core.errors import NoontideError
from noontide.testing.bench.report import one_line, table
from noontide.testing.bench.wave import WaveOptions, run_wave

Figures = dict[str, object]

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


def _run(name: str, bench: Callable[[], Figures], *, as_json: bool) -> None:
    try:
        figures = bench()
    except NoontideError as error:
        raise click.ClickException(str(error)) from error
    click.echo(one_line(figures) if as_json else table(name, figures))
    if faults(figures):
        sys.exit(1)


def faults(figures: dict[str, Any]) -> list[str]:
    """Names of the counts that must be zero and are not."""
    zero = ("duplicates", "missing", "foreign", "cursors_wrong")
    return [name for name in zero if figures.get(name)]


if __name__ == "__main__":
    main()
