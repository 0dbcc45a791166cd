"""What an agents process is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from noontide.actors.config_directory import ConfigDirectory
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.courier import KafkaCourier
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.rocksdb.folder import IndexFolder
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.agents.channels import Channels, MailSettings, NotTold, TellSettings
from noontide.apps.agents.rules import AlertSettings
from noontide.apps.agents.service import SEND_TIMEOUT_MS, Agents, AgentsParts
from noontide.apps.agents.wishes import Wishes
from noontide.apps.metrics.families import Labels, counters, gauges
from noontide.apps.metrics.serving import MetricsOptions, serve_metrics
from noontide.apps.patience import patiently
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.agents_state import COUNTS, WINDOWS, minute_of, quantile_ms
from noontide.records.topics import Layout

_QUANTILES: Final = (0.5, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsOptions:
    """What an agents process is started with. data: its tables, which the log can rebuild."""

    connection: KafkaConnection
    layout: Layout
    data: Path
    mail: MailSettings = field(default_factory=MailSettings)
    tell: TellSettings = field(default_factory=TellSettings)
    settings: AlertSettings = field(default_factory=AlertSettings)
    metrics: MetricsOptions | None = None


async def run_agents(options: AgentsOptions, stop: asyncio.Event) -> None:
    """Run the agents until `stop` is set. Raises IndexInUse when another process has the folder."""
    connection, layout = options.connection, options.layout
    async with AsyncExitStack() as stack:
        stack.callback(IndexFolder(options.data).release)
        feed = KafkaFeed(connection, loop=asyncio.get_running_loop())
        stack.push_async_callback(feed.close)
        courier = KafkaCourier(connection)
        stack.push_async_callback(courier.close)
        replay = KafkaReplay(connection)
        place = TopicPartition(layout.name("config"), 0)
        directory = ConfigDirectory(place, feed=feed, replay=replay, on_change=lambda _view: None)
        await patiently(directory.start)

        async def publish(topic: str, key: bytes, value: bytes) -> None:
            sent = await courier.send(topic, Record(key, value), partition=None, timeout_ms=SEND_TIMEOUT_MS)
            if sent.receipt is None:
                raise NotTold(f"{topic}: {sent.error}")

        channels = Channels(
            lambda name: directory.view.documents.get(f"channel/{name}"),
            publish,
            mail=options.mail,
            limits=options.tell,
        )
        stack.push_async_callback(channels.close)
        wishes = Wishes(layout, feed, replay)
        await patiently(wishes.start)
        parts = AgentsParts(wishes=wishes, channels=channels, courier=courier, settings=options.settings)
        agents = Agents(connection, layout, parts, folder=options.data)
        stack.enter_context(serve_metrics(options.metrics, AgentsMetrics(agents), role="agents"))
        await agents.run(stop)


class AgentsMetrics(Collector):
    """Metrics of one agents process; what it says of usage is of the partitions it reads."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def collect(self) -> Iterable[Metric]:
        """All families."""
        pulse = self._agents.pulse
        yield counters("noontide_agents_read", "Executions that were read.", [], {(): pulse.read})
        yield counters("noontide_agents_unreadable", "Records that are no executions.", [], {(): pulse.unreadable})
        behind: dict[Labels, float] = {(): pulse.behind_ms / 1000}
        yield gauges("noontide_agents_behind_seconds", "Age of the newest record of the latest batch.", [], behind)
        kinds: dict[Labels, float] = {(kind,): count for kind, count in pulse.alerts.copy().items()}
        yield counters("noontide_alerts", "Alerts that were raised.", ["kind"], kinds)
        told: dict[Labels, float] = {(outcome,): count for outcome, count in pulse.told.copy().items()}
        yield counters("noontide_alerts_told", "Alerts by whether all their channels took them.", ["outcome"], told)
        yield from self._usage()

    def _usage(self) -> Iterable[Metric]:
        runs, spans = dict[Labels, float](), dict[Labels, float]()
        for tenant, tally in self._agents.ledger.usage(WINDOWS[0], minute_of(wall_now_ms())).items():
            runs |= {(tenant, state): count for state, count in zip(COUNTS, tally.counts, strict=True)}
            for name, spread in (("late", tally.late_ms), ("ran", tally.ran_ms)):
                for share in _QUANTILES:
                    if (found := quantile_ms(spread, share)) is not None:
                        spans[tenant, name, str(share)] = found / 1000
        yield gauges("noontide_usage_runs", "Executions of the last five minutes.", ["tenant", "state"], runs)
        yield gauges(
            "noontide_usage_seconds", "Quantiles of the last five minutes.", ["tenant", "of", "quantile"], spans
        )
