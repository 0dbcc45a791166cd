"""Forecasts from the indexes of the slots that this process owns, made in small pieces and kept for a while.

    due rows before the end of the time asked for ──> job rows ──> core.forecast ──> kept per slot

Each piece is a few dozen rows, and between two of them the thread rests for a multiple of the time that the piece took,
so cycles of the slots are not held up by more than one piece, and a process never uses more than its share for this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from noontide.actors.paces import place_of
from noontide.actors.settings import SchedulerSettings
from noontide.actors.timelines import plan_of
from noontide.apps.port.scanning import Readable
from noontide.core.durations import MINUTE_MS
from noontide.core.errors import NoontideError
from noontide.core.forecast import Coming, ForecastBook
from noontide.ports.due_index import IndexFailed
from noontide.records import rows
from noontide.records.config import ConfigView
from noontide.records.job_row import decode_job_row, outlook_of, target_text
from noontide.records.topics import Layout

PIECE = 64
"""Due rows looked at without a rest."""
SOON_MINUTES = 60
"""Somebody who asks for no more than this gets a forecast that is made faster."""
WAIT_S = 3.0
"""How long an answer waits for a forecast that is being made."""
SPARE_MINUTES = 10
"""Made beyond what was asked for, so that an older forecast still reaches to the end."""
TOPICS = "(topics)"
"""Stands for the lane of runs that need no worker."""


class Outlook(NamedTuple):
    """The forecast of one slot. as_of_ms: when its jobs were looked at; cut: whether there were too many of them."""

    as_of_ms: int
    book: ForecastBook
    cut: bool


class _Gone(NoontideError):
    """The slot is not here any more."""


class Forecasts:
    """The forecasts of a process; lives on the port's event loop."""

    def __init__(self, layout: Layout, readable: Readable, settings: SchedulerSettings) -> None:
        self._layout = layout
        self._readable = readable
        self._settings = settings
        self._known: dict[tuple[int, bool], Outlook] = {}
        self._making: dict[tuple[int, bool], asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self.longest_s = 0.0
        """The longest piece so far."""

    async def of(self, slots: list[int], *, from_ms: int, minutes: int) -> dict[int, Outlook]:
        """The forecasts that there are; what is old or missing is made, and waited for a short while."""
        soon = minutes <= SOON_MINUTES
        self._known = {at: each for at, each in self._known.items() if self._readable(at[0]) is not None}
        waited_for = []
        for slot in slots:
            known = self._known.get((slot, soon))
            if known is None or abs(from_ms - known.as_of_ms) >= self._settings.forecast_fresh_ms:
                waited_for.append(self._begin(slot, from_ms, soon=soon))
        if waited_for:
            await asyncio.wait(waited_for, timeout=WAIT_S)
        found = {slot: self._known[slot, soon] for slot in slots if (slot, soon) in self._known}
        until_ms = from_ms + minutes * MINUTE_MS
        return {
            slot: each for slot, each in found.items()
            if each.book.from_ms <= from_ms and until_ms <= each.book.from_ms + each.book.minutes * MINUTE_MS
        }  # fmt: skip

    def _begin(self, slot: int, from_ms: int, *, soon: bool) -> asyncio.Task[None]:
        task = self._making.get((slot, soon))
        if task is None:
            task = self._making[slot, soon] = asyncio.create_task(self._make(slot, from_ms, soon=soon))
        return task

    async def _make(self, slot: int, from_ms: int, *, soon: bool) -> None:
        most = self._settings.forecast_ms // MINUTE_MS
        minutes = min(SOON_MINUTES, most) if soon else most
        try:
            async with self._turn:
                self._known[slot, soon] = await self._looked(slot, from_ms, minutes + SPARE_MINUTES)
        except (_Gone, IndexFailed):
            self._known.pop((slot, soon), None)
        finally:
            del self._making[slot, soon]

    async def _looked(self, slot: int, from_ms: int, minutes: int) -> Outlook:
        clock = asyncio.get_running_loop().time
        from_ms -= from_ms % MINUTE_MS
        book = ForecastBook(from_ms, minutes=minutes, groups_max=self._settings.forecast_groups_max)
        seen, cut, began_s = 0, False, clock()
        for count in self._pieces(slot, book, from_ms + minutes * MINUTE_MS):
            seen += count
            cut = seen >= self._settings.forecast_jobs_max
            if cut:
                break
            began_s = await self._rest(began_s)
        for number, _ in enumerate(book.expand()):
            if number % PIECE == 0:
                began_s = await self._rest(began_s)
        return Outlook(from_ms, book, cut)

    async def _rest(self, began_s: float) -> float:
        """Leave the rest of the core to others; returns when the next piece began."""
        clock = asyncio.get_running_loop().time
        took_s = clock() - began_s
        self.longest_s = max(self.longest_s, took_s)
        await asyncio.sleep(took_s * (100 / self._settings.forecast_cpu_percent - 1))
        return clock()

    def _pieces(self, slot: int, book: ForecastBook, until_ms: int) -> Iterator[int]:
        """Count the jobs of a slot, a few at a time; yields how many rows were looked at."""
        for number in self._layout.partitions_of(slot):
            start, stop = rows.due_range(number)[0], rows.due_key(number, until_ms, b"")
            while True:
                found = self._readable(slot)
                if found is None:
                    raise _Gone
                working, index = found
                due = index.scan(start, stop, PIECE)
                values = index.get_many([rows.job_key(number, key[rows.DUE_KEY_FORM_BYTES :]) for key, _ in due])
                for (key, value), row in zip(due, values, strict=True):
                    coming = None if row is None else coming_of(key, value, row, working.config)
                    if coming is not None:
                        book.add(coming)
                yield len(due)
                if len(due) < PIECE:
                    break
                start = due[-1][0] + b"\0"


def coming_of(key: bytes, value: bytes, row: bytes, config: ConfigView) -> Coming | None:
    """What a due row and its job say; None when it is not about a run."""
    due = rows.decode_due_row(value)
    if due.purpose != rows.Purpose.FIRE:
        return None
    start_ms, job_id = rows.due_key_parts(key)
    outlook = outlook_of(row)
    name = job_id.decode()
    coming = Coming(
        name,
        (outlook.tenant, outlook.lane or TOPICS, place_of(target_text(outlook.target_kind, outlook.target))),
        outlook.schedule_key,
        due.due_ms,
        start_ms,
        outlook.spread_ms,
        outlook.ends_at_ms,
        max(0, outlook.max_runs - due.runs),
    )
    return _with_calendars(coming, row, config) if outlook.calendars else coming


def _with_calendars(coming: Coming, row: bytes, config: ConfigView) -> Coming:
    """The same with the calendars it names; jobs that name the same share their dates."""
    decoded = decode_job_row(row)
    document = orjson.loads(decoded.document)
    named = [coming.ends_at_ms, document.get("timezone"), document.get("starts_at"), document.get("calendar")]
    try:
        following = plan_of(decoded, coming.job_id, config).following
    except KeyError:  # a calendar that is gone: the schedule alone says when
        return coming
    return coming._replace(calendars=orjson.dumps(named).decode(), following=following)
