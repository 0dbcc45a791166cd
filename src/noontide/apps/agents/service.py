"""The application: an agent that judges and counts `executions`, and one that tells what is on `alerts`.

Both take batches of committed records of one partition and let them go only when everything that follows is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.system_clock import boot_ms, wall_now_ms
from noontide.apps.agents.channels import Alert, Channels
from noontide.apps.agents.ledger import Ended, Ledger, ended_of
from noontide.apps.agents.memory import Healths, Told
from noontide.apps.agents.rules import AlertSettings, judge, silent
from noontide.apps.agents.transport import STORE, UNTOUCHED, Batch, committed_app
from noontide.apps.agents.wishes import Wishes
from noontide.core.errors import NoontideError
from noontide.ports.record_log import Courier, Doubt, Record
from noontide.records.agents_state import minute_of
from noontide.records.topics import Layout

SEND_TIMEOUT_MS: Final = 10_000
AGAIN_S: Final = 1.0
SILENCE_LOOK_S: Final = 2.0
CAUGHT_UP_MS: Final = 5_000
"""A partition of which nothing came for so long has been read to its end."""

log = logging.getLogger("noontide.agents")


@dataclass(slots=True)
class AgentsPulse:
    """What the agents tell about themselves. behind_ms: age of the newest record of the latest batch."""

    read: int = 0
    unreadable: int = 0
    behind_ms: int = 0
    alerts: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsParts:
    """What the agents work with."""

    wishes: Wishes
    channels: Channels
    courier: Courier
    settings: AlertSettings = field(default_factory=AlertSettings)


class Agents:
    """The agents of one process. The group is `<prefix>agents`; processes share its partitions."""

    def __init__(self, connection: KafkaConnection, layout: Layout, parts: AgentsParts, *, folder: Path) -> None:
        self.pulse = AgentsPulse()
        self.ledger = Ledger()
        self._healths = Healths()
        self._told = Told()
        self._layout = layout
        self._parts = parts
        self._seen_ms: dict[int, float] = {}  # by partition that is read here: when the latest batch came
        self._silent: dict[str, object] = {}  # by job: id of the alert that nothing ran
        partitions = layout.topic_partitions("executions")
        self._app = committed_app(f"{layout.prefix}agents", connection, folder=folder, partitions=partitions)
        self._state = self._table("agents-state")
        self._told_table = self._table("agents-told")
        self._agent("executions", self._read)
        self._agent("alerts", self._announce)
        self._app.on_partitions_revoked.connect(self._revoked)  # type: ignore[arg-type] # it is called by name
        self._app.on_rebalance_complete.connect(self._recovered)  # type: ignore[arg-type]

    def _table(self, topic: str) -> Any:
        partitions = self._layout.topic_partitions(topic)
        kinds: dict[str, Any] = {"partitions": partitions, "key_type": bytes, "value_type": bytes}  # raw, both
        changelog = self._app.topic(self._layout.name(topic), compacting=True, **kinds)
        return self._app.Table(topic, default=None, changelog_topic=changelog, options=dict(STORE), **kinds)

    def _agent(self, topic: str, take: Any) -> None:
        channel = self._app.topic(
            self._layout.name(topic), key_serializer=UNTOUCHED, value_serializer=UNTOUCHED, value_type=None
        )
        self._app.agent(channel, name=topic, concurrency=1)(take)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. Raises NoontideError when the application crashes."""
        async with self._app:
            tasks = {
                asyncio.create_task(stop.wait()),
                asyncio.create_task(self._app.wait_until_stopped()),
                asyncio.create_task(self._look_for_silence()),
            }
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        if self._app.crash_reason is not None:
            raise NoontideError(f"the agents stopped: {self._app.crash_reason}") from self._app.crash_reason

    async def _read(self, stream: Any) -> AsyncIterator[None]:
        async for batch in stream:
            await self._digest(batch)
            yield

    async def _digest(self, batch: Batch) -> None:
        """What follows from a batch: alerts first, then what is remembered."""
        self.pulse.read += len(batch)
        self.pulse.behind_ms = max(0, wall_now_ms() - batch[-1].timestamp)
        ended = [found for each in batch if (found := ended_of(each.partition, each.offset, each.value)) is not None]
        self.pulse.unreadable += len(batch) - len(ended)
        await self._know_wishes(ended)
        alerts, changes = self._judged(ended)
        await self._publish(alerts)
        self._write(self._state, changes)
        self._write(self._state, self.ledger.count(ended, now_minute=minute_of(wall_now_ms())))
        self._seen_ms[batch.partition] = boot_ms()

    async def _know_wishes(self, ended: Iterable[Ended]) -> None:
        """Read definitions that are as new as a run that died."""
        wishes = self._parts.wishes
        unknown = {each.execution.job_id for each in ended if each.execution.state == "dead"}
        unknown = {job_id for job_id in unknown if not wishes.of(job_id).on}
        while unknown:
            try:
                await wishes.catch_up(unknown)
            except Doubt as doubt:
                log.warning("wishes_unknown: %s; trying again", doubt)
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def _judged(self, ended: Iterable[Ended]) -> tuple[list[dict[str, object]], dict[str, Any]]:
        alerts: list[dict[str, object]] = []
        changed: set[str] = set()
        for each in ended:
            job_id = each.execution.job_id
            wish = self._parts.wishes.of(job_id)
            if not wish.on:
                continue
            before = self._healths.of(job_id)
            judged = judge(before, wish, each, self._parts.settings)
            alerts += judged.alerts
            if judged.health != before:
                self._healths.put(each.partition, job_id, judged.health)
                changed.add(job_id)
        return alerts, self._healths.rows(changed)

    def _write(self, table: Any, changes: Mapping[str, Any]) -> None:
        for key, row in changes.items():
            if row is not None:
                table[key.encode()] = orjson.dumps(row)
            else:
                table.pop(key.encode(), None)

    async def _publish(self, alerts: Iterable[Alert]) -> None:
        await asyncio.gather(*(self._publish_one({**alert, "at": wall_now_ms()}) for alert in alerts))

    async def _publish_one(self, alert: Alert) -> None:
        self.pulse.alerts[str(alert["kind"])] += 1
        record = Record(str(alert["job_id"]).encode(), orjson.dumps(alert))
        topic = self._layout.name("alerts")
        while True:
            delivery = await self._parts.courier.send(topic, record, partition=None, timeout_ms=SEND_TIMEOUT_MS)
            if delivery.receipt is not None:
                return
            log.warning("alert_not_published alert=%s: %s", alert["alert_id"], delivery.error)
            if not delivery.retriable:
                return
            await asyncio.sleep(AGAIN_S)

    async def _announce(self, stream: Any) -> AsyncIterator[None]:
        async for batch in stream:
            fresh = self._told.fresh(batch)
            told = await asyncio.gather(*(self._tell(alert) for alert in fresh))
            self._write(self._told_table, self._told.rows(batch.partition, fresh, told, now_ms=wall_now_ms()))
            yield

    async def _tell(self, alert: Alert) -> dict[str, str | None]:
        """What became of it by channel: None, or why it was not sent."""
        outcome = await self._parts.channels.tell(alert)
        failed = any(outcome.values())
        self.pulse.told["failed" if failed else "sent"] += 1
        return outcome

    async def _look_for_silence(self) -> None:
        """Alerts of jobs of which nothing ended for too long, once each, by the process that reads their executions."""
        while True:
            await asyncio.sleep(SILENCE_LOOK_S)
            now_ms, caught_up_ms = wall_now_ms(), boot_ms() - CAUGHT_UP_MS
            found = []
            for job_id, wish in self._parts.wishes.all():
                slot = self._layout.slot_of(self._layout.partition_of(job_id))
                if self._seen_ms.get(slot, caught_up_ms) < caught_up_ms:
                    alert = silent(job_id, wish, self._healths.of(job_id), now_ms)
                    if alert is not None and alert["alert_id"] != self._silent.get(job_id):
                        found.append(alert)
            await self._publish(found)
            self._silent.update({str(alert["job_id"]): alert["alert_id"] for alert in found})

    async def _revoked(self, _app: Any, revoked: Any, **_: Any) -> None:
        for place in revoked:
            if place.topic == self._layout.name("executions"):
                self.ledger.forget(place.partition)
                self._healths.forget(place.partition)
                self._seen_ms.pop(place.partition, None)

    async def _recovered(self, _app: Any, **_: Any) -> None:
        """Tables hold what their topics say, and streams have not begun yet."""
        rows = _rows(self._state)
        self.ledger.load(rows)
        self._healths.load(rows, lambda job_id: self._layout.slot_of(self._layout.partition_of(job_id)))
        self._told.load(_rows(self._told_table))
        executions = self._layout.name("executions")
        mine = {place.partition for place in self._app.consumer.assignment() if place.topic == executions}
        self._seen_ms = {each: self._seen_ms.get(each, boot_ms()) for each in mine}
        log.info("agents_ready partitions=%s rows=%d", ",".join(map(str, sorted(mine))), len(rows))


def _rows(table: Any) -> list[tuple[str, Any]]:
    return [(key.decode(), orjson.loads(row)) for key, row in table.items()]
