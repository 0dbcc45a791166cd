"""What a slot and the others tell each other: its mailbox, and the actors that live by messages.

A cycle of the slot goes through here as it goes through its partitions: `collect`, `decide` (after everything else),
`apply`. What arrives, and what follows from it, is part of the cycle's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from noontide.actors import latecomers
from noontide.actors.backfill_runs import BackfillRuns, BackfillWork
from noontide.actors.effects import Effects, Names, Scene
from noontide.actors.exact_starts import ExactStarts, ExactWork
from noontide.actors.expectations import Expectations
from noontide.actors.graph import Graph
from noontide.actors.joins import Joins, JoinWork
from noontide.actors.lane_times import LaneTimes
from noontide.actors.limiters import Limiters, LimiterWork
from noontide.actors.mailbox import Mailbox, Message
from noontide.actors.paces import Paces
from noontide.actors.partition import Partition, Work
from noontide.actors.permits import Permits, PermitWork
from noontide.actors.settings import SchedulerSettings
from noontide.actors.ties import Ties
from noontide.actors.world import World
from noontide.core.run import Run
from noontide.ports.due_index import DueIndex
from noontide.records import rows, state

PAGE = 1_000
"""Rows read at once."""


@dataclass(slots=True, kw_only=True)
class ExchangeWork:
    """What is decided in one cycle. messages: signals from other slots; the rest: what follows from them, and time.
    backfills: jobs whose backfill may go on.

    set_aside: what cannot be decided about: sources of messages, joins.
    """

    messages: list[Message] = field(default_factory=list)
    permits: PermitWork = field(default_factory=PermitWork)
    latecomers: list[latecomers.Found] = field(default_factory=list)
    limiters: LimiterWork = field(default_factory=LimiterWork)
    joins: JoinWork = field(default_factory=JoinWork)
    overdue: list[tuple[int, Run]] = field(default_factory=list)
    backfills: BackfillWork = field(default_factory=BackfillWork)
    exact: ExactWork = field(default_factory=ExactWork)
    set_aside: set[object] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(
            self.messages
            or self.permits
            or self.latecomers
            or self.limiters
            or self.joins
            or self.overdue
            or self.backfills.job_ids
            or self.exact
        )


class Exchange:
    """The messages of one slot, and what becomes of them."""

    def __init__(self, names: Names, partitions: Mapping[int, Partition], settings: SchedulerSettings) -> None:
        self.mailbox = Mailbox()
        self.permits = Permits(settings.ageing_ms)
        self.limiters = Limiters(settings.grants_max)
        self.ties = Ties()
        self.graph = Graph(names.layout, self.ties)
        self.paces = Paces()
        self.lane_times = LaneTimes()
        live = {number: each.live for number, each in partitions.items()}
        self.latecomers = latecomers.Latecomers(live)
        self.expectations = Expectations(live)
        self.joins = Joins(partitions, self.ties, self.graph, settings)
        self.backfills = BackfillRuns(names.layout, partitions, self.ties, settings)
        self.exact = ExactStarts(names.layout, partitions)
        self._partitions = partitions
        self._settings = settings
        self._first = names.layout.partitions_of(names.slot)[0]

    # --- gather

    def collect(self, work: dict[int, Work], world: World, limit: int) -> ExchangeWork:
        """Take messages, at most `limit`, and add the runs that they let go on to the partitions' work."""
        messages = self.mailbox.take_messages(min(self._settings.inputs_max, limit))
        runs_max = 0 if limit == 1 and work else min(self._settings.due_max, limit)
        found = ExchangeWork(
            messages=messages,
            permits=self.permits.collect(messages, runs_max),
            latecomers=self.latecomers.collect(world.config, self._settings.inputs_max if limit > 1 else limit),
            limiters=self.limiters.collect(messages, world.config, world.now_ms),
            joins=self.joins.collect(messages, world.now_ms),
            overdue=self.expectations.collect(world.now_ms),
            backfills=self.backfills.collect(runs_max),
            exact=self.exact.collect(messages, world.config),
        )
        for run_id, number in found.permits.homes.items():
            run = self._partitions[number].live.by_id.get(run_id)
            if run is not None:
                work.setdefault(number, Work()).released.append(run)
        return found

    def next_wake_ms(self) -> int | None:
        """When something is to be done without a message; None when nothing is."""
        actors = (self.limiters, self.latecomers, self.joins, self.expectations, self.backfills)
        times = (each.next_wake_ms() for each in actors)
        return min((at for at in times if at is not None), default=None)

    def wanted(self, work: ExchangeWork) -> Iterator[bytes]:
        """Keys of the rows that deciding reads."""
        yield from self.expectations.wanted(work.overdue)
        yield from self.backfills.wanted(work.backfills)
        if work.messages or work.joins:
            yield from self.graph.wanted(work.messages)
            yield from self.joins.wanted(work.joins)
            yield from self.exact.wanted(work.exact)

    # --- decide, apply

    def decide(self, work: ExchangeWork, scene: Scene) -> None:
        """Decide what follows from the messages, and from what became of the runs in this cycle. Raises Misread."""
        self.graph.decide([each for each in work.messages if each.source not in work.set_aside], scene)
        self.joins.decide(work.joins, scene, work.set_aside)
        self.backfills.decide(work.backfills, scene, work.set_aside)
        self.expectations.decide(work.overdue, scene, work.set_aside)
        self.exact.decide(work.exact, scene, work.set_aside)
        latecomers.decide(work.latecomers, scene, work.set_aside)
        self.limiters.decide(work.limiters, scene)
        self.permits.decide(work.permits, scene)

    def apply(self, work: ExchangeWork, effects: Effects, world: World) -> None:
        """Take over what the commit made true."""
        self.graph.apply(effects)
        self.joins.apply(effects)
        self.backfills.apply(work.backfills, effects)
        self.expectations.apply(effects)
        self.paces.apply(effects)
        self.lane_times.apply(effects)
        self.permits.apply(effects, work.permits)
        self.limiters.apply(effects, work.limiters, world.config)
        self.exact.apply(work.exact, effects)

    # --- loading

    def load(self, index: DueIndex) -> None:
        """Read what the slot knew of others; its runs follow by `load_run`."""
        for key, value in _all_rows(index, *rows.kind_range(self._first, rows.NOTE)):
            record_key = key[2:]
            if record_key.startswith(state.PERMITS):
                self.permits.load_note(record_key, value)
            elif record_key.startswith((state.LIMITER, state.RATE)):
                self.limiters.load_note(record_key, value)
            elif record_key.startswith((state.EXACT, state.HELD)):
                self.exact.load_note(record_key, value)
            elif record_key.startswith(state.JOIN):
                self.joins.load_note(record_key, value)
            elif record_key.startswith(state.BACKFILL):
                self.backfills.load_note(record_key, value)
            else:
                self.graph.load_note(record_key, value)

    def load_run(self, partition: int, run: Run) -> None:
        """A live run of an earlier owner."""
        self.permits.load(partition, run)
        self.expectations.load(partition, run)


def _all_rows(index: DueIndex, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    while found := index.scan(start, stop, PAGE):
        yield from found
        start = found[-1][0] + b"\0"
