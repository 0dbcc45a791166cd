"""A forecast put together: the parts of several owners, the minutes with the most runs, and what spreading would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from noontide.actors.paces import place_of
from noontide.actors.timelines import timeline_of
from noontide.apps.port import wire
from noontide.apps.port.forecasts import TOPICS, Outlook
from noontide.apps.port.foreseen import KINDS, largest
from noontide.apps.timelines import shown_instant
from noontide.core.cursor import Cursor, JobState
from noontide.core.durations import MINUTE_MS
from noontide.core.forecast import Coming, ForecastBook
from noontide.core.job import Job
from noontide.records.config import ConfigView
from noontide.records.job_row import decode_job_row, encode_job_row

if TYPE_CHECKING:
    from noontide.apps.api.owners import Owners

GROUPS_MAX = 10_000
NAMES_MAX = 50
"""Tenants, lanes or targets told apart in an answer; the largest."""
CAUSES_MAX = 5
"""Names shown for a peak, of each kind."""


def question_of(now_ms: int, *, minutes: int, by: str = "", tenants: list[str] | None = None) -> wire.Forecast:
    """The question about the minutes from this one on."""
    from_ms = now_ms - now_ms % MINUTE_MS
    return wire.Forecast(slots=[], from_ms=from_ms, minutes=minutes, tenants=tenants, by=by, names_max=NAMES_MAX)


async def asked_of(owners: Owners, question: wire.Forecast, *, wait_ms: int) -> tuple[wire.FoundForecast, list[int]]:
    """The forecast of all owners that answer, and the slots that nobody answered for."""

    def about(slots: list[int]) -> wire.Forecast:
        return msgspec.structs.replace(question, slots=slots)

    answers, missing = await owners.ask_present(range(owners.layout.slots), about, wait_ms=wait_ms)
    parts = [each for each in answers if isinstance(each, wire.FoundForecast)]
    return merged(parts, minutes=question.minutes, names_max=question.names_max), missing


def merged(parts: Sequence[wire.FoundForecast], *, minutes: int, names_max: int) -> wire.FoundForecast:
    """One forecast out of those of several owners."""
    series: dict[str, list[int]] = {}
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    details: dict[int, dict[str, Counter[str]]] = {}
    for part in parts:
        for name, values in part.series.items():
            series[name] = _sum((series.get(name, ()), values), minutes)
        for kind, counts in part.totals.items():
            totals[kind].update(counts)
        for minute, kinds in part.details.items():
            known = details.setdefault(minute, {kind: Counter() for kind in KINDS})
            for kind, counts in kinds.items():
                known[kind].update(counts)
    return wire.FoundForecast(
        runs=_sum((each.runs for each in parts), minutes),
        exact=_sum((each.exact for each in parts), minutes),
        relaxed=_sum((each.relaxed for each in parts), minutes),
        series=largest(series, names_max),
        totals={kind: dict(counts.most_common(names_max)) for kind, counts in totals.items()},
        details={minute: {kind: dict(each) for kind, each in kinds.items()} for minute, kinds in details.items()},
        as_of_ms=min((each.as_of_ms for each in parts if each.as_of_ms), default=0),
        jobs=sum(each.jobs for each in parts),
        pending=sorted(slot for each in parts for slot in each.pending),
        cut=sorted(slot for each in parts for slot in each.cut),
        merged=any(each.merged for each in parts),
    )


class Standing(NamedTuple):
    """An accepted job, its document, and where it stands."""

    job: Job
    document: bytes
    cursor: Cursor


def forecast_of_jobs(jobs: Iterable[Standing], config: ConfigView, *, from_ms: int, minutes: int) -> Outlook:
    """The forecast of jobs as they are on the topics. from_ms: a whole minute."""
    book = ForecastBook(from_ms, minutes=minutes, groups_max=GROUPS_MAX)
    for standing in jobs:
        cursor = standing.cursor
        if cursor.state is JobState.ACTIVE and cursor.due_ms is not None and cursor.start_ms is not None:
            book.add(_coming(standing, config))
    for _ in book.expand():
        pass
    return Outlook(from_ms, book, cut=False)


def _coming(standing: Standing, config: ConfigView) -> Coming:
    job, document, cursor = standing
    assert cursor.due_ms is not None
    assert cursor.start_ms is not None
    row = decode_job_row(encode_job_row(job, document, etag="", created_ms=0))
    coming = Coming(
        job.id, (row.tenant, row.lane or TOPICS, place_of(row.target_text)), row.schedule_key, cursor.due_ms,
        cursor.start_ms, row.spread_ms, row.ends_at_ms, max(0, row.max_runs - cursor.runs),
    )  # fmt: skip
    if not row.calendars:
        return coming
    try:
        return coming._replace(calendars=f"of {job.id}", following=timeline_of(job, config).next_after)
    except KeyError:  # a calendar that is gone
        return coming


def peaks_of(runs: Sequence[int], most: int) -> list[int]:
    """The minutes with the most runs, the fullest first; those without runs are none."""
    ordered = sorted(range(len(runs)), key=lambda minute: (-runs[minute], minute))
    return [minute for minute in ordered[:most] if runs[minute]]


def view_of(
    found: wire.FoundForecast, detailed: wire.FoundForecast, peaks: Sequence[int], *, from_ms: int, by: str | None
) -> dict[str, Any]:
    """What is shown. detailed: the same forecast with the details of its peaks."""
    return {
        "from": shown_instant(from_ms),
        "step_sec": MINUTE_MS // 1_000,
        "as_of": shown_instant(found.as_of_ms) if found.as_of_ms else None,
        "cut_slots": found.cut,
        "merged": found.merged,
        "jobs": found.jobs,
        "runs": found.runs,
        "exact": found.exact,
        "relaxed": found.relaxed,
        "by": by,
        "series": found.series,
        "totals": {f"{kind}s": counts for kind, counts in found.totals.items()},
        "peaks": _peak_views(detailed, peaks, from_ms),
        "highest": {"runs": max(found.runs), "relaxed": max(found.relaxed)},
    }


def _peak_views(found: wire.FoundForecast, peaks: Iterable[int], from_ms: int) -> list[dict[str, Any]]:
    """Minutes with the most runs, whose they are, and how many there would be with relaxed timing."""
    return [
        {
            "at": shown_instant(from_ms + minute * MINUTE_MS),
            "runs": found.runs[minute],
            "exact": found.exact[minute],
            "relaxed": found.relaxed[minute],
            **{f"{kind}s": _causes(found.details.get(minute, {}).get(kind, {})) for kind in KINDS},
        }
        for minute in peaks
    ]


def _causes(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(counts).most_common(CAUSES_MAX))


def _sum(parts: Iterable[Sequence[int]], minutes: int) -> list[int]:
    sums = [0] * minutes
    for part in parts:
        if part:
            sums = list(map(add, sums, part))
    return sums
