"""What an API process tells: requests by route and answer, and how long they took."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from noontide.adapters.system_clock import boot_ms
from noontide.apps.metrics.families import Labels, counters, gauges, histograms
from noontide.core.spread import Spread

OTHER = "other"
"""The route of what matches none, so that strangers cannot make new labels."""


class MeasuredApp(Collector):
    """An ASGI application around another one. Streams count when they end, by the time to their first byte."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._answers: Counter[Labels] = Counter()
        self._took_ms: defaultdict[Labels, Spread] = defaultdict(Spread)
        self._under_way = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on and note what became of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_ms, status, first_ms = boot_ms(), "500", 0.0

        async def noted(message: Any) -> None:
            nonlocal status, first_ms
            if message["type"] == "http.response.start":
                status, first_ms = str(message["status"]), boot_ms()
            await send(message)

        self._under_way += 1
        try:
            await self._app(scope, receive, noted)
        finally:
            self._under_way -= 1
            route = getattr(scope.get("route"), "path", OTHER)
            self._answers[scope["method"], route, status] += 1
            self._took_ms[(route,)].add((first_ms or boot_ms()) - began_ms)

    def collect(self) -> Iterable[Metric]:
        """All families."""
        yield counters(
            "noontide_api_requests",
            "Requests that were answered.",
            ["method", "route", "status"],
            {label: float(count) for label, count in self._answers.copy().items()},
        )
        yield histograms("noontide_api_seconds", "Time to the first byte of an answer.", ["route"], dict(self._took_ms))
        yield gauges("noontide_api_under_way", "Requests that are not answered yet.", [], {(): self._under_way})
