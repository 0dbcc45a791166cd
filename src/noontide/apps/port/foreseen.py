"""One answer out of the forecasts of some slots: sums, series by name, and the details of single minutes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import add

from noontide.apps.port import wire
from noontide.apps.port.forecasts import Outlook
from noontide.core.durations import MINUTE_MS
from noontide.core.forecast import OTHERS, Group, Series

KINDS = ("tenant", "lane", "target")
_PIECE = 16
"""Series added up before others on the event loop have their turn."""


async def answer_of(question: wire.Forecast, found: Mapping[int, Outlook]) -> wire.FoundForecast:
    """The answer to a question, of the slots in `found`; the others are pending."""
    runs, exact, spread = ([0] * question.minutes for _ in range(3))
    totals: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    series: dict[str, list[int]] = {}
    jobs = 0
    for number, (start, group, each) in enumerate(_series(found.values(), question)):
        if number % _PIECE == 0:
            await asyncio.sleep(0)
        part = each.runs[start : start + question.minutes]
        _add_to(runs, part)
        for sums, values in ((exact, each.exact), (spread, each.spread)):
            if values is not None:
                _add_to(sums, values[start : start + question.minutes])
        total = sum(part)
        jobs += each.jobs if total else 0
        for kind, name in zip(KINDS, group, strict=True):
            if total:
                totals[kind][name] += total
            if total and kind == question.by:
                _add_to(series.setdefault(name, [0] * question.minutes), part)
    return wire.FoundForecast(
        runs=runs,
        exact=exact,
        relaxed=[every - held + moved for every, held, moved in zip(runs, exact, spread, strict=True)],
        series=largest(series, question.names_max),
        totals={kind: _top(counts, question.names_max) for kind, counts in totals.items()},
        details=_details(question, found),
        as_of_ms=min((each.as_of_ms for each in found.values()), default=0),
        jobs=jobs,
        pending=[slot for slot in question.slots if slot not in found],
        cut=[slot for slot, each in found.items() if each.cut],
        merged=any(each.book.merged for each in found.values()),
    )


def largest(series: Mapping[str, list[int]], most: int) -> dict[str, list[int]]:
    """The largest of some series; the others are put together."""
    ordered = sorted(series, key=lambda name: (name == OTHERS, -sum(series[name]), name))
    kept = {name: series[name] for name in ordered[:most]}
    if rest := ordered[most:]:
        others = kept.setdefault(OTHERS, [0] * len(series[rest[0]]))
        for name in rest:
            _add_to(others, series[name])
    return kept


def _top(counts: Counter[str], most: int) -> dict[str, int]:
    ordered = counts.most_common()
    kept = dict(ordered[:most])
    if rest := sum(count for _, count in ordered[most:]):
        kept[OTHERS] = kept.get(OTHERS, 0) + rest
    return kept


def _details(question: wire.Forecast, found: Mapping[int, Outlook]) -> dict[int, dict[str, dict[str, int]]]:
    details: dict[int, dict[str, Counter[str]]] = {
        minute: {kind: Counter() for kind in KINDS} for minute in question.details if minute < question.minutes
    }
    if details:
        for start, group, each in _series(found.values(), question):
            for minute, kinds in details.items():
                if count := each.runs[start + minute]:
                    for kind, name in zip(KINDS, group, strict=True):
                        kinds[kind][name] += count
    return {
        minute: {kind: _top(counts, question.names_max) for kind, counts in kinds.items()}
        for minute, kinds in details.items()
    }


def _series(found: Iterable[Outlook], question: wire.Forecast) -> Iterator[tuple[int, Group, Series]]:
    """Series of the tenants asked for, and where in them the time asked for begins."""
    for outlook in found:
        start = (question.from_ms - outlook.book.from_ms) // MINUTE_MS
        for group, series in outlook.book.groups.items():
            if question.tenants is None or group[0] in question.tenants:
                yield start, group, series


def _add_to(sums: list[int], values: Iterable[int]) -> None:
    sums[:] = map(add, sums, values)
