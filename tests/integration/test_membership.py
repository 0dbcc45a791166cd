"""Slots follow the members of a real group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest
from tests.kafka_scene import create_topic, until

from noontide.adapters.kafka.assignor import Rules
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.membership import KafkaMembership, MembershipOptions, _discard
from noontide.adapters.system_clock import boot_ms
from noontide.ports.membership import Assignment

SLOTS = 8


class Kafka(Protocol):
    @property
    def bootstrap(self) -> str: ...


class Member:
    """A member that remembers every set it was given."""

    def __init__(self, membership: KafkaMembership) -> None:
        self.membership = membership
        self.told: list[Assignment] = []

    @property
    def slots(self) -> frozenset[int]:
        return self.told[-1].owned if self.told else frozenset()

    @property
    def standby(self) -> frozenset[int]:
        return self.told[-1].standby if self.told else frozenset()

    async def join(self) -> Member:
        await self.membership.join(self.told.append)
        return self


NewMember = Callable[[], Member]


@pytest.fixture
async def member(kafka: Kafka, prefix: str) -> AsyncIterator[NewMember]:
    await create_topic(kafka.bootstrap, f"{prefix}state", partitions=SLOTS)
    made: list[Member] = []

    def new_member() -> Member:
        made.append(
            Member(
                KafkaMembership(
                    KafkaConnection(kafka.bootstrap),
                    rules=Rules(slots=SLOTS),
                    options=MembershipOptions(group=f"{prefix}group", topic=f"{prefix}state"),
                )
            )
        )
        return made[-1]

    yield new_member
    for each in made:
        await each.membership.leave()


async def test_a_member_alone_has_all_slots_soon(member: NewMember) -> None:
    only = await member().join()
    await until(lambda: only.slots == frozenset(range(SLOTS)))
    assert only.told == [Assignment(owned=frozenset(range(SLOTS)))]


async def test_a_second_member_gets_half_and_the_first_keeps_half(member: NewMember) -> None:
    first = await member().join()
    await until(lambda: len(first.slots) == SLOTS)
    second = await member().join()
    await until(lambda: len(first.slots) == len(second.slots) == SLOTS // 2)
    assert first.slots | second.slots == set(range(SLOTS))
    assert all(told.owned for told in first.told)  # a rebalance never took everything away in between


async def test_the_slots_of_one_who_leaves_are_taken_at_once_and_nobody_elses_move(member: NewMember) -> None:
    first, second = await member().join(), await member().join()
    await until(lambda: len(first.slots) == len(second.slots) == SLOTS // 2)
    before, began_ms = first.slots, boot_ms()
    await second.membership.leave()
    await until(lambda: len(first.slots) == SLOTS)
    assert boot_ms() - began_ms < 5_500  # below the session timeout
    assert first.slots > before


@pytest.mark.slow
async def test_the_slots_of_one_who_dies_are_taken_after_the_session_timeout(member: NewMember) -> None:
    first, second = await member().join(), await member().join()
    await until(lambda: len(first.slots) == len(second.slots) == SLOTS // 2)
    began_ms = boot_ms()
    consumer, second.membership._consumer = second.membership._consumer, None
    assert second.membership._watch is not None
    second.membership._watch.cancel()
    assert consumer is not None
    await _discard(consumer)  # no goodbye
    consumer._closed = True
    await until(lambda: len(first.slots) == SLOTS)
    assert 4_000 < boot_ms() - began_ms < 25_000


async def test_one_who_retires_gives_its_slots_away_and_is_told_so(member: NewMember) -> None:
    first, second = await member().join(), await member().join()
    await until(lambda: len(first.slots) == len(second.slots) == SLOTS // 2)
    assert first.standby == second.slots
    assert second.standby == first.slots
    second.membership.retire()
    await until(lambda: len(first.slots) == SLOTS)
    await until(lambda: second.told[-1] == Assignment(retired=True))


async def test_one_who_retires_alone_keeps_what_nobody_else_can_take(member: NewMember) -> None:
    only = await member().join()
    await until(lambda: len(only.slots) == SLOTS)
    only.membership.retire()
    await until(lambda: only.told[-1] == Assignment(owned=frozenset(range(SLOTS)), retired=True))


async def test_leaving_leaves_no_task_behind(member: NewMember) -> None:
    before = asyncio.all_tasks()
    only = await member().join()
    await until(lambda: len(only.slots) == SLOTS)
    await only.membership.leave()
    await only.membership.leave()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_joining_without_a_broker_keeps_trying(prefix: str, unused_tcp_port: int) -> None:
    connection = KafkaConnection(f"127.0.0.1:{unused_tcp_port}")
    options = MembershipOptions(group=f"{prefix}group", topic=f"{prefix}state")
    lonely = await Member(KafkaMembership(connection, rules=Rules(slots=SLOTS), options=options)).join()
    await asyncio.sleep(0)
    await lonely.membership.leave()
    assert lonely.told == []
