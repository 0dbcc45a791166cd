"""Other people's topics on the log in memory: the courier and the inspector."""

from __future__ import annotations

from noontide.adapters.memory.log import MemoryLog, Refused
from noontide.core.partitioner import partition_for
from noontide.ports.record_log import Delivery, Record, TopicFacts, TopicPartition


class MemoryCourier:
    """`Courier` on a `MemoryLog`; a record without a key goes to partition 0."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def send(self, topic: str, record: Record, *, partition: int | None, timeout_ms: int) -> Delivery:
        """See `Courier.send`."""
        assert timeout_ms > 0
        if self._log.faults.silent:
            return Delivery(None, "the log does not answer")
        count = self._log.partitions(topic)
        if count is None:
            return Delivery(None, f"topic {topic} does not exist")
        if partition is None:
            partition = 0 if record.key is None else partition_for(record.key, count)
        try:
            return Delivery(self._log.append(TopicPartition(topic, partition), [record]), None)
        except Refused as refused:
            return Delivery(None, refused.reason, retriable=refused.retriable)


class MemoryInspector:
    """`TopicInspector` on a `MemoryLog`: looks at once at a new topic, then whenever `inspect` is called."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._facts: dict[str, TopicFacts] = {}

    def facts(self, topic: str) -> TopicFacts | None:
        """See `TopicInspector.facts`; never None here, since looking takes no time."""
        if topic not in self._facts:
            self._facts[topic] = self._look(topic)
        return self._facts[topic]

    def distrust(self, topic: str, reason: str) -> None:
        """See `TopicInspector.distrust`; lasts until `inspect`."""
        known = self.facts(topic)
        assert known is not None
        self._facts[topic] = known._replace(problem=reason)

    def inspect(self) -> None:
        """Look again at every topic that was asked for."""
        self._facts = {topic: self._look(topic) for topic in self._facts}

    def _look(self, topic: str) -> TopicFacts:
        count = self._log.partitions(topic)
        if count is None:
            return TopicFacts(0, 0, f"topic {topic} does not exist")
        return TopicFacts(count, self._log.max_message_bytes(topic), self._log.faults.refused_topics.get(topic))
