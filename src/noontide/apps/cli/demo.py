"""`noontide demo`: a broker, a scheduler and jobs, to be watched; at the end every run is checked."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noontide.apps.cli.common import REFUSED, Cluster, Fault, guarded
from noontide.apps.cli.tables import note, show_json

if TYPE_CHECKING:
    from noontide.testing.checker import Report

ONCE_S = 15.0


@click.command()
@click.option("--once", is_flag=True, help=f"End by itself, after {ONCE_S:.0f} seconds of running jobs.")
@click.option("--seconds", type=click.FloatRange(1), help="End by itself after so many seconds of running jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON at the end; the rest goes to stderr.")
@click.option("--bootstrap", help="Use these brokers instead of starting one; topics begin with noontide-demo. there.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep everything here.  [default: gone]")
def demo(once: bool, seconds: float | None, as_json: bool, bootstrap: str | None, data: Path | None) -> None:  # noqa: FBT001 - options of click
    """See jobs run at their times.

    Starts a real Kafka broker on this machine (its jars are downloaded the first time), a scheduler process and some
    twenty jobs. Ctrl-C ends it; then every run is checked against what its schedule says.
    """
    length_s = seconds if seconds is not None else ONCE_S if once else None
    cluster = Cluster() if bootstrap is None else Cluster(bootstrap=bootstrap)
    with _ending_on_sigterm(), _folder(data) as folder:
        report = guarded(_perform, cluster)(folder, bootstrap, length_s, as_json=as_json)
    from noontide.apps.demo import score

    if as_json:
        show_json(score.as_json(report))
    else:
        click.echo("\n".join(score.as_text(report)))
    if not report.ok:
        raise SystemExit(REFUSED)


def _perform(folder: Path, bootstrap: str | None, length_s: float | None, *, as_json: bool) -> Report:
    """Everything between the first line and the summary; what was started has ended when this returns."""
    from noontide.apps.demo import show, stage
    from noontide.testing.checker import check

    say: Callable[[str], None] = note if as_json else click.echo
    on_screen = sys.stdout.isatty() and not as_json
    with stage.set_up(bootstrap, folder, say) as where:
        with show.Audience(where) as audience, stage.scheduler(where):
            audience.board.jobs = stage.put_jobs(where)
            say(f"A scheduler runs, {audience.board.jobs} jobs are accepted.\n")
            show.play(audience, seconds=length_s, title="noontide demo", lines=None if on_screen else say)
        if not audience.board.runs:
            raise Fault(f"no run arrived: {stage.last_words(where)}")
        say("Stopped; checking every run ...")
        return check(where.cluster.connection(), where.layout, until_ms=audience.board.latest_ms)


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="noontide-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as an error does, so that everything it started is stopped."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
