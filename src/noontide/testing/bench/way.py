"""The way of runs to their handlers, by the append times of the records that led there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from noontide.adapters.kafka.replay import KafkaReplay
from noontide.ports.record_log import Incoming, TopicPartition
from noontide.records.runs import decode_invitation
from noontide.records.worker_events import decode_frame
from noontide.records.worker_inbox import decode_answer
from noontide.testing.bench.measure import percentiles
from noontide.testing.bench.stage import Stage

_STATIONS: Final[Mapping[str, tuple[str, Callable[[bytes], Iterable[str]]]]] = {
    "offered": ("runs", lambda value: [decode_invitation(value).run_id]),
    "claimed": ("worker-events", lambda value: [run_id for run_id, _ in decode_frame(value).claims]),
    "granted": ("worker-inbox", lambda value: [run_id for run_id, *_ in decode_answer(value).grants]),
}


def way_of(stage: Stage, dues: Mapping[str, int]) -> dict[str, object]:
    """When runs were offered, claimed and granted: append time minus due, p50 and p99 in ms. dues: of runs, by id."""
    figures: dict[str, object] = {}
    for station, (topic, runs_in) in _STATIONS.items():
        late_ms: dict[str, int] = {}
        for record in _records(stage, topic):
            for run_id in runs_in(record.value or b""):
                if run_id in dues:
                    late_ms.setdefault(run_id, record.appended_ms - dues[run_id])
        found = percentiles(sorted(late_ms.values()))
        figures |= {f"{station}_p50_ms": found["p50_ms"], f"{station}_p99_ms": found["p99_ms"]}
    return figures


def _records(stage: Stage, topic: str) -> Iterator[Incoming]:
    layout, lane = stage.layout, {} if topic == "worker-inbox" else {"lane": "default"}
    name, replay = layout.name(topic, **lane), KafkaReplay(stage.connection)
    partitions = [TopicPartition(name, number) for number in range(layout.topic_partitions(topic))]
    for chunk in replay.read(dict.fromkeys(partitions, 0), replay.stable_offsets(partitions)):
        yield from chunk
