"""A breaker per registered topic and per lane: a sick one must not hold up the slots that write to it.

closed ──(a write failed)──> open ──(pause over and inspection well)──> half-open ──(one record written)──> closed
                              ▲                                            │
                              └──────────────(a write failed: twice the pause)
"""

from __future__ import annotations

from dataclasses import dataclass

from noontide.actors.settings import SchedulerSettings
from noontide.actors.world import Route
from noontide.ports.record_log import TopicInspector
from noontide.records.config import ConfigView

UNBOUNDED = 1 << 30


@dataclass(slots=True)
class _Trip:
    until_ms: int
    pause_ms: int
    reason: str
    probing: bool = False


class Breakers:
    """The routes of all registered topics of a process."""

    def __init__(self, inspector: TopicInspector, settings: SchedulerSettings) -> None:
        self._inspector = inspector
        self._settings = settings
        self._trips: dict[str, _Trip] = {}

    def routes(self, config: ConfigView, now_ms: int) -> dict[str, Route]:
        """What may be written now, per registered topic. A half-open one lets a single record of one cycle through."""
        return {topic: self._route(topic, now_ms) for topic in config.topics}

    def allowance(self, topic: str, now_ms: int) -> int:
        """How many records of one cycle a topic of ours may get; one that was not inspected yet is trusted."""
        if self._inspector.facts(topic) is None and topic not in self._trips:
            return UNBOUNDED
        route = self._route(topic, now_ms)
        return route.allowance if route.problem is None else 0

    def trip(self, topic: str, reason: str, now_ms: int) -> None:
        """A write to the topic failed or hung."""
        known = self._trips.get(topic)
        if known is not None and now_ms < known.until_ms:
            return
        first, longest = self._settings.breaker_open_ms, self._settings.breaker_open_max_ms
        pause_ms = first if known is None else min(longest, 2 * known.pause_ms)
        self._trips[topic] = _Trip(now_ms + pause_ms, pause_ms, reason)
        self._inspector.distrust(topic, reason)

    def succeeded(self, topic: str) -> None:
        """A transaction with records for the topic is committed."""
        self._trips.pop(topic, None)

    def probe_begins(self, topic: str) -> None:
        """A cycle takes the record that a half-open topic may get."""
        if (trip := self._trips.get(topic)) is not None:
            trip.probing = True

    def probe_ends(self, topic: str) -> None:
        """The cycle that probed is over, whatever came of it."""
        if (trip := self._trips.get(topic)) is not None:
            trip.probing = False

    def open_topics(self) -> dict[str, str]:
        """Topics that are not trusted, and why."""
        return {topic: trip.reason for topic, trip in self._trips.items()}

    def _route(self, topic: str, now_ms: int) -> Route:
        facts = self._inspector.facts(topic)
        if facts is None:
            return Route(1, 0, "not inspected yet", 0)
        trip = self._trips.get(topic)
        if trip is not None and (now_ms < trip.until_ms or trip.probing):
            return Route(facts.partitions, facts.max_message_bytes, facts.problem or trip.reason, 0)
        return Route(facts.partitions, facts.max_message_bytes, facts.problem, UNBOUNDED if trip is None else 1)
