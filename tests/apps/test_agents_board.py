"""What an API node reads of the agents' topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from noontide.apps import agents_board
from noontide.apps.agents_board import ALERTS_MAX, AgentsBoard, AlertBook
from noontide.ports.record_log import Doubt, Feed, Incoming, Replay, TopicPartition
from noontide.records.topics import Layout


class Brokers:
    """Feed and replay; `doubts` questions are not answered."""

    def __init__(self, doubts: int = 0, missing: str = "") -> None:
        self.doubts = doubts
        self.missing = missing
        self.attached: dict[TopicPartition, int] = {}

    def stable_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if len(self.attached) or (self.doubts and partitions[0].topic.endswith("alerts")):
            self.doubts -= 1
            raise Doubt("no leader")
        return {} if partitions[0].topic == self.missing else dict.fromkeys(partitions, 500)

    def attach(self, _sink: object, positions: Mapping[TopicPartition, int]) -> None:
        assert not self.attached.keys() & positions.keys()
        self.attached.update(positions)


async def test_it_can_start_again_when_brokers_do_not_answer() -> None:
    brokers = Brokers(doubts=1)
    board = AgentsBoard(Layout(slots=4), feed=cast("Any", brokers), replay=cast("Any", brokers), now_ms=lambda: 0)
    with pytest.raises(Doubt):
        await board.start()
    assert brokers.attached == {}
    await board.start()
    assert {at.topic: start for at, start in brokers.attached.items()} == {
        "noontide.agents-state": 0, "noontide.agents-told": 0, "noontide.alerts": 300,
    }  # fmt: skip


async def test_a_topic_that_is_not_there_yet_is_left_out() -> None:
    brokers = Brokers(missing="noontide.agents-told")
    board = AgentsBoard(Layout(slots=4), feed=cast("Any", brokers), replay=cast("Any", brokers), now_ms=lambda: 0)
    await board.start()
    assert {at.topic for at in brokers.attached} == {"noontide.agents-state", "noontide.alerts"}


def test_the_latest_alerts_are_kept_once_each() -> None:
    book = AlertBook()

    def alert(number: int) -> Incoming:
        value = b'{"alert_id":"%d","kind":"dead","job_id":"a","tenant":"t"}' % number
        return Incoming("noontide.alerts", 0, number, number, b"a", value, [])

    book.take([alert(number) for number in (*range(ALERTS_MAX + 5), 3, ALERTS_MAX)])
    ids = [int(each.alert_id) for each in book.latest()]
    assert len(ids) == ALERTS_MAX == len(set(ids))
    assert ids[0] == ALERTS_MAX + 4


class Topics:
    """A replay and a feed over topics that exist one after the other."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.attached: list[str] = []

    def stable_offsets(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: 5 for at in places if at.topic in self.there}

    def attach(self, _sink: object, starts: Mapping[TopicPartition, int]) -> None:
        self.attached += sorted({at.topic for at in starts})


async def test_topics_that_come_later_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_board, "LOOK_AGAIN_S", 0.001)
    topics, layout = Topics(), Layout(prefix="t.")
    topics.there = {"t.alerts"}
    board = AgentsBoard(layout, feed=cast("Feed", topics), replay=cast("Replay", topics), now_ms=lambda: 0)
    await board.start()
    assert topics.attached == ["t.alerts"]
    looking = asyncio.create_task(board.run())
    await asyncio.sleep(0.01)
    assert not looking.done()
    topics.there |= {"t.agents-state", "t.agents-told"}
    await asyncio.wait_for(looking, 10)
    assert sorted(topics.attached) == ["t.agents-state", "t.agents-told", "t.alerts"]
