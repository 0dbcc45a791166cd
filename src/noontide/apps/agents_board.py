"""What the agents say, as an API node has read it: usage in hopping windows, the latest alerts, and who was told."""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from noontide.ports.record_log import Doubt, Feed, Incoming, Replay, TopicPartition
from noontide.records.agents_state import JOBS, USAGE, WINDOWS, RowKey, Tally, Window, minute_of
from noontide.records.topics import Layout

ALERTS_MAX: Final = 2_000
"""Alerts that are kept, the latest."""
ALERTS_BACK: Final = 200
"""Records that are read back of each partition at the start; it has 12."""
TOLD_MAX: Final = 20_000
_MINUTES_MAX: Final = max(window.minutes + window.pane_minutes for window in WINDOWS)
LOOK_AGAIN_S: Final = 30.0
"""Between two looks for topics that do not exist yet."""
_Pane = tuple[str, int]
_Followed = tuple[str, Callable[[list[Incoming]], None], int | None]
"""Topic, who takes its records, and how many are read back; None = all."""
log = logging.getLogger("noontide.api")


class Alert(NamedTuple):
    """An alert; `at_ms` when the log has it. Compares by time."""

    at_ms: int
    alert_id: str
    said: Mapping[str, Any]


class Usage(NamedTuple):
    """What some runs came to. job_id: None for all jobs of the tenant."""

    tenant: str
    job_id: str | None
    tally: Tally


class UsageBook:
    """Rows of `agents-state`. Rows of tenants are kept as numbers, those of jobs as bytes until somebody asks."""

    def __init__(self) -> None:
        self.newest_ms = 0
        self._tenants: dict[_Pane, dict[int, dict[str, Tally]]] = defaultdict(dict)
        self._jobs: dict[_Pane, dict[tuple[int, int], bytes]] = defaultdict(dict)

    def take(self, records: Iterable[Incoming], now_minute: int) -> None:
        """Read more rows; those that no window covers any more are forgotten."""
        for record in records:
            key = RowKey.of((record.key or b"").decode(errors="replace"))
            if key is not None and key.pane > now_minute - _MINUTES_MAX:
                self._keep(key, record.value)
                self.newest_ms = max(self.newest_ms, record.appended_ms)
        oldest = {window.name: window.first_pane(now_minute) for window in WINDOWS}
        for kept in (self._tenants, self._jobs):
            for at in [at for at in kept if at[1] < oldest.get(at[0], now_minute)]:
                del kept[at]

    def _keep(self, key: RowKey, value: bytes | None) -> None:
        at = (key.window, key.pane)
        if key.kind == JOBS and value is not None:
            self._jobs[at][key.partition, key.number] = value
        elif key.kind == JOBS:
            self._jobs[at].pop((key.partition, key.number), None)
        elif key.kind == USAGE:
            row = orjson.loads(value)["tenants"] if value is not None else {}
            self._tenants[at][key.partition] = {tenant: Tally.of(stored) for tenant, stored in row.items()}

    def tenants(self, window: Window, now_minute: int, seen: Iterable[str] | None) -> list[Usage]:
        """By tenant, of the window that ends now; seen: None = all."""
        wanted = None if seen is None else set(seen)
        found: dict[str, Tally] = defaultdict(Tally)
        for at in self._covered(self._tenants, window, now_minute):
            for tenants in self._tenants[at].values():
                for tenant, tally in tenants.items():
                    if wanted is None or tenant in wanted:
                        found[tenant].add(tally)
        return [Usage(tenant, None, found[tenant]) for tenant in sorted(found)]

    def job_rows(self, window: Window, now_minute: int, job_id: str | None = None) -> list[bytes]:
        """The rows of jobs of the window that ends now; of those that may name a job."""
        mark = b"" if job_id is None else b'"%b"' % job_id.encode()
        covered = self._covered(self._jobs, window, now_minute)
        return [row for at in covered for row in self._jobs[at].values() if mark in row]

    @staticmethod
    def _covered(kept: Iterable[_Pane], window: Window, now_minute: int) -> Iterator[_Pane]:
        oldest, newest = window.first_pane(now_minute), window.pane_of(now_minute)
        return (at for at in kept if at[0] == window.name and oldest <= at[1] <= newest)


def job_usage(rows: Iterable[bytes], seen: Iterable[str] | None, job_id: str | None = None) -> list[Usage]:
    """Rows of jobs put together, by job; for a thread when there are many."""
    wanted = None if seen is None else set(seen)
    found: dict[tuple[str, str], Tally] = defaultdict(Tally)
    for row in rows:
        for tenant, jobs in orjson.loads(row)["jobs"].items():
            if wanted is None or tenant in wanted:
                its = jobs.items() if job_id is None else [(job_id, jobs[job_id])] if job_id in jobs else []
                for job, stored in its:
                    found[tenant, job].add(Tally.of(stored))
    return [Usage(tenant, job, tally) for (tenant, job), tally in found.items()]


class AlertBook:
    """The latest alerts, and what became of them by channel."""

    def __init__(self) -> None:
        self._alerts: list[Alert] = []
        self._ids: set[str] = set()
        self._told: OrderedDict[str, Mapping[str, Any]] = OrderedDict()

    def take(self, records: Iterable[Incoming]) -> None:
        """Read more alerts; one that was written twice is there once."""
        for record in records:
            said = _object(record.value)
            alert_id = str(said.get("alert_id"))
            if not {"alert_id", "kind", "job_id", "tenant"} <= said.keys() or alert_id in self._ids:
                continue
            insort(self._alerts, Alert(record.appended_ms, alert_id, said), key=lambda alert: alert.at_ms)
            self._ids.add(alert_id)
        for forgotten in self._alerts[: max(0, len(self._alerts) - ALERTS_MAX)]:
            self._ids.discard(forgotten.alert_id)
        del self._alerts[: max(0, len(self._alerts) - ALERTS_MAX)]

    def take_told(self, records: Iterable[Incoming]) -> None:
        """Read more of what became of alerts."""
        for record in records:
            channels = _object(record.value).get("channels")
            if isinstance(channels, dict):
                self._told[(record.key or b"").decode(errors="replace")] = channels
        while len(self._told) > TOLD_MAX:
            self._told.popitem(last=False)

    def latest(self) -> Iterator[Alert]:
        """From the newest on."""
        return iter(self._alerts[::-1])

    def told(self, alert_id: str) -> Mapping[str, Any] | None:
        """By channel: None when it took the alert, else why not; None when nobody has tried yet."""
        return self._told.get(alert_id)


class AgentsBoard:
    """Follows the three topics; those that do not exist yet as soon as they do."""

    def __init__(self, layout: Layout, *, feed: Feed, replay: Replay, now_ms: Any) -> None:
        self.usage = UsageBook()
        self.alerts = AlertBook()
        self._layout = layout
        self._feed = feed
        self._replay = replay
        self._now_ms = now_ms
        self._missing: list[_Followed] = [
            ("agents-state", self._take_state, None),
            ("agents-told", self.alerts.take_told, None),
            ("alerts", self.alerts.take, ALERTS_BACK),
        ]

    async def run(self) -> None:
        """Look for topics that did not exist at the start, until there is none."""
        while self._missing:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                await self.start()
            except Doubt as doubt:
                log.debug("agents_topics_not_read: %s", doubt)

    async def start(self) -> None:
        """Begin to follow; what is there arrives soon after. Topics that do not exist are left out. Raises Doubt."""
        found = []
        for followed in self._missing:
            topic, _, back = followed
            name, count = self._layout.name(topic), self._layout.topic_partitions(topic)
            places = [TopicPartition(name, number) for number in range(count)]
            ends = await asyncio.to_thread(self._replay.stable_offsets, places)
            found.append((followed, {at: 0 if back is None else max(0, end - back) for at, end in ends.items()}))
        self._missing = [followed for followed, starts in found if not starts]
        for (_, sink, _), starts in found:  # only when all is known: who starts again must not be attached already
            if starts:
                self._feed.attach(sink, starts)

    def _take_state(self, records: list[Incoming]) -> None:
        self.usage.take(records, minute_of(self._now_ms()))


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        found = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
