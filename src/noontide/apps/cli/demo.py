"""`noontide demo`: a broker, a scheduler, a worker and jobs, to be watched; at the end every run is checked."""

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
    from noontide.apps.demo.board import Board
    from noontide.testing.checker import Report

ONCE_S = 15.0
ONCE_KILL_S = 24.0


@click.command()
@click.option(
    "--once", is_flag=True, help=f"End by itself, after {ONCE_S:.0f} seconds of running jobs or a little more."
)
@click.option("--kill", is_flag=True, help="Two of each; kill -9 one scheduler and one worker, and see what happens.")
@click.option("--seconds", type=click.FloatRange(1), help="End by itself after so many seconds of running jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON at the end; the rest goes to stderr.")
@click.option("--bootstrap", help="Use these brokers instead of starting one; topics begin with noontide-demo. there.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep everything here.  [default: gone]")
def demo(
    once: bool,  # noqa: FBT001 - an option of click, as those below
    kill: bool,  # noqa: FBT001
    seconds: float | None,
    as_json: bool,  # noqa: FBT001
    bootstrap: str | None,
    data: Path | None,
) -> None:
    """See jobs run at their times.

    Starts a real Kafka broker on this machine (its jars are downloaded the first time), a scheduler, a worker, an HTTP
    target and some twenty jobs: records on topics, handlers, HTTP requests. Ctrl-C ends it; then every run is checked
    against what its schedule says.
    """
    length_s = seconds if seconds is not None else None if not once else ONCE_KILL_S if kill else ONCE_S
    cluster = Cluster() if bootstrap is None else Cluster(bootstrap=bootstrap)
    with _ending_on_sigterm(), _folder(data) as folder:
        report, killed = guarded(_perform, cluster)(folder, bootstrap, length_s, as_json=as_json, kill=kill)
    from noontide.apps.demo import score

    if as_json:
        show_json(score.as_json(report, killed))
    else:
        click.echo("\n".join(score.as_text(report, killed)))
    if not report.ok:
        raise SystemExit(REFUSED)


def _perform(
    folder: Path, bootstrap: str | None, length_s: float | None, *, as_json: bool, kill: bool
) -> tuple[Report, list[str]]:
    """Everything between the first line and the summary; what was started has ended when this returns.

    The judgement, and the names of the processes that were killed.
    """
    from noontide.apps.demo import cast, show, stage
    from noontide.apps.demo.mishaps import Mishaps
    from noontide.testing.checker import check

    say: Callable[[str], None] = note if as_json else click.echo
    lines = None if sys.stdout.isatty() and not as_json else say
    with stage.set_up(bootstrap, folder, say) as where:
        with show.Audience(where) as audience, cast.on_stage(where, doubled=kill) as players:
            board = audience.board
            players.await_workers()
            board.jobs = stage.put_jobs(where, http_address=players.http_address())
            say(f"{players.in_words()} run, {board.jobs} jobs are accepted.\n")
            mishaps = Mishaps(cast=players, board=board, say=_noted(board, lines)) if kill else None
            show.play(audience, seconds=length_s, title="noontide demo", lines=lines, mishaps=mishaps)
            players.check()
            if not board.runs:
                raise Fault(f"no run arrived: {players.schedulers[-1].last_words()}")
        say("Stopped; checking every run ...")
        report = check(where.cluster.connection(), where.layout, until_ms=board.latest_ms)
        return report, [] if mishaps is None else mishaps.killed


def _noted(board: Board, lines: Callable[[str], None] | None) -> Callable[[str], None]:
    """Say what the demo itself did: on the screen above the runs, or as a line among them."""

    def noted(text: str) -> None:
        board.notes.append(text)
        if lines is not None:
            lines(f"*** {text}")

    return noted


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
