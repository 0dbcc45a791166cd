"""Records that go out after the commit: a pump per topic, and every outcome is reported once."""

from __future__ import annotations

import asyncio

from noontide.actors.closing import Delivered
from noontide.actors.effects import Send
from noontide.actors.sender import Sender
from noontide.actors.settings import SchedulerSettings
from noontide.ports.record_log import Delivery, Receipt, Record


class Post:
    """A courier whose answers come when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes | None]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.arrived = asyncio.Event()
        self.most_at_once = 0
        self._now = 0

    async def send(self, topic: str, record: Record, *, partition: int | None, timeout_ms: int) -> Delivery:
        assert partition is None
        assert timeout_ms > 0
        self.asked.append((topic, record.key))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        self.arrived.set()
        gate = self.gates.get(topic)
        if gate is not None:
            await gate.wait()
        else:
            await asyncio.sleep(0)
        self._now -= 1
        failed = topic == "bad"
        return Delivery(None if failed else Receipt(0, 1, 0), "refused" if failed else None, retriable=not failed)


def _sends(topic: str, count: int) -> list[Send]:
    return [Send(3, f"{topic}:m{n}", topic, Record(b"%d" % n, b"v")) for n in range(count)]


class Outcomes:
    """Collects what is reported; `all_of` waits for so many."""

    def __init__(self) -> None:
        self.found: list[tuple[int, Delivered]] = []
        self._changed = asyncio.Event()

    def __call__(self, partition: int, event: Delivered) -> None:
        self.found.append((partition, event))
        self._changed.set()

    async def all_of(self, count: int) -> list[Delivered]:
        while len(self.found) < count:
            self._changed.clear()
            await self._changed.wait()
        return [event for _, event in self.found]


async def test_every_outcome_is_reported_once() -> None:
    outcomes = Outcomes()
    sender = Sender(Post(), outcomes, SchedulerSettings())
    sender.send([*_sends("good", 3), *_sends("bad", 2)])
    found = await outcomes.all_of(5)
    assert {(event.run_id, event.error, event.retriable) for event in found} == {
        ("good:m0", None, True), ("good:m1", None, True), ("good:m2", None, True),
        ("bad:m0", "refused", False), ("bad:m1", "refused", False),
    }  # fmt: skip
    assert {partition for partition, _ in outcomes.found} == {3}
    await sender.close()
    assert len(outcomes.found) == 5


async def test_records_of_a_topic_keep_their_order_and_their_number_at_once() -> None:
    post, outcomes = Post(), Outcomes()
    sender = Sender(post, outcomes, SchedulerSettings(sends_in_flight_max=4))
    sender.send(_sends("good", 10))
    await outcomes.all_of(10)
    assert [key for _, key in post.asked] == [b"%d" % n for n in range(10)]
    assert post.most_at_once == 4
    await sender.close()


async def test_a_topic_that_hangs_holds_up_nobody_else() -> None:
    post, outcomes = Post(), Outcomes()
    post.gates["slow"] = asyncio.Event()
    sender = Sender(post, outcomes, SchedulerSettings())
    sender.send([*_sends("slow", 2), *_sends("good", 2)])
    assert [event.run_id for event in await outcomes.all_of(2)] == ["good:m0", "good:m1"]
    post.gates["slow"].set()
    assert len(await outcomes.all_of(4)) == 4
    await sender.close()


async def test_after_close_nothing_is_reported() -> None:
    post, outcomes = Post(), Outcomes()
    post.gates["slow"] = asyncio.Event()
    sender = Sender(post, outcomes, SchedulerSettings())
    sender.send(_sends("slow", 2))
    await post.arrived.wait()
    await sender.close()
    post.gates["slow"].set()
    await asyncio.sleep(0)
    assert outcomes.found == []


async def test_a_topic_that_was_done_is_taken_up_again() -> None:
    outcomes = Outcomes()
    sender = Sender(Post(), outcomes, SchedulerSettings())
    sender.send(_sends("good", 1))
    await outcomes.all_of(1)
    sender.send(_sends("good", 2))
    assert len(await outcomes.all_of(3)) == 3
    await sender.close()
