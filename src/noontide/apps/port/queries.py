"""Answers from the indexes of the slots that this process owns. Reads only; each answer is bounded."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import islice
from operator import add
from typing import assert_never

import msgspec
import orjson

from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot import Slot
from noontide.apps.port import wire
from noontide.apps.port.board import API_REQUESTS, Board
from noontide.apps.port.job_pages import JobPages, found_job
from noontide.apps.port.matching import execution_matches, live_matches, tied_of
from noontide.apps.port.recents import Entry, Recents
from noontide.apps.port.scanning import Readable, rows_after
from noontide.apps.port.shared import SharedQueries
from noontide.ports.due_index import DueIndex, IndexFailed
from noontide.ports.history import ENDED_SKEW_MS, Place, ended_ms_of
from noontide.records import rows
from noontide.records.job_row import decode_job_row
from noontide.records.leases import decode_lease
from noontide.records.state import decode_cursor, verdict_record_key
from noontide.records.topics import Layout

SCANNED_MAX = 2_000
"""Rows looked at for one page; a page may be shorter than asked for, and says how far it looked."""
CLOSED_SINCE_MAX = 5_000
RUN_LINES_MAX = 20
_CAUGHT_UP_S, _CAUGHT_UP_POLL_S = 1.0, 0.005


class _NotHere(Exception):
    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.slot = slot


class Queries:
    """What an API node may ask. settings: as the slots have them, since their reminders are looked up by these."""

    def __init__(
        self, layout: Layout, readable: Readable, board: Board, recents: Recents, settings: SchedulerSettings
    ) -> None:
        self._layout = layout
        self._readable = readable
        self._board = board
        self._recents = recents
        self._verdict_retention_ms = settings.verdict_retention_ms
        self._shared = SharedQueries(layout, readable, self._open, settings)
        self._job_pages = JobPages(layout, self._open, settings)

    async def answer(self, question: wire.Asked) -> wire.Answered:
        """One answer; Moved when a slot is not here, or closes while it is read."""
        try:
            return await self._answer(question)
        except _NotHere as not_here:
            return wire.Moved(slot=not_here.slot)
        except IndexFailed:
            return wire.Moved(slot=getattr(question, "slot", -1))

    async def _answer(self, question: wire.Asked) -> wire.Answered:
        match question:
            case wire.Jobs():
                return self._jobs(question)
            case wire.JobPage() | wire.DuePage():
                return await self._job_pages.of(question)
            case wire.Ties():
                return self._ties(question)
            case wire.Verdicts():
                return self._verdicts(question)
            case wire.Leases():
                return self._leases(question)
            case wire.Workers() | wire.Shares() | wire.Loads() | wire.Forecast():
                return await self._shared.answer(question)
            case _:
                return await self._runs(question)

    async def _runs(
        self,
        question: wire.RunStory
        | wire.RunContent
        | wire.LivePage
        | wire.DeadPage
        | wire.Executions
        | wire.History
        | wire.Ended,
    ) -> wire.Answered:
        match question:
            case wire.RunContent():
                return self._run_content(question)
            case wire.Ended():
                return await self._ended(question)
            case wire.RunStory():
                return await self._run_story(question)
            case wire.LivePage():
                return await self._live_page(question)
            case wire.DeadPage():
                return self._dead_page(question)
            case wire.Executions():
                return await self._executions(question)
            case wire.History():
                return await self._history(question)
            case _:
                assert_never(question)

    def _open(self, slot: int) -> tuple[Slot, DueIndex]:
        found = self._readable(slot)
        if found is None:
            raise _NotHere(slot)
        return found

    # --- jobs

    def _jobs(self, question: wire.Jobs) -> wire.FoundJobs:
        _, index = self._open(question.slot)
        keys: list[bytes] = []
        for job_id in question.ids:
            partition, key = self._layout.partition_of(job_id), job_id.encode()
            keys += (rows.job_key(partition, key), rows.cursor_key(partition, key))
        values = index.get_many(keys)
        found = zip(question.ids, values[::2], values[1::2], strict=True)
        return wire.FoundJobs(
            jobs=[
                None if row is None else found_job(job_id, decode_job_row(row), cursor) for job_id, row, cursor in found
            ]
        )

    def _ties(self, question: wire.Ties) -> wire.FoundTies:
        slot, _ = self._open(question.slot)
        ties = slot.exchange.ties
        known = self._jobs(wire.Jobs(slot=question.slot, ids=question.ids)).jobs
        return wire.FoundTies(
            jobs=[
                tied_of(job_id, found, ties.after.get(job_id), tuple(ties.dependants.get(job_id, ())))
                for job_id, found in zip(question.ids, known, strict=True)
            ]
        )

    # --- verdicts

    def _verdicts(self, question: wire.Verdicts) -> wire.DecidedMany:
        slot, index = self._open(question.slot)
        first = self._layout.partitions_of(question.slot)[0]
        found: list[wire.Decided] = []
        unknown: list[tuple[int, int, bytes]] = []
        for partition, offset, appended_ms in question.wanted:
            decided = self._board.find(partition, offset)
            if decided is not None:
                found.append(decided)
                continue
            key = verdict_record_key(f"{API_REQUESTS}/{partition}/{offset}")
            at_ms = appended_ms + self._verdict_retention_ms
            unknown.append((partition, offset, rows.forget_key(first, at_ms, key)))
        kept = index.get_many([key for _, _, key in unknown]) if unknown else []
        for (partition, offset, _), value in zip(unknown, kept, strict=True):
            if value:
                found.append(wire.Decided(partition, offset, msgspec.Raw(value)))
        waiting = [
            (partition, offset)
            for partition, offset, _ in question.wanted
            if offset >= slot.positions[partition].get(API_REQUESTS, 0)
        ]
        return wire.DecidedMany(verdicts=found, open=waiting)

    # --- runs

    async def _run_story(self, question: wire.RunStory) -> wire.FoundRuns:
        slot, index = self._open(question.slot)
        run_id = question.run_id.encode()
        partition = self._layout.partition_of(run_id.rpartition(b":")[0])
        live, dead = index.get_many([rows.live_key(partition, run_id), rows.dead_key(partition, run_id)])
        await self._caught_up(slot)
        closed = self._recents.of_run(question.slot, question.run_id, limit=RUN_LINES_MAX)
        if live is None and dead is None and not closed:
            return wire.FoundRuns(runs=[])
        run = wire.FoundRun(
            id=question.run_id,
            live=_raw(live),
            dead=_raw(dead),
            closed=[msgspec.Raw(each.execution) for each in closed],
            lease=None if live is None else slot.keeper.lease_of(question.run_id),
        )
        return wire.FoundRuns(runs=[run])

    def _run_content(self, question: wire.RunContent) -> wire.FoundContent:
        """The kept definition; else the job as it is, which a live run of the same version was claimed with."""
        _, index = self._open(question.slot)
        run_id, job_id = question.run_id.encode(), question.run_id.rpartition(":")[0].encode()
        number = self._layout.partition_of(job_id)
        keys = [rows.claimed_key(number, run_id), rows.job_key(number, job_id), rows.cursor_key(number, job_id)]
        kept, job, cursor, live = index.get_many([*keys, rows.live_key(number, run_id)])
        row = kept or job
        if row is None:
            return wire.FoundContent()
        decoded = decode_job_row(row)
        return wire.FoundContent(
            document=msgspec.Raw(decoded.document),
            claimed=kept is not None or (live is not None and decode_lease(run_id, live).etag == decoded.etag),
            tenant=decoded.tenant,
            changed_ms=decoded.created_ms if cursor is None else decode_cursor(cursor).accepted_ms,
        )

    async def _ended(self, question: wire.Ended) -> wire.FoundEnded:
        minutes: dict[int, list[int]] = {}
        for number in question.slots:
            self._open(number)
            for some in self._recents.ended(number, question.first, question.stop, question.tenants):
                for minute, counts in some:
                    known = minutes.get(minute)
                    minutes[minute] = list(counts) if known is None else list(map(add, known, counts))
                await asyncio.sleep(0)
        return wire.FoundEnded(minutes=minutes)

    def _leases(self, question: wire.Leases) -> wire.FoundRuns:
        _, index = self._open(question.slot)
        keys = []
        for run_id in question.run_ids:
            partition = self._layout.partition_of(run_id.rpartition(":")[0])
            keys.append(rows.live_key(partition, run_id.encode()))
        found = zip(question.run_ids, index.get_many(keys), strict=True)
        return wire.FoundRuns(runs=[wire.FoundRun(id=run_id, live=msgspec.Raw(live)) for run_id, live in found if live])

    async def _live_page(self, question: wire.LivePage) -> wire.FoundRuns:
        slots = {slot: self._open(slot) for slot in question.slots}
        # Before the rows are read: what is closed from here on is on this page, or is looked for on later ones.
        ends = {str(each): max(slot.executions_end, self._recents.position(each)) for each, (slot, _) in slots.items()}
        page, reached = self._page(question, b"l", lambda value: live_matches(value, question))
        runs = {run_id: wire.FoundRun(id=run_id, live=msgspec.Raw(value)) for run_id, value in page}
        for slot, _ in slots.values():
            await self._caught_up(slot)
        if question.also_closed_after is not None:
            self._add_closed(question, runs, reached)
        ordered = [runs[run_id] for run_id in sorted(runs)]
        if len(ordered) > question.limit:
            ordered = ordered[: question.limit]
            reached = ordered[-1].id
        return wire.FoundRuns(runs=ordered, ends=ends, reached=reached)

    def _add_closed(self, question: wire.LivePage, runs: dict[str, wire.FoundRun], reached: str | None) -> None:
        """Runs that were closed since the first page, so that one which was live then is on exactly one page."""
        for slot in question.slots:
            since = (question.also_closed_after or {}).get(str(slot), 0)
            for entry in self._recents.since(slot, since, limit=CLOSED_SINCE_MAX):
                run_id = execution_matches(entry.execution, question)
                if run_id is None or run_id in runs or run_id <= question.after:
                    continue
                if reached is None or run_id <= reached:
                    runs[run_id] = wire.FoundRun(id=run_id, closed=[msgspec.Raw(entry.execution)])

    def _dead_page(self, question: wire.DeadPage) -> wire.FoundRuns:
        page, reached = self._page(question, b"z", lambda value: live_matches(value, question))
        return wire.FoundRuns(
            runs=[wire.FoundRun(id=run_id, dead=msgspec.Raw(value)) for run_id, value in page], reached=reached
        )

    def _page(
        self, question: wire.LivePage | wire.DeadPage, kind: bytes, matches: Callable[[bytes], bool]
    ) -> tuple[list[tuple[str, bytes]], str | None]:
        """Runs of one kind in the order of their ids, and how far was looked (None = to the end)."""
        after, only = question.after.encode(), question.job_id
        prefix = b"" if only is None else f"{only}:".encode()
        streams = []
        for slot in question.slots:
            _, index = self._open(slot)
            for number in self._layout.partitions_of(slot):
                if only is None or number == self._layout.partition_of(only):
                    streams.append(rows_after(index, number, kind, max(after, prefix)))
        found: list[tuple[str, bytes]] = []
        scanned, key = 0, b""
        for key, _, value in islice(heapq.merge(*streams), SCANNED_MAX):
            if prefix and not key.startswith(prefix):
                return found, None
            scanned += 1
            if matches(value):
                found.append((key.decode(), value))
                if len(found) == question.limit:
                    break
        return found, chunk_end(scanned, key.decode()) if len(found) < question.limit else key.decode()

    async def _executions(self, question: wire.Executions) -> wire.FoundExecutions:
        slot, _ = self._open(question.slot)
        await self._caught_up(slot)
        since_ms = None  # read before the lines are: what is removed meanwhile was there then
        if self._recents.position(question.slot) >= slot.executions_end:
            since_ms = self._recents.complete_since_ms(question.slot)
        found = self._recents.of_job(
            question.slot,
            question.job_id,
            limit=question.limit,
            after=None if question.after is None else Place(*question.after),
            since_ms=question.since_ms,
            tenants=question.tenants,
        )
        return wire.FoundExecutions(lines=[msgspec.Raw(each.execution) for each in found], complete_since_ms=since_ms)

    async def _history(self, question: wire.History) -> wire.Lines:
        lines: list[wire.Line] = []
        more: dict[str, int] = {}
        kept: dict[str, wire.Kept] = {}
        for number in question.slots:
            await self._caught_up(self._open(number)[0])
            kept[str(number)] = wire.Kept(*self._recents.kept(number))
            found, reached = self._closed_runs(number, question)
            lines += [_line(number, each) for each in found]
            if reached is not None:
                more[str(number)] = reached
        return wire.Lines(lines=lines, more=more, kept=kept)

    def _closed_runs(self, slot: int, question: wire.History) -> tuple[list[Entry], int | None]:
        """The newest closed runs of a slot, and the offset before which there may be more."""
        before = None if question.before is None else question.before.get(str(slot))
        found: list[Entry] = []
        scanned = self._recents.newest(slot, before=before, limit=SCANNED_MAX)
        for entry in scanned:
            if question.since_ms is not None and entry.appended_ms < question.since_ms - ENDED_SKEW_MS:
                return found, None
            if execution_matches(entry.execution, question) is not None and _ended_since(entry, question.since_ms):
                found.append(entry)
                if len(found) == question.limit:
                    return found, entry.offset
        return found, scanned[-1].offset if len(scanned) == SCANNED_MAX else None

    async def _caught_up(self, slot: Slot) -> None:
        """Wait until the copy of the executions has what the slot committed; a wave may leave it behind for longer."""
        end, number = slot.executions_end, slot.names.slot
        waited_s = 0.0
        while self._recents.position(number) < end and waited_s < _CAUGHT_UP_S:
            await asyncio.sleep(_CAUGHT_UP_POLL_S)
            waited_s += _CAUGHT_UP_POLL_S


def _ended_since(entry: Entry, since_ms: int | None) -> bool:
    return (
        since_ms is None
        or entry.appended_ms >= since_ms + ENDED_SKEW_MS
        or ended_ms_of(orjson.loads(entry.execution)) >= since_ms
    )


def chunk_end(scanned: int, last: str) -> str | None:
    """How far a look went: to the end when it met fewer rows than it may."""
    return last if scanned == SCANNED_MAX else None


def _line(slot: int, entry: Entry) -> wire.Line:
    return wire.Line(
        slot=slot, offset=entry.offset, appended_ms=entry.appended_ms, execution=msgspec.Raw(entry.execution)
    )


def _raw(text: bytes | None) -> msgspec.Raw:
    return wire.NOTHING if text is None else msgspec.Raw(text)
