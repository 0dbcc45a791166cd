"""How many requests were answered and how long they took, by route; a scope on the way tells the route's template."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Traffic(Collector):
    """Counts of one process; for the event loop's thread."""

    def __init__(self) -> None:
        self._answered: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self._answered[method, route, status] += 1
        buckets = self._buckets.get(route)
        if buckets is None:
            buckets = self._buckets[route] = [0] * (len(BOUNDS_S) + 1)
        buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment] # a Counter of seconds

    def collect(self) -> Iterator[Metric]:
        """The families."""
        answered = CounterMetricFamily(
            "noontide_api_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in self._answered.items():
            answered.add_metric([method, route, str(status)], count)
        yield answered
        took = HistogramMetricFamily("noontide_api_request_seconds", "From the head to the answer.", labels=["route"])
        for route, buckets in self._buckets.items():
            total, cumulated = 0, []
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), buckets, strict=True):
                total += count
                cumulated.append((bound, total))
            took.add_metric([route], cumulated, self._seconds[route])
        yield took
