"""How far a consumer group is behind: its committed offsets against what readers of committed records can see."""

from __future__ import annotations

from typing import Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.foreign_topics import Unreachable

_TIMEOUT_S: Final = 15.0


def group_lag(connection: KafkaConnection, *, group: str, topic: str) -> int | None:
    """Offsets between the group and the end of a topic, over all partitions; None when the topic does not exist.

    Markers of transactions count as well. A partition without a commit counts from its beginning. Raises Unreachable.
    """
    admin = AdminClient(connection.for_confluent("admin"))
    try:
        found = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        places = [ck.TopicPartition(topic, number) for number in found.partitions]
        if not places:
            return None
        ends = _offsets(admin, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        begins = _offsets(admin, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        asked = ck.ConsumerGroupTopicPartitions(group, places)
        answer = admin.list_consumer_group_offsets([asked])[group].result(_TIMEOUT_S)
    except ck.KafkaException as error:
        raise Unreachable(f"{connection.bootstrap}: {error.args[0]}") from error
    committed: dict[int, int] = {each.partition: each.offset for each in answer.topic_partitions or ()}
    return sum(max(0, end - max(committed.get(number, -1), begins[number])) for number, end in ends.items())


def _offsets(admin: AdminClient, places: list[ck.TopicPartition], spec: OffsetSpec) -> dict[int, int]:
    answers = admin.list_offsets(
        dict.fromkeys(places, spec), isolation_level=ck.IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
    )
    return {place.partition: answer.result(_TIMEOUT_S).offset for place, answer in answers.items()}
