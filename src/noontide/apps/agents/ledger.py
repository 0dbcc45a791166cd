"""Usage by tenant and job in hopping windows, counted exactly once although records may come twice.

Every row knows the offset up to which it counted. A batch of thousands of executions costs a few rows, not one per
execution and job.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from noontide.core.durations import MINUTE_MS
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.core.spread import MILLISECONDS
from noontide.records.agents_state import JOBS, USAGE, WINDOWS, RowKey, Tally, Window

ROW_JOBS_MAX: Final = 500
ROWS_MAX: Final = 200
"""Rows of jobs of one pane and partition; jobs beyond ROWS_MAX x ROW_JOBS_MAX count for their tenant only."""
_STATES: Final = {"succeeded": 0, "dead": 1, "cancelled": 2}
_DECIDED: Final = 3
_LOST: Final = 4
Document = dict[str, object]
Changes = dict[str, Document | None]
"""Rows by key; None = the row goes."""


class Execution(msgspec.Struct, frozen=True):
    """What the agents read of a record of `executions`."""

    run_id: str
    job_id: str
    tenant: str
    due: str
    state: str
    reason: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    late_ms: int | None = None
    count: int = 1
    attempts: str = ""


class Ended(NamedTuple):
    """An execution as it was read; instants in ms since the epoch. ran_ms: None when nothing was started."""

    partition: int
    offset: int
    execution: Execution
    at_ms: int
    ran_ms: int | None
    leases_lost: int


_decode: Final = msgspec.json.Decoder(Execution).decode


def ended_of(partition: int, offset: int, value: bytes | None) -> Ended | None:
    """What a record says; None when it is no execution, or has an instant that nobody can read."""
    try:
        execution = _decode(value or b"")
        at_ms = instant_ms(execution.ended_at or execution.due)
        started = execution.started_at
        ran_ms = max(0, at_ms - instant_ms(started)) if started and execution.ended_at else None
    except (msgspec.MsgspecError, InvalidDefinition, ValueError):
        return None
    lost = execution.attempts.count("lease_lost") if execution.attempts else 0
    return Ended(partition, offset, execution, at_ms, ran_ms, lost)


def instant_ms(text: str) -> int:
    """Of `2026-03-02T01:30:00.000Z`. Raises InvalidDefinition or ValueError."""
    if len(text) != len("2026-03-02T01:30:00.000Z"):
        return parse_instant(text, zone=None, pointer="")
    return _minute_ms(text[:16]) + int(text[17:19]) * 1000 + int(text[20:23])


@lru_cache(maxsize=4096)
def _minute_ms(head: str) -> int:
    return parse_instant(f"{head}:00Z", zone=None, pointer="")


@dataclass(slots=True)
class _Pane:
    """One pane of one partition. jobs: of the row that is still open."""

    tenants: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    through: int = -1
    left_out: int = 0
    jobs: dict[tuple[str, str], Tally] = field(default_factory=dict)
    jobs_through: int = -1
    number: int = 0


_PaneKey = tuple[str, int]


class Ledger:
    """All panes of the partitions of this process, in memory; the table keeps them."""

    def __init__(self) -> None:
        self._panes: dict[int, dict[_PaneKey, _Pane]] = defaultdict(dict)

    def load(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Begin anew with what the table has, after a start or a rebalance; rows of other kinds are passed over."""
        self._panes.clear()
        for text, row in sorted(rows, key=lambda item: item[0]):
            key = RowKey.of(text)
            if key is None:
                continue
            pane = self._panes[key.partition].setdefault((key.window, key.pane), _Pane())
            if key.kind == USAGE:
                pane.through, pane.left_out = int(row["through"]), int(row.get("left_out", 0))
                pane.tenants.update({tenant: Tally.of(stored) for tenant, stored in row["tenants"].items()})
            else:  # in order, so that the last one stays
                pane.jobs_through, pane.number = int(row["through"]), key.number
                pane.jobs = {
                    (tenant, job): Tally.of(one) for tenant, its in row["jobs"].items() for job, one in its.items()
                }

    def forget(self, partition: int) -> None:
        """Another process counts it now."""
        self._panes.pop(partition, None)

    def count(self, ended: Sequence[Ended], *, now_minute: int) -> Changes:
        """Add executions of one partition, in order; gives the rows that changed, and those that are too old."""
        changes: Changes = {}
        if not ended:
            return changes
        partition = ended[0].partition
        panes = self._panes[partition]
        for window in WINDOWS:
            for key, its in _by_pane(window, ended, now_minute).items():
                _count(panes.setdefault((window.name, key), _Pane()), its, (window.name, key, partition), changes)
        changes.update(self._expired(partition, now_minute))
        return changes

    def _expired(self, partition: int, now_minute: int) -> Iterator[tuple[str, None]]:
        panes = self._panes[partition]
        for window in WINDOWS:
            oldest = window.first_pane(now_minute)
            for at in [at for at in panes if at[0] == window.name and at[1] < oldest]:
                pane = panes.pop(at)
                yield RowKey(USAGE, *at, partition).text(), None
                for number in range(pane.number + 1):
                    yield RowKey(JOBS, *at, partition, number).text(), None

    def usage(self, window: Window, now_minute: int) -> dict[str, Tally]:
        """By tenant, of the window that ends now."""
        found: dict[str, Tally] = defaultdict(Tally)
        oldest = window.first_pane(now_minute)
        for panes in list(self._panes.values()):
            for (name, start), pane in list(panes.items()):
                if name == window.name and start >= oldest:
                    for tenant, tally in list(pane.tenants.items()):
                        found[tenant].add(tally)
        return found


def _by_pane(window: Window, ended: Iterable[Ended], now_minute: int) -> dict[int, list[Ended]]:
    oldest, groups = window.first_pane(now_minute), dict[int, list[Ended]]()
    for each in ended:
        start = window.pane_of(each.at_ms // MINUTE_MS)
        if start >= oldest:
            groups.setdefault(start, []).append(each)
    return groups


def _count(pane: _Pane, ended: Sequence[Ended], at: tuple[str, int, int], changes: Changes) -> None:
    """Count what a pane has not counted yet; after a crash its rows may have come differently far."""
    through, jobs_through, last = pane.through, pane.jobs_through, ended[-1].offset
    for each in ended:
        if each.offset <= through and each.offset <= jobs_through:
            continue
        classes = _classes(each)
        if each.offset > through:
            _note(pane.tenants[each.execution.tenant], each, classes)
        if each.offset > jobs_through:
            tally = _job_tally(pane, each, at, changes)
            if tally is not None:
                _note(tally, each, classes)
    if last > through:
        pane.through = last
        changes[RowKey(USAGE, *at).text()] = _usage_row(pane)
    if last > jobs_through:
        pane.jobs_through = last
        changes[RowKey(JOBS, *at, pane.number).text()] = _jobs_row(pane)


def _job_tally(pane: _Pane, each: Ended, at: tuple[str, int, int], changes: Changes) -> Tally | None:
    """The tally of a job in the open row; a full row is closed, and the next one begins."""
    key = (each.execution.tenant, each.execution.job_id)
    tally = pane.jobs.get(key)
    if tally is not None:
        return tally
    if len(pane.jobs) >= ROW_JOBS_MAX:
        if pane.number + 1 >= ROWS_MAX:
            pane.left_out += each.execution.count
            return None
        pane.jobs_through = each.offset - 1
        changes[RowKey(JOBS, *at, pane.number).text()] = _jobs_row(pane)
        pane.number, pane.jobs = pane.number + 1, {}
    tally = pane.jobs[key] = Tally()
    return tally


def _classes(each: Ended) -> tuple[int | None, int | None]:
    late_ms = each.execution.late_ms
    return (
        None if late_ms is None else bisect_left(MILLISECONDS, late_ms),
        None if each.ran_ms is None else bisect_left(MILLISECONDS, each.ran_ms),
    )


def _note(tally: Tally, each: Ended, classes: tuple[int | None, int | None]) -> None:
    tally.counts[_STATES.get(each.execution.state, _DECIDED)] += each.execution.count
    tally.counts[_LOST] += each.leases_lost
    late, ran = classes
    if late is not None:
        tally.late_ms[late] = tally.late_ms.get(late, 0) + 1
    if ran is not None:
        tally.ran_ms[ran] = tally.ran_ms.get(ran, 0) + 1


def _usage_row(pane: _Pane) -> Document:
    row: Document = {
        "through": pane.through,
        "tenants": {tenant: tally.document() for tenant, tally in pane.tenants.items()},
    }
    return {**row, "left_out": pane.left_out} if pane.left_out else row


def _jobs_row(pane: _Pane) -> Document:
    jobs: dict[str, dict[str, Document]] = {}
    for (tenant, job_id), tally in pane.jobs.items():
        jobs.setdefault(tenant, {})[job_id] = tally.document()
    return {"through": pane.jobs_through, "jobs": jobs}
