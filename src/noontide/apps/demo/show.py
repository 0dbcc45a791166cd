"""The demo as people see it: runs as they arrive, with their due time and lateness, and what comes next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import orjson

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.tail import Tail
from noontide.apps.cli.runs import line_of
from noontide.apps.cli.spans import words
from noontide.apps.demo.stage import Stage
from noontide.core.cursor import Cursor, JobState
from noontide.core.instants import format_instant, parse_instant
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records.state import CURSOR, decode_cursor

if TYPE_CHECKING:
    from rich.console import RenderableType

RUNS_SHOWN: Final = 12
NEXT_SHOWN: Final = 6
REFRESH_PER_S: Final = 4
POLL_S: Final = 0.2


class Arrived(NamedTuple):
    """A run or a decision, as the log has it. late_ms: when it was appended minus its start."""

    execution: dict[str, object]
    job_id: str
    due_ms: int
    start_ms: int
    appended_ms: int

    @property
    def late_ms(self) -> int:
        """From the start to the append."""
        return self.appended_ms - self.start_ms


@dataclass(slots=True)
class Board:
    """What was seen so far. late_ms: of runs that succeeded; latest_ms: the newest append, in broker time."""

    jobs: int
    runs: int = 0
    decisions: int = 0
    late_ms: list[int] = field(default_factory=list)
    last: deque[Arrived] = field(default_factory=lambda: deque(maxlen=RUNS_SHOWN))
    cursors: dict[str, Cursor] = field(default_factory=dict)
    latest_ms: int = 0

    def note_run(self, arrived: Arrived) -> None:
        """Count a run or a decision."""
        self.latest_ms = max(self.latest_ms, arrived.appended_ms)
        if arrived.execution.get("state") == "succeeded":
            self.runs += 1
            self.late_ms.append(arrived.late_ms)
        else:
            self.decisions += 1
        self.last.append(arrived)

    def coming_up(self) -> list[tuple[int, str]]:
        """(start in ms, job id) of what is next, only of jobs that are not among the runs on show."""
        shown = {arrived.job_id for arrived in self.last}
        waiting = (
            (cursor.start_ms, job_id)
            for job_id, cursor in self.cursors.items()
            if cursor.state is JobState.ACTIVE and cursor.start_ms is not None and job_id not in shown
        )
        return sorted(waiting)[:NEXT_SHOWN]


class Audience:
    """Follows `executions` and the cursors on `state` from now on."""

    def __init__(self, stage: Stage, *, jobs: int = 0) -> None:
        connection, layout = stage.cluster.connection(), stage.layout
        self._executions = layout.name("executions")
        names = (self._executions, layout.name("state"))
        partitions = [TopicPartition(name, slot) for name in names for slot in range(layout.slots)]
        self._tail = Tail(connection, KafkaReplay(connection).end_offsets(partitions))
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
                seen.append(_arrived(record))
                self.board.note_run(seen[-1])
            elif record.key is not None and record.key.startswith(CURSOR) and record.value is not None:
                self.board.cursors[record.key.removeprefix(CURSOR).decode()] = decode_cursor(record.value)
        return seen


def play(audience: Audience, *, seconds: float | None, title: str, lines: Callable[[str], None] | None) -> None:
    """Show what happens until the time is over or Ctrl-C; as a live table, or as `lines`."""
    begin_s = time.monotonic()
    shown = _screen(audience, title, begin_s) if lines is None else _printed(lines)
    with shown as update, suppress(KeyboardInterrupt):
        while seconds is None or time.monotonic() - begin_s < seconds:
            update(audience.look(POLL_S))


Update = Callable[[list[Arrived]], None]


@contextmanager
def _printed(lines: Callable[[str], None]) -> Iterator[Update]:
    def update(seen: list[Arrived]) -> None:
        for arrived in seen:
            lines(line_of({**arrived.execution, "late_ms": arrived.late_ms}))

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
    from rich.console import Group
    from rich.text import Text

    facts = [f"{board.jobs} jobs", f"{board.runs} runs"]
    if board.late_ms:
        ordered = sorted(board.late_ms)
        facts.append(f"late {ordered[len(ordered) // 2]} ms (median), {ordered[-1]} ms (most)")
    if board.decisions:
        facts.append(f"{board.decisions} skipped")
    head = Text.assemble((title, "bold"), f"   {words(int(seconds) * 1000) if seconds >= 1 else '0 s'}")
    parts: list[RenderableType] = [head, Text("   ".join(facts)), Text(""), _runs_table(board)]
    if board.coming_up():
        parts += [Text(""), _next_table(board)]
    return Group(*parts, Text(""), Text("Ctrl-C ends it and checks every run.", style="dim"))


def _runs_table(board: Board) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, width in (("due (UTC)", 12), ("job", 20), ("spread", 8), ("late", 8), ("went to", 14)):
        table.add_column(head, min_width=width, no_wrap=True, justify="right" if head in ("late", "spread") else "left")
    for arrived in board.last:
        spread_ms = arrived.start_ms - arrived.due_ms
        state = str(arrived.execution.get("state"))
        where = str(arrived.execution.get("target", "")).removeprefix("kafka://")
        table.add_row(
            _clock(arrived.due_ms),
            arrived.job_id,
            f"+ {words(spread_ms)}" if spread_ms else "",
            words(arrived.late_ms),
            where if state == "succeeded" else f"{state}: {arrived.execution.get('reason', '')}",
        )
    for _ in range(RUNS_SHOWN - len(board.last)):
        table.add_row()
    return table


def _next_table(board: Board) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, width in (("next (UTC)", 19), ("job", 20), ("in", 12)):
        table.add_column(head, min_width=width, no_wrap=True)
    for start_ms, job_id in board.coming_up():
        at = format_instant(start_ms)[:19].replace("T", " ")
        table.add_row(at, job_id, words(max(start_ms - board.latest_ms, 0)) if board.latest_ms else "")
    return table


def _arrived(record: Incoming) -> Arrived:
    execution = orjson.loads(record.value or b"{}")
    due_ms = parse_instant(execution["due"], zone=None, pointer="/due")
    start = execution.get("start_after")
    start_ms = due_ms if start is None else parse_instant(start, zone=None, pointer="/start_after")
    return Arrived(execution, execution["job_id"], due_ms, start_ms, record.appended_ms)


def _clock(instant_ms: int) -> str:
    return format_instant(instant_ms)[11:23]
