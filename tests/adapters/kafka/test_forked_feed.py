"""Two feeds as one: each partition is read by the one that its topic belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noontide.adapters.kafka.feed import ForkedFeed
from noontide.ports.record_log import Incoming, Sink, TopicPartition

CALM, BRISK = TopicPartition("n.requests.api", 1), TopicPartition("n.worker-events.default", 0)


class Noted:
    """A feed that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def attach(self, sink: Sink, positions: Mapping[TopicPartition, int]) -> None:
        self.told.append(("attach", dict(positions)))

    def detach(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("detach", list(partitions)))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("pause", list(partitions)))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("resume", list(partitions)))


def _sink(_records: list[Incoming]) -> None:
    """Nothing comes in these tests."""


def test_each_partition_goes_to_the_feed_of_its_topic() -> None:
    calm, brisk = Noted(), Noted()
    feed = ForkedFeed(calm, brisk, is_urgent=lambda topic: "worker-events" in topic)
    feed.attach(_sink, {CALM: 5, BRISK: 7})
    feed.pause([BRISK, CALM])
    feed.resume([CALM])
    feed.detach([BRISK])
    assert calm.told == [("attach", {CALM: 5}), ("pause", [CALM]), ("resume", [CALM])]
    assert brisk.told == [("attach", {BRISK: 7}), ("pause", [BRISK]), ("detach", [BRISK])]
