"""What each lane has to do, asked of all owners, and the workers that follow from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from noontide.apps.api.problems import ApiProblem
from noontide.apps.api.settings import ApiSettings
from noontide.apps.forecasting import asked_of, question_of
from noontide.apps.metrics.families import gauges
from noontide.apps.port import wire
from noontide.apps.port.forecasts import TOPICS
from noontide.core.demand import Load, Terms, places_needed, workers_needed
from noontide.records.topics import DEFAULT_LANES

if TYPE_CHECKING:
    from noontide.apps.api.services import Services

log = logging.getLogger("noontide.api")


class Demand(NamedTuple):
    """Loads by lane; missing: slots that nobody answered for, or whose jobs are not looked at yet."""

    loads: dict[str, Load]
    missing: list[int]


async def demand_of(services: Services, *, minutes: int, wait_ms: int) -> Demand:
    """What the lanes have to do in the next minutes."""
    owners = services.owners
    assert owners is not None
    answers, absent = await owners.ask_present(
        range(owners.layout.slots), lambda slots: wire.Loads(slots=slots), wait_ms=wait_ms
    )
    sums: dict[str, tuple[float, ...]] = {}
    for answer in answers:
        for lane, counts in answer.lanes.items() if isinstance(answer, wire.FoundLoads) else ():
            sums[lane] = tuple(map(add, sums.get(lane, (0, 0, 0, 0, 0)), counts))
    question = question_of(services.now_ms(), minutes=minutes, by="lane")
    found, also_absent = await asked_of(owners, question, wait_ms=wait_ms)
    names = {*DEFAULT_LANES, *services.config().lanes, *sums, *found.series} - {TOPICS, ""}
    loads = {name: _load(sums.get(name, (0, 0, 0, 0, 0)), found.series.get(name, [0] * minutes)) for name in names}
    return Demand(dict(sorted(loads.items())), sorted({*absent, *also_absent, *found.pending}))


def _load(counts: tuple[float, ...], coming: list[int]) -> Load:
    ready, queued, running, ended, took_ms = counts
    return Load(int(ready), int(queued), int(running), took_ms / ended if ended else None, coming)


def demand_view(demand: Demand, terms: Terms, missing_partitions: Collection[int]) -> dict[str, Any]:
    """As the API shows it."""
    return {
        "concurrency": terms.concurrency,
        "utilisation": terms.utilisation,
        "complete": not missing_partitions,
        "missing_partitions": sorted(missing_partitions),
        "lanes": {lane: _lane_view(load, terms) for lane, load in demand.loads.items()},
    }


def _lane_view(load: Load, terms: Terms) -> dict[str, Any]:
    return {
        "workers": workers_needed(load, terms),
        "places": round(places_needed(load, terms), 2),
        "ready": load.ready,
        "queued": load.queued,
        "running": load.running,
        "coming": sum(load.coming),
        "fullest_minute": max(load.coming, default=0),
        "mean_ms": None if load.mean_ms is None else round(load.mean_ms, 1),
    }


def terms_of(settings: ApiSettings, concurrency: int | None = None) -> Terms:
    """How workers are counted here."""
    return Terms(concurrency or settings.scaling_concurrency, settings.scaling_utilisation_percent / 100)


class DemandMetrics(Collector):
    """The workers needed, asked for again and again while the metrics are served. The last answer is what is shown."""

    def __init__(self, services: Callable[[], Services], settings: ApiSettings) -> None:
        self._services = services
        self._settings = settings
        self._last: Demand | None = None

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            try:
                self._last = await demand_of(
                    self._services(), minutes=self._settings.scaling_minutes, wait_ms=self._settings.partial_wait_ms
                )
            except ApiProblem as problem:
                log.debug("demand: %s", problem)
            await asyncio.sleep(self._settings.scaling_refresh_ms / 1_000)

    def collect(self) -> Iterable[Metric]:
        """Both families; nothing before the first answer."""
        if self._last is None:
            return
        terms = terms_of(self._settings)
        loads = self._last.loads.items()
        yield gauges(
            "noontide_workers_needed",
            "Workers that a lane needs in the next minutes; see /v1/scaling.",
            ["lane"],
            {(lane,): float(workers_needed(load, terms)) for lane, load in loads},
        )
        yield gauges(
            "noontide_places_needed",
            "Runs that have to be under way at a time for that.",
            ["lane"],
            {(lane,): places_needed(load, terms) for lane, load in loads},
        )
