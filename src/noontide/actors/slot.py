"""A slot: a block of partitions with one transactional id and one cycle. The only place where state changes.

    gather ──> decide ──> commit ──> apply ──> answer
                 │           │
                 │           ├─ Fenced: another owner; stop
                 │           └─ Doubt:  outcome unknown; drop all memory, replay the log, go on with less at a time
                 └─ Poisoned: one item cannot be handled; decide again with that item set aside

`cycle` is that, once. The runner calls it; `restore` fills a fresh slot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from noontide.actors.appetite import Appetite
from noontide.actors.caution import Caution
from noontide.actors.closing import Delivered, Homes
from noontide.actors.effects import Effects, Names, Scene
from noontide.actors.exchange import Exchange
from noontide.actors.forgetting import Forgetting
from noontide.actors.heard import Heard
from noontide.actors.kinds import Kinds
from noontide.actors.lease_keeper import LeaseKeeper, Unheard
from noontide.actors.live_runs import is_free
from noontide.actors.loading import load_positions, load_runs
from noontide.actors.mailbox import Message, Misread
from noontide.actors.partition import Budget, Partition, Work
from noontide.actors.plan import Plan
from noontide.actors.poison import Poisoned
from noontide.actors.ready_queue import ReadyQueues
from noontide.actors.reflected import Reflected
from noontide.actors.request_input import Input
from noontide.actors.review import Review, basis_of
from noontide.actors.settings import SchedulerSettings
from noontide.actors.slot_ports import SlotPorts
from noontide.actors.world import World
from noontide.core.run import Run
from noontide.ports.record_log import Doubt, Fenced, Receipt, TopicPartition
from noontide.records.config import ConfigView
from noontide.records.state import Position
from noontide.records.topics import DEFAULT_LANES


class Slot:
    """The partitions of one slot, and their cycle."""

    def __init__(self, names: Names, ports: SlotPorts, settings: SchedulerSettings, caution: Caution) -> None:
        self.names = names
        self.ready = ReadyQueues(settings.ageing_ms)
        numbers, kinds = names.layout.partitions_of(names.slot), Kinds()
        self.partitions = {number: Partition(number, settings, self.ready, kinds) for number in numbers}
        homes = {number: Homes(each.live, each.closing) for number, each in self.partitions.items()}
        self.keeper = LeaseKeeper(homes, settings)
        self.exchange = Exchange(names, self.partitions, settings)
        self.positions: dict[int | str, dict[str, int]] = defaultdict(dict)
        self.reflected = Reflected(names)
        self.counts: Counter[str] = Counter()
        self.cycle_number = self.requests_decided = 0
        self.holds_fire = False
        self.written = 0  # records of the latest cycle
        self.backlog_bytes = 0
        self.executions_end = 0
        self._ports = ports
        self._settings = settings
        self._caution = caution
        self._appetite = Appetite(first=settings.due_first, most=settings.due_max)
        self._turn = 0
        self._forgetting = Forgetting(ports.index, names, settings)
        self._review: Review | None = None
        self._basis = ""
        self._unsaved = False

    # --- the cycle

    async def cycle(self) -> bool:
        """Do what is to be done now; False when there was nothing. Raises Fenced, Doubt or IndexFailed."""
        plan = self._gather()
        if plan is None:
            return False
        self._decide(plan)
        if plan.effects.wants_fresh_config:
            config = await self._ports.config.refresh()
            routes = self._ports.breakers.routes(config, plan.world.now_ms)
            plan.world = replace(plan.world, config=config, routes=routes, config_is_fresh=True)
            self._decide(plan)
        began_ms = self._ports.clock.boot_ms()
        receipts = await self._commit(plan)
        took_ms = self._ports.clock.boot_ms() - began_ms
        self._apply(plan, receipts)
        late_ms = plan.late_ms if plan.effects.outputs else None
        self._ports.pulse.committed(plan.effects.counts, took_ms=took_ms, late_ms=late_ms)
        self._ports.tell(plan.effects)
        return True

    async def prove(self) -> None:
        """Commit what was read so far and nothing else, which only the owner can. Raises like `cycle`."""
        effects = Effects(self.names, {})
        position = Position(self.positions[self.mailbox_name], self._ports.config.view.offset, self.cycle_number)
        effects.put_position(self.first_partition, self.mailbox_name, position)
        receipts = await self._ports.log.commit(effects.outputs, timeout_ms=self._settings.commit_timeout_ms)
        effects.index.puts.update(self.reflected.note(receipts))
        self._ports.index.write(effects.index)

    def _gather(self) -> Plan | None:
        world = self._world(self._ports.config.view)
        for partition in self.partitions.values():
            partition.window.refill(self._ports.index.scan, now_ms=world.now_ms, horizon_ms=self._settings.horizon_ms)
        self._turn += 1
        work = {} if self.exchange.mailbox.has_request and self._turn % 2 else self._collected(world)
        if not work and self.exchange.mailbox.has_request:
            work = self._forwarded()
        exchange = self.exchange.collect(work, world, self._caution.limit)
        world = self._take_ready(work, replace(world, permitted=exchange.permits.permitted))
        keeping = self.keeper.collect(self._caution.limit)
        if (basis := basis_of(world.config)) != self._basis:
            self._review = self._begun_review(basis)
        if self._review is not None:
            for number, job_ids in self._review.take().items():
                work.setdefault(number, Work()).reviews = job_ids
        expired = self._forgetting.due(world.now_ms)
        if not work and not expired and not keeping and not exchange:
            return None
        wanted = {key for number, each in work.items() for key in self.partitions[number].wanted(each)}
        wanted.update(self.exchange.wanted(exchange))
        keys = list(wanted.union(self.keeper.wanted(keeping), self._forgetting.wanted(expired)))
        fetched = dict(zip(keys, self._ports.index.get_many(keys), strict=True))
        for number, each in work.items():
            self.partitions[number].trim(each, fetched, self._settings.due_max_bytes // len(work))
            each.set_aside = self._caution.culprits_in(each)
        return Plan(
            world=world, work=work, keeping=keeping, exchange=exchange, fetched=fetched, expired=expired, positions={},
            effects=Effects(self.names, fetched),
        )  # fmt: skip

    def _begun_review(self, basis: str) -> Review | None:
        """The basis of cursors is another than the one known so far, or none was known."""
        before, self._basis, numbers = self._basis, basis, list(self.partitions)
        if before:
            return Review.of_change(self._ports.index, numbers, before, basis)
        return Review.if_needed(self._ports.index, numbers, basis)

    def _take_ready(self, work: dict[int, Work], world: World) -> World:
        """Runs for which a lane's window has room, in the order of its queue; what falls due gets the rest."""
        rooms, promised = self._rooms(world), set[str]()
        limit = min(self._settings.due_max, self._caution.limit)
        if limit == 1 and work:
            limit = 0
        for lane in self.ready.lanes():
            room = min(limit, rooms.get(lane, 0))
            for number, run_id in self.ready.take(lane, room, world.config.limits.weight_of):
                run = self._free_run(number, run_id)
                if run is not None and run_id not in promised:
                    work.setdefault(number, Work()).released.append(run)
                    promised.add(run_id)
                    rooms[lane] -= 1
        rooms.update(dict.fromkeys(self.ready.lanes(), 0))
        return replace(world, rooms=rooms, promised=frozenset(promised))

    def _rooms(self, world: World) -> dict[str, int]:
        """How many runs each lane takes now: its window, if its topic is well."""
        return {
            lane: min(self.keeper.room(lane, world.now_ms), self._ports.breakers.allowance(topic, world.now_ms))
            for lane, topic in self._lane_topics(world.config).items()
        }

    def _lane_topics(self, config: ConfigView) -> dict[str, str]:
        return {lane: self.names.runs(lane).topic for lane in (*DEFAULT_LANES, *config.lanes)}

    def _free_run(self, partition: int, run_id: str) -> Run | None:
        run = self.partitions[partition].live.by_id.get(run_id)
        return run if run is not None and is_free(run) else None

    def _collected(self, world: World) -> dict[int, Work]:
        """What the partitions have to decide, each its share."""
        active = [each for each in self.partitions.values() if each.is_active(world.now_ms)]
        chosen = self._next_turn(active, self._caution.shares(len(active)))
        budget = self._budget(len(chosen))
        work = {each.number: found for each in chosen if (found := each.collect(world, budget))}
        self._appetite.took(sum(len(found.due) for found in work.values()))
        if self._caution.limit > 1:
            return work
        return {number: self.partitions[number].keep_one(found, self._turn) for number, found in work.items()}

    def _forwarded(self) -> dict[int, Work]:
        """The oldest forwarded requests, in a cycle of their own: what is consumed of a mailbox is always a prefix."""
        work: dict[int, Work] = {}
        budget = self._budget(1)
        for item in self.exchange.mailbox.take_requests(budget.inputs, budget.input_bytes):
            number = self.names.layout.partition_of(item.key or b"")
            work.setdefault(number, Work()).inputs.append(item)
        return work

    def _decide(self, plan: Plan) -> None:
        while True:
            plan.effects = Effects(self.names, plan.fetched)
            try:
                self.keeper.decide(plan.keeping, Scene(plan.world, plan.effects))
                for number, work in plan.work.items():
                    self.partitions[number].decide(work, Scene(plan.world, plan.effects))
                self.exchange.decide(plan.exchange, Scene(plan.world, plan.effects))
            except Poisoned as poisoned:
                set_aside = plan.work[poisoned.partition].set_aside
                if id(poisoned.item) in set_aside:
                    raise
                set_aside[id(poisoned.item)] = str(poisoned)
                continue
            except Unheard as unheard:
                if unheard.run_id in plan.keeping.set_aside:
                    raise
                plan.keeping.set_aside[unheard.run_id] = str(unheard)
                self.counts["set_aside"] += 1
                continue
            except Misread as misread:
                if misread.what in plan.exchange.set_aside:
                    raise
                plan.exchange.set_aside.add(misread.what)
                self.counts["set_aside"] += 1
                continue
            self._conclude(plan)
            return

    def _conclude(self, plan: Plan) -> None:
        """What every cycle adds to what it decided."""
        for key in plan.expired:
            plan.effects.forget(key, again_ms=plan.world.now_ms + self._settings.marker_retention_ms)
        if self._review is not None and plan.effects.outputs:
            plan.effects.put_tzdata(self._review.recorded)
        self._position(plan)

    async def _commit(self, plan: Plan) -> Mapping[TopicPartition, Receipt]:
        effects, breakers = plan.effects, self._ports.breakers
        if not effects.outputs:
            return {}
        for topic in effects.used:
            breakers.probe_begins(topic)
        began_ms, timeout_ms = self._ports.clock.boot_ms(), self._settings.commit_timeout_ms
        try:
            receipts = await self._ports.log.commit(effects.outputs, timeout_ms=timeout_ms)
        except Doubt as doubt:
            self._ports.pulse.doubts += 1
            if self._ports.clock.boot_ms() - began_ms > timeout_ms + self._settings.away_ms:
                raise Fenced("this process was away so long that another may own the slot") from doubt
            self._blame(doubt, plan)
            raise
        finally:
            for topic in effects.used:
                breakers.probe_ends(topic)
        for topic in effects.used:
            breakers.succeeded(topic)
        self._caution.ease()
        return receipts

    def _apply(self, plan: Plan, receipts: Mapping[TopicPartition, Receipt]) -> None:
        effects = plan.effects
        effects.index.puts.update(self.reflected.note(receipts))
        self._ports.index.write(effects.index)
        for number, changes in effects.due_changes.items():
            self.partitions[number].window.apply(changes)
        runs: defaultdict[int, list[tuple[str, Run | None]]] = defaultdict(list)
        for partition, run_id, run in effects.run_changes:
            runs[partition].append((run_id, run))
        for number in runs.keys() | plan.work.keys():
            self.partitions[number].apply_runs(runs[number], plan.work.get(number), plan.world)
        self.keeper.apply(effects.run_changes, effects, plan.keeping)
        self.exchange.apply(plan.exchange, effects, plan.world)
        if self._review is not None and self._review.is_over and effects.outputs:
            self._review = None
        self.positions.update(plan.positions)
        self._unsaved = not effects.outputs and (self._unsaved or self.mailbox_name in plan.positions)
        self.cycle_number += 1
        self.written = sum(map(len, effects.outputs.values()))
        self.requests_decided += len(plan.exchange.messages)
        for work in plan.work.values():
            self.requests_decided += len(work.inputs)
            self.backlog_bytes -= sum(item.size_bytes for item in work.inputs)
        self.counts.update(effects.counts)
        recorded = receipts.get(self.names.executions)
        self.executions_end = self.executions_end if recorded is None else recorded.next_offset

    # --- what the runner calls besides

    def load(self) -> None:
        """Fill the memory from a restored index. Records that may not have been sent are sent again."""
        self.cycle_number = load_positions(self._ports.index, self.partitions, self.mailbox_name, self.positions)
        self.exchange.load(self._ports.index)
        sends = load_runs(self._ports.index, self.partitions, self.keeper, self.exchange)
        self._ports.pulse.take_overs += 1
        self._ports.send(sends)

    def receive(self, item: Input | Message) -> None:
        """A request for one of the partitions has arrived, or a message of another slot."""
        self.backlog_bytes += item.size_bytes
        if isinstance(item, Message) or item.forwarded:
            self.exchange.mailbox.put(item)
        else:
            self.partitions[item.source.partition].inbox.append(item)

    def hear(self, heard: Heard) -> None:
        """Workers of a lane said something."""
        self.keeper.inbox.append(heard)

    def deliver(self, partition: int, event: Delivered) -> None:
        """A record that was sent after a commit has been acknowledged, or not."""
        self.partitions[partition].deliveries.append(event)

    @property
    def backlog(self) -> int:
        """Requests received and not decided."""
        return len(self.exchange.mailbox) + sum(len(partition.inbox) for partition in self.partitions.values())

    def next_wake_ms(self) -> int | None:
        """Broker time at which something is due by itself."""
        if self._review is not None and not self._review.is_over:
            return 0
        times = [self.exchange.next_wake_ms(), *(partition.next_wake_ms() for partition in self.partitions.values())]
        return min((at for at in times if at is not None), default=None)

    @property
    def config(self) -> ConfigView:
        """What operators have configured, as it is known here."""
        return self._ports.config.view

    @property
    def mailbox_name(self) -> str:
        """How positions of forwarded requests are named."""
        return f"slot-{self.names.slot}"

    # --- its parts

    def _world(self, config: ConfigView) -> World:
        now_ms = self._ports.clock.now_ms()
        routes = self._ports.breakers.routes(config, now_ms)
        return World(
            now_ms=now_ms, layout=self.names.layout, config=config, routes=routes, ties=self.exchange.ties,
            paces=self.exchange.paces.known,
        )  # fmt: skip

    def _next_turn(self, active: list[Partition], count: int) -> list[Partition]:
        """`count` of the active partitions, another one first each time."""
        start = self._turn % len(active) if active else 0
        return [*active[start:], *active[:start]][:count]

    def _budget(self, partitions: int) -> Budget:
        share, limit = max(1, partitions), self._caution.limit
        due = min(self._appetite.due, limit) if self.may_fire else 0
        if self.exchange.permits.waiting >= self._settings.due_first:  # more of these are in no hurry, others may be
            due = min(due, self._settings.due_crowded_max)
        inputs, size = min(self._settings.inputs_max, limit), self._settings.inputs_max_bytes
        return Budget(max(1, inputs // share), size // share, due and max(1, due // share))

    @property
    def may_fire(self) -> bool:
        """Whether what is due may be claimed: the time is known, and requests that came before it are decided."""
        return self._ports.clock.trusted() and not self.holds_fire

    def _position(self, plan: Plan) -> None:
        """Add what this cycle consumed to its transaction."""
        for number, work in plan.work.items():
            for item in work.inputs:
                name = number if not item.forwarded else self.mailbox_name
                at = plan.positions.get(name)
                if at is None:
                    at = plan.positions[name] = dict(self.positions[name])
                source = item.source.name
                at[source] = max(at.get(source, 0), item.source.offset + 1)
        for message in plan.exchange.messages:
            at = plan.positions.setdefault(self.mailbox_name, dict(self.positions[self.mailbox_name]))
            at[message.source.name] = max(at.get(message.source.name, 0), message.source.offset + 1)
        for heard in plan.keeping.heard:
            at = plan.positions.setdefault(self.mailbox_name, dict(self.positions[self.mailbox_name]))
            name = f"worker-events.{heard.lane}"
            at[name] = max(at.get(name, 0), heard.offset + 1)
        if not plan.effects.outputs:
            return  # heartbeats and denials: their position can wait for the next transaction
        if self._unsaved:  # a denied claim read again after it could be granted one that nobody waits for
            plan.positions.setdefault(self.mailbox_name, dict(self.positions[self.mailbox_name]))
        for name, inputs in plan.positions.items():
            owner = name if isinstance(name, int) else self.first_partition
            position = Position(inputs, plan.world.config.offset, self.cycle_number + 1)
            plan.effects.put_position(owner, name, position)

    @property
    def first_partition(self) -> int:
        """The partition under which the slot's own rows are kept."""
        return next(iter(self.partitions))

    def _blame(self, doubt: Doubt, plan: Plan) -> None:
        """Learn from a failed commit: a target topic is distrusted, otherwise less is tried at a time."""
        known = {*plan.world.routes, *self._lane_topics(plan.world.config).values()}
        topics = {suspect.topic for suspect in doubt.suspects} & known
        for topic in topics:
            self._ports.breakers.trip(topic, str(doubt), plan.world.now_ms)
        if not topics:
            self._caution.tighten(doubt, plan.work)
