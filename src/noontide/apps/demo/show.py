"""The demo as people see it: runs as they arrive, with their due time and lateness, and what comes next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.tail import Tail
from noontide.apps.cli.runs import line_of
from noontide.apps.cli.spans import words
from noontide.apps.demo.board import RUNS_SHOWN, Arrived, Board, arrived
from noontide.apps.demo.mishaps import Mishaps
from noontide.apps.demo.stage import Stage
from noontide.core.instants import format_instant
from noontide.ports.record_log import Doubt, TopicPartition
from noontide.records.leases import decode_lease
from noontide.records.state import CURSOR, decode_cursor

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_PER_S: Final = 4
POLL_S: Final = 0.2
MENDING_MAX_S: Final = 25.0
SETTLE_MAX_S: Final = 10.0
NOTES_SHOWN: Final = 6
FRAME_LINES: Final = 9
"""Lines of the picture besides runs, what comes next, and notes."""


class Audience:
    """Follows `executions`, `leases` and the cursors on `state` from now on."""

    def __init__(self, stage: Stage, *, jobs: int = 0) -> None:
        connection, layout = stage.cluster.connection(), stage.layout
        self._executions = layout.name("executions")
        self._leases = layout.name("leases")
        names = (self._executions, self._leases, layout.name("state"))
        partitions = [TopicPartition(name, slot) for name in names for slot in range(layout.slots)]
        self._tail = Tail(connection, _ends(KafkaReplay(connection), partitions))
        self.board = Board(jobs=jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tail.close()

    def look(self, timeout_s: float) -> list[Arrived]:
        """What has arrived since the last look; waits for the first."""
        seen = []
        for record in sorted(self._tail.poll(timeout_s), key=lambda record: (record.appended_ms, record.offset)):
            if record.topic == self._executions:
                seen.append(arrived(record))
                self.board.note_run(seen[-1])
            elif record.topic == self._leases:
                run_id = record.key or b""
                run = None if record.value is None else decode_lease(run_id, record.value)
                self.board.note_lease(run_id.decode(), run)
            elif record.key is not None and record.key.startswith(CURSOR) and record.value is not None:
                self.board.cursors[record.key.removeprefix(CURSOR).decode()] = decode_cursor(record.value)
        return seen


def _ends(replay: KafkaReplay, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of partitions that may have been made a moment ago, when not every broker knows their leaders yet."""
    until_s = time.monotonic() + SETTLE_MAX_S
    while True:
        try:
            return replay.end_offsets(partitions)
        except Doubt:
            if time.monotonic() > until_s:
                raise
            threading.Event().wait(POLL_S)


def play(
    audience: Audience,
    *,
    seconds: float | None,
    title: str,
    lines: Callable[[str], None] | None,
    mishaps: Mishaps | None = None,
) -> None:
    """Show what happens until the time is over or Ctrl-C; as a live table, or as `lines`.

    With mishaps it goes on until all is well again, at most `MENDING_MAX_S` longer.
    """
    begin_s = time.monotonic()
    shown = _screen(audience, title, begin_s) if lines is None else _printed(lines)
    with shown as update, suppress(KeyboardInterrupt):
        while seconds is None or not _is_over(time.monotonic() - begin_s - seconds, mishaps):
            seen = audience.look(POLL_S)
            update(seen)
            if mishaps is not None:
                mishaps.step(time.monotonic() - begin_s, seen)


def _is_over(beyond_s: float, mishaps: Mishaps | None) -> bool:
    return beyond_s >= (0 if mishaps is None or mishaps.over else MENDING_MAX_S)


Update = Callable[[list[Arrived]], None]


@contextmanager
def _printed(lines: Callable[[str], None]) -> Iterator[Update]:
    def update(seen: list[Arrived]) -> None:
        for each in seen:
            lines(line_of({**each.execution, "late_ms": each.late_ms}))

    yield update


@contextmanager
def _screen(audience: Audience, title: str, begin_s: float) -> Iterator[Update]:
    from rich.live import Live

    def picture() -> RenderableType:
        return _picture(audience.board, title, time.monotonic() - begin_s)

    with Live(picture(), auto_refresh=False, transient=False) as live:
        drawn_s = 0.0

        def update(_seen: list[Arrived]) -> None:
            nonlocal drawn_s
            now_s = time.monotonic()
            if now_s - drawn_s >= 1 / REFRESH_PER_S:
                drawn_s = now_s
                live.update(picture(), refresh=True)

        yield update
        live.update(picture(), refresh=True)  # the last word, with the runs of the last quarter of a second


def _picture(board: Board, title: str, seconds: float) -> RenderableType:
    from rich.console import Console, Group
    from rich.text import Text

    head = Text.assemble((title, "bold"), f"   {words(int(seconds) * 1000) if seconds >= 1 else '0 s'}")
    notes = [Text(note, style="bold yellow") for note in board.notes[-NOTES_SHOWN:]]
    screen = Console().size
    room = screen.height - FRAME_LINES - sum(-(-len(note.plain) // screen.width) for note in notes)
    coming = board.coming_up()[: max(2, room // 3)]
    runs = max(3, min(RUNS_SHOWN, room - len(coming)))
    parts: list[RenderableType] = [head, Text("   ".join(_facts(board))), *notes, Text(""), _runs_table(board, runs)]
    if coming:
        parts += [Text(""), _next_table(board, coming)]
    return Group(*parts, Text(""), Text("Ctrl-C ends it and checks every run.", style="dim"))


def _facts(board: Board) -> Iterator[str]:
    yield f"{board.jobs} jobs"
    yield f"{board.runs} runs"
    if board.late_ms:
        ordered = sorted(board.late_ms)
        yield f"late {words(ordered[len(ordered) // 2])} (median), {words(ordered[-1])} (most)"
    if board.decisions:
        yield f"{board.decisions} skipped"
    for worker, runs in sorted(board.workers().items()):
        yield f"{worker}: {runs}"


def _runs_table(board: Board, shown: int) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, width in (("due (UTC)", 12), ("job", 18), ("spread", 8), ("late", 8), ("went to", 14)):
        table.add_column(head, min_width=width, no_wrap=True, justify="right" if head in ("late", "spread") else "left")
    last = list(board.last)[-shown:]
    for each in last:
        spread_ms = each.start_ms - each.due_ms
        spread = f"+ {words(spread_ms)}" if spread_ms else ""
        table.add_row(_clock(each.due_ms), each.job_id, spread, words(each.late_ms), _where(each))
    for _ in range(shown - len(last)):
        table.add_row()
    return table


def _where(each: Arrived) -> str:
    state = str(each.execution.get("state"))
    if state != "succeeded":
        return f"{state}: {each.execution.get('reason', '')}"
    where = str(each.execution.get("target", ""))
    for scheme in ("kafka://", "handler:", "http://"):
        where = where.removeprefix(scheme)
    attempt = each.execution.get("attempt", 1)
    again = f", attempt {attempt}" if attempt != 1 else ""
    return f"{where} ({words(each.took_ms)}{again})" if each.execution.get("worker") else where


def _next_table(board: Board, coming: Sequence[tuple[int, str]]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, width in (("next (UTC)", 19), ("job", 20), ("in", 12)):
        table.add_column(head, min_width=width, no_wrap=True)
    for start_ms, job_id in coming:
        at = format_instant(start_ms)[:19].replace("T", " ")
        table.add_row(at, job_id, words(max(start_ms - board.latest_ms, 0)) if board.latest_ms else "")
    return table


def _clock(instant_ms: int) -> str:
    return format_instant(instant_ms)[11:23]
