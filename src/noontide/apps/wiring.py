"""The only file that names concrete adapters: what a scheduler process is made of."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from noontide.actors.breaker import Breakers
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.disk_watch import DiskWatch
from noontide.actors.effects import Names
from noontide.actors.inputs import WORKER_EVENTS
from noontide.actors.pulse import Pulses, new_pulses
from noontide.actors.runner import RunnerPorts, SlotRunner
from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot_ports import to_nobody
from noontide.actors.standby import CopyBudget, Standby, StandbyPorts
from noontide.actors.supervisor import Supervisor
from noontide.adapters.kafka.assignor import Rules
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.courier import KafkaCourier
from noontide.adapters.kafka.feed import STREAM, ForkedFeed, KafkaFeed
from noontide.adapters.kafka.inspector import KafkaInspector
from noontide.adapters.kafka.membership import KafkaMembership, MembershipOptions
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.adapters.kafka.slot_log import KafkaSlotLog
from noontide.adapters.kafka.topic_watch import warn_of_differences
from noontide.adapters.kafka.topics import check_layout, read_meta
from noontide.adapters.rocksdb.copies import LocalCopies
from noontide.adapters.rocksdb.index import RocksIndex
from noontide.adapters.rocksdb.options import SharedMemory
from noontide.adapters.system_clock import BrokerClock
from noontide.adapters.telemetry.spans import open_spans
from noontide.apps.memory import calm_garbage_collection
from noontide.apps.metrics.scheduler import SchedulerMetrics
from noontide.apps.metrics.serving import MetricsOptions, serve_metrics
from noontide.apps.port.server import PortOptions, PortThread
from noontide.apps.port_wiring import PortPlace, name_of_process, open_internal_port
from noontide.ports.due_index import IndexFailed
from noontide.ports.record_log import Feed, TopicPartition
from noontide.records.config import ConfigView
from noontide.records.rows import FORMAT_ID
from noontide.records.topics import Layout

log = logging.getLogger("noontide.scheduler")
MIB = 1024 * 1024
GROUP = "schedulers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """What a scheduler process is started with.

    data: folder of the indexes, one per slot (a cache: may be deleted while the process is down).
    block_cache_bytes, write_buffers_bytes: RocksDB's memory, shared by all slots of the process.
    port: where API nodes can ask; None = nowhere.
    transaction_timeout_ms: after which the broker aborts what a dead owner left open, if nobody takes over before.
    """

    connection: KafkaConnection
    prefix: str
    data: Path
    group: str = GROUP
    block_cache_bytes: int = 128 * MIB
    write_buffers_bytes: int = 128 * MIB
    transaction_timeout_ms: int = 10_000
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    metrics: MetricsOptions | None = None
    port: PortOptions | None = None


def find_layout(connection: KafkaConnection, prefix: str) -> Layout:
    """The layout this installation was created with. Raises LayoutMismatch or ClusterError with what to do."""
    meta = read_meta(connection, Layout(prefix=prefix))
    layout = Layout(prefix=prefix) if meta is None else meta.layout(prefix)
    check_layout(connection, layout)
    return layout


async def run_scheduler(options: SchedulerOptions, stop: asyncio.Event) -> None:
    """Run a scheduler until `stop` is set."""
    layout = await asyncio.to_thread(find_layout, options.connection, options.prefix)
    async with AsyncExitStack() as stack:
        looking = asyncio.create_task(asyncio.to_thread(warn_of_differences, options.connection, layout))
        stack.push_async_callback(asyncio.wait, {looking})
        clock, pulses = BrokerClock(), new_pulses()
        supervisor = await _supervisor(options, layout, stack, clock=clock, pulses=pulses)
        collector = SchedulerMetrics(supervisor, pulses, clock)
        stack.enter_context(serve_metrics(options.metrics, collector, role="scheduler"))
        settings = options.settings
        membership = KafkaMembership(
            options.connection,
            rules=Rules(
                slots=layout.slots,
                standby_replicas=settings.standby_replicas,
                warm_lag_max=settings.warm_lag_max,
            ),
            options=MembershipOptions(
                group=f"{layout.prefix}{options.group}",
                topic=layout.name("state"),
                host=socket.gethostname(),
                session_timeout_ms=settings.session_timeout_ms,
            ),
            standing=supervisor.standing,
        )
        calm_garbage_collection()
        await supervisor.run(membership, stop)


async def _supervisor(
    options: SchedulerOptions, layout: Layout, stack: AsyncExitStack, *, clock: BrokerClock, pulses: Pulses
) -> Supervisor:
    connection, settings = options.connection, options.settings
    feed = _feed(connection, layout, stack)
    inspector = KafkaInspector(connection)
    stack.push_async_callback(inspector.close)
    courier = KafkaCourier(connection)
    stack.push_async_callback(courier.close)
    replay = KafkaReplay(connection)
    copies = LocalCopies(options.data, layout.slots)
    disk = DiskWatch(copies.probe, clock.boot_ms, settings)

    def config_changed(view: ConfigView) -> None:
        for topic in view.topics:
            inspector.facts(topic)
        supervisor.config_changed(view)

    def batch_limit(topic: str) -> int:
        facts = None if topic.startswith(layout.prefix) else inspector.facts(topic)
        return MIB if facts is None else facts.max_message_bytes

    directory = ConfigDirectory(
        TopicPartition(layout.name("config"), 0), feed=feed, replay=replay, on_change=config_changed
    )
    made: list[Supervisor] = []
    port = await _port(options, layout, made, stack)
    spans = stack.enter_context(open_spans(os.environ, service="noontide-scheduler"))
    ports = RunnerPorts(
        owner=name_of_process(),
        clock=clock,
        config=directory,
        breakers=Breakers(inspector, settings),
        feed=feed,
        replay=replay,
        courier=courier,
        open_log=_log_opener(options, layout, clock, batch_limit),
        open_index=_index_opener(options, copies, disk),
        pulses=pulses,
        url=None if port is None else port.url,
        decided=to_nobody if port is None else port.decided,
        spans=None if spans is None else spans.take,
    )
    supervisor = _supervisor_of(layout, ports, settings, copies=copies, disk=disk)
    made.append(supervisor)
    await directory.start()
    return supervisor


def _feed(connection: KafkaConnection, layout: Layout, stack: AsyncExitStack) -> Feed:
    """What the slots read: requests and signals together, and what workers say."""
    loop = asyncio.get_running_loop()
    requests = KafkaFeed(connection, loop=loop, gathering=STREAM)
    events = KafkaFeed(connection, loop=loop)
    stack.push_async_callback(requests.close)
    stack.push_async_callback(events.close)
    return ForkedFeed(requests, events, is_urgent=lambda topic: layout.short(topic).startswith(WORKER_EVENTS))


async def _port(
    options: SchedulerOptions, layout: Layout, made: list[Supervisor], stack: AsyncExitStack
) -> PortThread | None:
    """The port for API nodes if it is wanted; the supervisor that is made later is what it asks."""
    if options.port is None:
        return None
    place = PortPlace(connection=options.connection, layout=layout, data=options.data)
    return await stack.enter_async_context(
        open_internal_port(place, options.port, options.settings, runners=lambda: made[0].runners if made else {})
    )


def _log_opener(
    options: SchedulerOptions, layout: Layout, clock: BrokerClock, batch_limit: Callable[[str], int]
) -> Callable[[int], KafkaSlotLog]:
    """Makes the transactional writer of a slot."""
    return lambda slot: KafkaSlotLog(
        options.connection,
        transactional_id=f"{layout.prefix}slot-{slot}",
        transaction_timeout_ms=options.transaction_timeout_ms,
        batch_limit=batch_limit,
        time_source=clock,
    )


def _index_opener(options: SchedulerOptions, copies: LocalCopies, disk: DiskWatch) -> Callable[[int], RocksIndex]:
    """Opens the index of a slot; all of them share the memory."""
    memory = SharedMemory(block_cache_bytes=options.block_cache_bytes, write_buffers_bytes=options.write_buffers_bytes)

    def open_index(slot: int) -> RocksIndex:
        try:
            return RocksIndex(copies.folder_of(slot), format_id=FORMAT_ID, shared=memory, on_failure=disk.failed)
        except IndexFailed:
            disk.failed()
            raise

    return open_index


def _supervisor_of(
    layout: Layout, ports: RunnerPorts, settings: SchedulerSettings, *, copies: LocalCopies, disk: DiskWatch
) -> Supervisor:
    standby_ports = StandbyPorts(
        process=ports.owner,
        clock=ports.clock,
        replay=ports.replay,
        courier=ports.courier,
        open_index=ports.open_index,
        budget=CopyBudget(settings.standby_cpu_percent),
    )
    return Supervisor(
        lambda slot, index: SlotRunner(Names.of(layout, slot), ports, settings, index=index),
        lambda slot, index: Standby(Names.of(layout, slot), standby_ports, settings, index=index),
        settings,
        copies=copies,
        disk=disk,
    )
