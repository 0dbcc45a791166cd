"""The scheduler with buttons: real slots over a log in memory, and a clock that moves when it is told to.

    async with MemoryStage() as stage:
        stage.register("orders")
        stage.put(job("often", every("PT10S")))
        await stage.advance(25_000)
        assert len(stage.delivered("orders")) == 2

Nothing sleeps and nothing is random: the same calls give the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, Self

import orjson

from noontide.actors.breaker import Breakers
from noontide.actors.config_directory import ConfigDirectory
from noontide.actors.effects import Names
from noontide.actors.restore import Restorer
from noontide.actors.settings import SchedulerSettings
from noontide.adapters.memory.faults import CommitFault
from noontide.adapters.memory.index import MemoryIndex
from noontide.adapters.memory.log import MESSAGE_MAX_BYTES, MemoryLog
from noontide.adapters.memory.readers import MemoryFeed, MemoryReplay
from noontide.adapters.memory.targets import MemoryInspector
from noontide.core.cursor import Cursor
from noontide.core.run import Run
from noontide.ports.record_log import Incoming, Record, TopicPartition
from noontide.records import state
from noontide.records.config import ConfigView
from noontide.records.leases import decode_lease
from noontide.records.runs import Invitation, decode_invitation
from noontide.records.topics import DEFAULT_DOMAINS, DEFAULT_LANES, Layout, load_catalogue
from noontide.records.worker_events import Frame, encode_frame
from noontide.records.worker_inbox import Answer, decode_answer
from noontide.testing.memory_slot import MemorySlot, Surroundings
from noontide.testing.virtual_clock import START_MS, VirtualClock

STEPS_MAX: Final = 20_000


class Performer(Protocol):
    """Somebody outside of the scheduler who acts by the stage's clock, such as a worker."""

    def step(self) -> bool:
        """Do what is to be done now; False when there was nothing."""

    def next_wake_ms(self) -> int | None:
        """When there will be something to do; None when nothing is planned."""


_SMALL: Final = Layout(partitions=4, slots=1)
Json = dict[str, object]


class Restless(AssertionError):
    """The slots did not come to rest: something is decided again and again."""


class MemoryStage:
    """One or several slots over one log.

    layout: how many partitions and slots (4 and 1 by default). domains: request topics besides `api` and `public`.
    holds_sends: while True, records for topics that are not registered stay under way until `send`.
    performers: workers and others who act in their time.
    """

    def __init__(
        self,
        *,
        start_ms: int = START_MS,
        layout: Layout = _SMALL,
        settings: SchedulerSettings | None = None,
        domains: Iterable[str] = (),
    ) -> None:
        self.layout = layout
        self.settings = settings or SchedulerSettings()
        self.clock = VirtualClock(start_ms)
        self.log = MemoryLog(now_ms=self.clock.now_ms)
        self.inspector = MemoryInspector(self.log)
        self.breakers = Breakers(self.inspector, self.settings)
        self.holds_sends = False
        self.performers: list[Performer] = []
        self._create_topics({*DEFAULT_DOMAINS, *domains})
        self._config_feed = MemoryFeed(self.log)
        self._config = ConfigDirectory(
            TopicPartition(layout.name("config"), 0),
            feed=self._config_feed,
            replay=MemoryReplay(self.log),
            on_change=lambda _view: None,
        )
        around = Surroundings(
            log=self.log, clock=self.clock, config=self._config, breakers=self.breakers, settings=self.settings
        )
        self.slots = [MemorySlot(Names.of(layout, number), around) for number in range(layout.slots)]
        for domain in domains:
            self.configure(f"domain/{domain}", {})

    async def __aenter__(self) -> Self:
        await self._config.start()
        for each in self.slots:
            await each.take_over()
        await self.run_until_idle()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._config.close()

    # --- what operators do

    def create_topic(self, name: str, *, partitions: int = 1, max_message_bytes: int = MESSAGE_MAX_BYTES) -> None:
        """Create a topic that is not the scheduler's own."""
        self.log.create_topic(name, partitions=partitions, max_message_bytes=max_message_bytes)

    def register(self, topic: str, *, tenants: Iterable[str] = ("*",), max_message_bytes: int | None = None) -> None:
        """Let runs be written to a topic in the transaction that claims them; creates it if need be."""
        if self.log.partitions(topic) is None:
            self.create_topic(topic, max_message_bytes=max_message_bytes or MESSAGE_MAX_BYTES)
        self.configure(f"target/{topic}", {"topic": topic, "tenants": list(tenants)})

    def configure(self, key: str, document: Mapping[str, object] | None, *, unnoticed: bool = False) -> None:
        """Write (or, with None, remove) a configuration. unnoticed: no slot reads it until it has a reason to."""
        value = None if document is None else orjson.dumps(document)
        self.log.append(TopicPartition(self.layout.name("config"), 0), [Record(key.encode(), value)])
        if not unnoticed:
            self._config_feed.pump()

    @property
    def config(self) -> ConfigView:
        """The configuration as the slots see it."""
        return self._config.view

    # --- what clients ask for

    def put(self, definition: Mapping[str, object], *, domain: str = "api", **headers: str) -> int:
        """Define a job; returns the offset of the request. headers: such as if_match, verdict, tenant."""
        return self.request(str(definition["id"]), orjson.dumps(definition), domain=domain, headers=headers)

    def delete(self, job_id: str, *, domain: str = "api", **headers: str) -> int:
        """Delete a job."""
        return self.request(job_id, None, domain=domain, headers=headers)

    def trigger(self, job_id: str, *, domain: str = "api", **members: object) -> int:
        """Run a job by hand. members: such as payload, tenant."""
        return self.request(job_id, orjson.dumps(members), domain=domain, headers={"kind": "trigger"})

    def cancel(self, job_id: str, *, domain: str = "api", **members: object) -> int:
        """End live runs. members: such as run_id, reason."""
        return self.request(job_id, orjson.dumps(members), domain=domain, headers={"kind": "cancel"})

    def request(
        self,
        key: str | None,
        value: bytes | None,
        *,
        domain: str = "api",
        partition: int | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Append any request. partition: None = where the key belongs; headers: `if_match` is written if-match."""
        if partition is None:
            partition = 0 if key is None else self.layout.partition_of(key)
        at = TopicPartition(self.layout.name("requests", domain=domain), partition)
        named = [(name.replace("_", "-"), value.encode()) for name, value in headers.items()]
        record = Record(None if key is None else key.encode(), value, named)
        return self.log.append(at, [record]).first_offset

    # --- what workers say and hear

    def say(self, frame: Frame | bytes, *, lane: str = "default", slot: int = 0) -> int:
        """Append a frame of events (or any bytes) to what a slot's owner reads; returns its offset."""
        at = TopicPartition(self.layout.name("worker-events", lane=lane), slot)
        value, key = (frame, None) if isinstance(frame, bytes) else (encode_frame(frame), frame.worker.encode())
        return self.log.append(at, [Record(key, value)]).first_offset

    def answers(self, worker: str | None = None) -> list[Answer]:
        """Everything said to one worker, or to all, in order per worker."""
        found = [decode_answer(record.value or b"") for record in self.records(self.layout.name("worker-inbox"))]
        return [answer for answer in found if worker in (None, answer.worker)]

    def invitations(self, lane: str = "default") -> list[Invitation]:
        """Everything offered to the workers of a lane, slot by slot."""
        records = self.records(self.layout.name("runs", lane=lane))
        return [decode_invitation(record.value or b"") for record in records]

    def results(self, job_id: str | None = None) -> list[Json]:
        """Accepted ends of runs, of one job or of all."""
        return [line for line in self._documents("results") if job_id in (None, line["job_id"])]

    # --- time

    async def run_until_idle(self) -> int:
        """Let all slots work until nothing is left to do now; returns the number of steps. Raises Restless."""
        for steps in range(STEPS_MAX):
            self._config_feed.pump()
            worked = [await each.step() for each in self.slots]
            sent = [not self.holds_sends and await each.send() for each in self.slots]
            performed = [each.step() for each in self.performers]
            if not any(worked) and not any(sent) and not any(performed):
                return steps
        raise Restless(f"not at rest after {STEPS_MAX} steps at {self.clock.now_ms()} ms")

    async def advance(self, duration_ms: int) -> None:
        """Let time pass, stopping wherever something is due."""
        end_ms = self.clock.now_ms() + duration_ms
        await self.run_until_idle()
        while (wake_ms := self._next_wake_ms()) is not None and wake_ms <= end_ms:
            self.clock.advance(max(0, wake_ms - self.clock.now_ms()))
            if not await self.run_until_idle() and self._next_wake_ms() == wake_ms:
                break  # firing is held: nothing happens however often it is tried
        self.clock.advance(end_ms - self.clock.now_ms())
        await self.run_until_idle()

    async def jump(self, duration_ms: int) -> None:
        """Let time pass at once, as if the scheduler had been away, and then work."""
        self.clock.advance(duration_ms)
        await self.run_until_idle()

    async def send(self, count: int | None = None) -> None:
        """Hand records that are under way to their topics (see `holds_sends`), and let the slots take note."""
        for each in self.slots:
            await each.send(count)
        await self.run_until_idle()

    # --- what goes wrong

    async def crash(self, *, from_log_alone: bool = False) -> None:
        """Kill the process; a new one starts from the last checkpoint (or without any index) and the log."""
        for each in self.slots:
            each.lose(left_rows=None if from_log_alone else each.index.surviving_rows())
        await self.take_over()

    async def take_over(self) -> None:
        """Replay and start anew, with the index as it is."""
        for each in self.slots:
            await each.take_over()
        await self.run_until_idle()

    def checkpoint(self) -> None:
        """From now on a crash leaves the rows as they are."""
        for each in self.slots:
            each.index.checkpoint()

    def fail_next_commit(self, *, took_effect: bool, slot: int = 0) -> None:
        """Let the next commit of a slot end in doubt."""
        fault = CommitFault.TOOK_EFFECT if took_effect else CommitFault.NO_EFFECT
        self.log.faults.doubt_next_commit(self.slots[slot].transactional_id, fault)

    def sicken(self, topic: str, *, noticed: bool = True) -> None:
        """Let a topic refuse records. noticed: the inspection finds out before anything is written."""
        self.inspector.facts(topic)
        self.log.faults.refuse(topic)
        if noticed:
            self.inspector.inspect()

    def heal(self, topic: str) -> None:
        """End `sicken`, and let the inspection find out."""
        self.log.faults.accept(topic)
        self.inspector.inspect()

    # --- what came of it

    def records(self, topic: str) -> list[Incoming]:
        """All committed records of a topic (full name), partition by partition."""
        count = self.log.partitions(topic) or 0
        pages = [self.log.read(TopicPartition(topic, number), 0, max_records=1 << 30)[0] for number in range(count)]
        return [record for page in pages for record in page]

    def delivered(self, topic: str) -> list[Incoming]:
        """What a target topic has received."""
        return self.records(topic)

    def run_ids(self, topic: str) -> list[str]:
        """The runs whose records a target topic has received, in order."""
        return [dict(record.headers)["noontide-run"].decode() for record in self.records(topic)]

    def executions(self, job_id: str | None = None) -> list[Json]:
        """Lines of history, of one job or of all."""
        lines = self._documents("executions")
        return [line for line in lines if job_id in (None, line["job_id"])]

    def rejected(self) -> list[Json]:
        """Requests that were refused."""
        return self._documents("rejected")

    def dead_letters(self) -> list[Json]:
        """What dead runs would have done."""
        return self._documents("dead-letters")

    def verdicts(self) -> dict[str, Json]:
        """Answers that are kept, by `<topic>/<partition>/<offset>` of the request."""
        found = self._latest("state")
        prefix = state.VERDICT
        return {
            key[len(prefix) :].decode(): orjson.loads(value) for key, value in found.items() if key.startswith(prefix)
        }

    def leases(self) -> dict[str, Run]:
        """Live runs."""
        return {key.decode(): decode_lease(key, value) for key, value in self._latest("leases").items()}

    def jobs(self) -> dict[str, Json]:
        """Accepted definitions."""
        return {key.decode(): orjson.loads(value) for key, value in self._latest("jobs").items()}

    def cursor(self, job_id: str) -> Cursor | None:
        """Where a job stands."""
        value = self._latest("state").get(state.cursor_record_key(job_id.encode()))
        return None if value is None else state.decode_cursor(value)

    def rebuilt_index(self, slot: int = 0) -> MemoryIndex:
        """The index of a slot as the log alone gives it."""
        index = MemoryIndex()
        names = self.slots[slot].names
        restorer = Restorer(names, index=index, replay=MemoryReplay(self.log), settings=self.settings)
        restorer.restore(now_ms=self.clock.now_ms())
        return index

    # --- its parts

    def _latest(self, topic: str) -> dict[bytes, bytes]:
        latest = {record.key or b"": record.value for record in self.records(self.layout.name(topic))}
        return {key: value for key, value in latest.items() if value is not None}

    def _documents(self, topic: str) -> list[Json]:
        return [orjson.loads(record.value or b"null") for record in self.records(self.layout.name(topic))]

    def _next_wake_ms(self) -> int | None:
        everybody: list[Performer | MemorySlot] = [*self.slots, *self.performers]
        times = [at_ms for each in everybody if (at_ms := each.next_wake_ms()) is not None]
        return min(times, default=None)

    def _create_topics(self, domains: set[str]) -> None:
        values = {"domain": sorted(domains), "lane": list(DEFAULT_LANES)}
        for file in load_catalogue():
            partitions = self.layout.topic_partitions(file.topic)
            parameter = next(iter(file.parameters), None)
            if parameter is None:
                self.log.create_topic(self.layout.name(file.topic), partitions=partitions)
                continue
            for value in values[parameter]:
                self.log.create_topic(self.layout.name(file.topic, **{parameter: value}), partitions=partitions)
