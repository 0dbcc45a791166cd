"""Groups: who works on which slots, and which worker gets which run. Safety never depends on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from noontide.adapters.kafka.assignor import Claim, Rules, divide
from noontide.adapters.memory.log import MemoryLog
from noontide.ports.membership import Assignment, Standing
from noontide.ports.record_log import TopicPartition
from noontide.ports.run_source import Delivered, DeliverySink, Place
from noontide.testing.simulation.loop import Process
from noontide.testing.simulation.network import Site, Wire

SESSION_MS: Final = 6_000
LOCK_MS: Final = 15_000
DELIVERIES_MAX: Final = 5
BATCH_MAX: Final = 50
OnAssignment = Callable[[Assignment], None]


@dataclass(slots=True)
class _Member:
    """A member as the group knows it. told: what it was last told, and in which round."""

    on_assignment: OnAssignment
    standing: Callable[[], Standing]
    told: Assignment = field(default_factory=Assignment)
    round: int = 0
    leaving: bool = False
    claim: Claim = field(default_factory=Claim)


class SlotGroup:
    """The scheduler group: divides the slots among the members it believes to be alive, and says so late.

    The division is the real one, or now and then one by the dice: safety must not depend on it.
    """

    def __init__(self, site: Site, slots: int) -> None:
        self._site = site
        self._rules = Rules(slots=slots, standby_replicas=1, warm_lag_max=20)
        self._members: dict[Process, _Member] = {}
        self._expired: dict[Process, _Member] = {}
        self._given: dict[Process, Assignment] = {}
        self._round = 0

    def join(self, process: Process, on_assignment: OnAssignment, standing: Callable[[], Standing]) -> None:
        """A member comes."""
        self._members[process] = _Member(on_assignment, standing)
        self.divide()

    def leave(self, process: Process) -> None:
        """A member goes."""
        self._expired.pop(process, None)
        if self._members.pop(process, None) is not None:
            self.divide()

    def retire(self, process: Process) -> None:
        """A member is about to go."""
        if process in self._members:
            self._members[process].leaving = True
            self.divide()

    def expire(self, process: Process) -> None:
        """The session of a member is over; it may come back."""
        member = self._members.get(process)
        if member is not None:
            self.leave(process)
            self._expired[process] = member

    def comes_back(self, process: Process) -> None:
        """A member is heard of again."""
        member = self._expired.pop(process, None)
        if member is not None and process.alive:
            self._members[process] = member
            self.divide()

    def session_ends(self, process: Process) -> None:
        """Nothing is heard of a member from now on."""
        self._site.later(SESSION_MS, self._expire, process)

    def divide(self, *, by_dice: bool = False) -> None:
        """Divide anew; each member hears of it after a while."""
        self._round += 1
        named = {process.name: process for process in self._members}
        claims = {name: self._claim(process) for name, process in named.items()}
        divided = self._at_random(sorted(named)) if by_dice else divide(self._rules, claims)
        self._given = {named[name]: assignment for name, assignment in divided.items()}
        for process in self._members:
            process.later(self._site.latency_ms() * 5, self._say, process)

    def _claim(self, process: Process) -> Claim:
        member = self._members[process]
        if process.runs:
            standing = member.standing()
            member.claim = Claim(
                round=member.round,
                held=member.told.owned,
                freshness=standing.freshness,
                load=standing.load,
                host=process.name.partition(".")[0],
                leaving=member.leaving,
                unfit=standing.unfit,
            )
        return member.claim

    def _at_random(self, names: list[str]) -> dict[str, Assignment]:
        dice = self._site.dice
        owners = {slot: dice.choice(names) for slot in range(self._rules.slots)} if names else {}
        standbys = {slot: dice.choice(names) for slot in owners}
        return {
            name: Assignment(
                owned=frozenset(slot for slot, owner in owners.items() if owner == name),
                standby=frozenset(slot for slot, other in standbys.items() if other == name != owners[slot]),
                retired=self._member(name).leaving,
            )
            for name in names
        }

    def _member(self, name: str) -> _Member:
        return next(member for process, member in self._members.items() if process.name == name)

    def _say(self, process: Process) -> None:
        member = self._members.get(process)
        if member is not None and process in self._given:
            member.told, member.round = self._given[process], self._round
            member.on_assignment(member.told)

    def _expire(self, process: Process) -> None:
        if not process.runs:
            self.expire(process)


class SimMembership:
    """`Membership` of one process."""

    def __init__(self, group: SlotGroup, process: Process, standing: Callable[[], Standing]) -> None:
        self._group = group
        self._process = process
        self._standing = standing

    async def join(self, on_assignment: OnAssignment) -> None:
        """See `Membership.join`."""
        self._group.join(self._process, on_assignment, self._standing)

    def rejoin(self) -> None:
        """See `Membership.rejoin`."""
        self._group.divide()

    def retire(self) -> None:
        """See `Membership.retire`."""
        self._group.retire(self._process)

    async def leave(self) -> None:
        """See `Membership.leave`."""
        self._group.leave(self._process)


@dataclass(slots=True)
class _Taken:
    """A record that a member has. until_ms: when the lock ends."""

    member: SimSource
    until_ms: float
    deliveries: int


@dataclass(slots=True)
class _Partition:
    """Where the group stands. back: released records and how often they were delivered."""

    position: int = 0
    back: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    values: dict[int, bytes] = field(default_factory=dict)
    taken: dict[int, _Taken] = field(default_factory=dict)


class RunGroup:
    """A share group on `runs.<lane>`: records are locked, released, given up; one may come to two members."""

    def __init__(self, site: Site, log: MemoryLog, topic: str) -> None:
        self._site = site
        self._log = log
        self._topic = topic
        self._partitions = {number: _Partition() for number in range(log.partitions(topic) or 0)}
        self._members: list[SimSource] = []
        log.subscribe(self._told)

    def join(self, member: SimSource) -> None:
        """A worker comes."""
        self._members.append(member)
        self.serve()

    def leave(self, member: SimSource) -> None:
        """It goes, or its session is over: what it had is for others."""
        if member in self._members:
            self._members.remove(member)
        for partition in self._partitions.values():
            for offset in [offset for offset, taken in partition.taken.items() if taken.member is member]:
                self._release(partition, offset)
        self.serve()

    def settle(self, places: Sequence[Place], *, done: bool) -> None:
        """A worker acknowledges records, or hands them back."""
        for number, offset in places:
            partition = self._partitions[number]
            if done:
                partition.taken.pop(offset, None)
                partition.values.pop(offset, None)
            elif offset in partition.taken:
                self._release(partition, offset)
        if not done:
            self.serve()

    def serve(self) -> None:
        """Give out what there is to those who want it."""
        now_ms = self._site.loop.now_ms
        for number, partition in self._partitions.items():
            for offset in [offset for offset, taken in partition.taken.items() if taken.until_ms <= now_ms]:
                self._release(partition, offset)
            wanting = [member for member in self._members if member.wanted > 0 and member.wire.process.alive]
            if wanting:
                self._give(number, partition, self._site.dice.choice(wanting))

    def _give(self, number: int, partition: _Partition, member: SimSource) -> None:
        batch: list[Delivered] = []
        limit = min(member.wanted, BATCH_MAX)
        for offset in sorted(partition.back)[:limit]:
            value, deliveries = partition.back.pop(offset)
            batch.append(self._take(number, offset, value, deliveries + 1, member))
        at = TopicPartition(self._topic, number)
        if len(batch) < limit and self._log.last_stable_offset(at) > partition.position:
            records, partition.position = self._log.read(at, partition.position, max_records=limit - len(batch))
            batch += [self._take(number, each.offset, each.value or b"", 1, member) for each in records]
        if batch:
            member.wanted -= len(batch)
            member.wire.process.later(self._site.latency_ms(), member.deliver, batch)

    def _take(self, number: int, offset: int, value: bytes, deliveries: int, member: SimSource) -> Delivered:
        partition = self._partitions[number]
        partition.values[offset] = value
        partition.taken[offset] = _Taken(member, self._site.loop.now_ms + LOCK_MS, deliveries)
        self._site.later(LOCK_MS + 1, self.serve)
        return Delivered((number, offset), value, deliveries >= DELIVERIES_MAX)

    @staticmethod
    def _release(partition: _Partition, offset: int) -> None:
        taken = partition.taken.pop(offset)
        value = partition.values.pop(offset)
        if taken.deliveries < DELIVERIES_MAX:
            partition.back[offset] = (value, taken.deliveries)

    def _told(self, partitions: Collection[TopicPartition]) -> None:
        if any(at.topic == self._topic for at in partitions):
            self._site.later(0, self.serve)


class SimSource:
    """`RunSource` of one worker."""

    def __init__(self, group: RunGroup, wire: Wire) -> None:
        self.wire = wire
        self.wanted = 0
        self._group = group
        self._sink: DeliverySink | None = None

    def start(self, sink: DeliverySink) -> None:
        """See `RunSource.start`."""
        self._sink = sink
        self._group.join(self)

    def want(self, count: int) -> None:
        """See `RunSource.want`."""
        more, self.wanted = count > self.wanted, count
        if more:
            self._group.serve()

    def accept(self, places: Sequence[Place]) -> None:
        """See `RunSource.accept`."""
        if not self.wire.is_cut:
            self._group.settle(places, done=True)

    def release(self, places: Sequence[Place]) -> None:
        """See `RunSource.release`."""
        if not self.wire.is_cut:
            self._group.settle(places, done=False)

    async def close(self) -> None:
        """See `RunSource.close`."""
        self._group.leave(self)

    def deliver(self, batch: list[Delivered]) -> None:
        """Records arrive."""
        if self._sink is not None:
            self._sink(batch)
