"""Membership of the scheduler group: Kafka's classic group protocol, with slots in the place of partitions.

The group subscribes to a topic with one partition per slot and never reads it. An assignment is a hint; the lock of a
slot is its transactional id. So a rebalance stops nothing: a member works on until a new assignment says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError

from noontide.adapters.kafka.assignor import Claim, Rules, decode_assignment, divide, encode_assignment, next_round
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.ports.membership import Assignment, Standing

log = logging.getLogger(__name__)

SESSION_TIMEOUT_MS: Final = 6_000  # the least that brokers accept by default
HEARTBEAT_MS: Final = 500
REQUEST_TIMEOUT_MS: Final = 15_000  # more than the session, during which a join is held back
WATCH_S: Final = 0.5
LEAVE_TIMEOUT_S: Final = 2.0
# The client takes a member that never polls for dead after this time; ours never does.
_NEVER_MS: Final = 10**12
_COORDINATOR_TASKS: Final = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task")

OnAssignment = Callable[[Assignment], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipOptions:
    """group, topic: full names. host: the machine. session_timeout_ms: silence after which a member counts as dead."""

    group: str
    topic: str
    host: str = ""
    session_timeout_ms: int = SESSION_TIMEOUT_MS


class KafkaMembership:
    """`Membership` in a consumer group.

    topic must have as many partitions as there are slots.
    standing: what to tell about the slots, asked before each join.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        rules: Rules,
        options: MembershipOptions,
        standing: Callable[[], Standing] = lambda: Standing({}, {}),
    ) -> None:
        self._connection = connection
        self._options = options
        self._assignor = _SlotAssignor(rules, options, standing)
        self._consumer: AIOKafkaConsumer | None = None
        self._watch: asyncio.Task[None] | None = None
        self._on_assignment: OnAssignment | None = None

    async def join(self, on_assignment: Callable[[Assignment], None]) -> None:
        """See `Membership.join`.

        `on_assignment` is called after every assignment, also when it changes nothing: that is a fresh confirmation.
        Returns at once; while no broker can be reached it keeps trying.
        """
        assert self._watch is None, "already a member"
        self._on_assignment = on_assignment
        self._watch = asyncio.create_task(self._keep_alive(), name="kafka-membership")

    def rejoin(self) -> None:
        """See `Membership.rejoin`."""
        coordinator = None if self._consumer is None else self._consumer._coordinator  # noqa: SLF001 - no other way
        if coordinator is not None:
            coordinator.request_rejoin()

    def retire(self) -> None:
        """See `Membership.retire`."""
        self._assignor.leaving = True
        self.rejoin()

    async def leave(self) -> None:
        """See `Membership.leave`; within about two seconds."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.wait({watch})
        await self._stop()
        self._assignor.forget()

    async def _start(self) -> None:
        self._consumer = consumer = AIOKafkaConsumer(
            **self._connection.for_aiokafka("membership"),
            group_id=self._options.group,
            partition_assignment_strategy=(self._assignor,),
            session_timeout_ms=self._options.session_timeout_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            max_poll_interval_ms=_NEVER_MS,
            enable_auto_commit=False,
            retry_backoff_ms=50,
        )
        try:
            await consumer.start()
        except BaseException:
            await self._stop()
            raise
        consumer.subscribe([self._options.topic], listener=_Listener(consumer, self._assigned))

    async def _stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            await asyncio.wait_for(consumer.stop(), LEAVE_TIMEOUT_S)
        except (KafkaError, OSError, TimeoutError):
            await _discard(consumer)

    def _assigned(self) -> None:
        if self._on_assignment is not None and self._consumer is not None:
            self._on_assignment(self._assignor.given)

    async def _keep_alive(self) -> None:
        """Acknowledge errors in the place of a poll, which nobody does here, and start again after a fatal one."""
        while True:
            try:
                if self._consumer is None:
                    await self._start()
                else:
                    _check(self._consumer)
            except Exception as error:  # noqa: BLE001 - whatever it is, a scheduler without membership is no use
                log.warning("the membership of %s starts again: %r", self._options.group, error)
                await self._stop()
            await asyncio.sleep(WATCH_S)


def _check(consumer: AIOKafkaConsumer) -> None:
    coordinator = consumer._coordinator  # noqa: SLF001 - errors are only handed out by reading records
    if coordinator is not None:
        coordinator.check_errors()


async def _discard(consumer: AIOKafkaConsumer) -> None:
    """End the tasks of a consumer that could not be stopped, and close its sockets."""
    owners = [(consumer._coordinator, _COORDINATOR_TASKS), (consumer._fetcher, ("_fetch_task",))]  # noqa: SLF001
    found = [getattr(owner, name, None) for owner, names in owners for name in names]
    tasks: list[asyncio.Task[Any]] = [task for task in found if task is not None]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=LEAVE_TIMEOUT_S)
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        await asyncio.wait_for(consumer._client.close(), LEAVE_TIMEOUT_S)  # noqa: SLF001


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Sees to it that nothing is fetched, and passes on that an assignment arrived."""

    def __init__(self, consumer: AIOKafkaConsumer, assigned: Callable[[], None]) -> None:
        self._consumer = consumer
        self._assigned = assigned

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Nothing stops here: the slots are worked on until the next assignment."""

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Called by the client after each rebalance."""
        self._consumer.pause(*assigned)
        self._assigned()


class _SlotAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """The division of slots as an assignor of aiokafka; one object per member, which knows what it was given."""

    name = "noontide-slots"

    def __init__(self, rules: Rules, options: MembershipOptions, standing: Callable[[], Standing]) -> None:
        self._rules = rules
        self._options = options
        self._standing = standing
        self._round = 0
        self.given = Assignment()
        self.leaving = False

    def forget(self) -> None:
        """Claim nothing at the next join."""
        self.given, self._round, self.leaving = Assignment(), 0, False

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member brings to the next division."""
        standing = self._standing()
        claim = Claim(
            round=self._round,
            held=self.given.owned,
            freshness=standing.freshness,
            load=standing.load,
            host=self._options.host,
            leaving=self.leaving,
            unfit=standing.unfit,
        )
        return ConsumerProtocolMemberMetadata(0, list(topics), claim.encode())

    def assign(
        self, cluster: object, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Divide, when this member is the leader."""
        claims = {member: Claim.decode(metadata.user_data) for member, metadata in members.items()}
        number = next_round(claims)
        return {
            member: ConsumerProtocolMemberAssignment(
                0, [(self._options.topic, sorted(given.owned))], encode_assignment(given, number)
            )
            for member, given in divide(self._rules, claims).items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """What this member was given."""
        owned = frozenset(each.partition for each in assignment.partitions())
        self.given, self._round = decode_assignment(owned, assignment.user_data)
