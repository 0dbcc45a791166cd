"""What a slot reads: which partitions of which topics, from where, and how their records become requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from noontide.actors.heard import Heard
from noontide.actors.mailbox import Message
from noontide.actors.request_input import Input
from noontide.ports.record_log import Incoming, Replay, TopicPartition
from noontide.records.config import ConfigView
from noontide.records.rejected import Origin, parse_origin
from noontide.records.signals import decode_signal
from noontide.records.topics import DEFAULT_DOMAINS, DEFAULT_LANES, Layout
from noontide.records.worker_events import decode_frame

_origin: Callable[..., Origin] = tuple.__new__
_input: Callable[..., Input] = tuple.__new__
SIGNALS, WORKER_EVENTS = "signals", "worker-events."
Positions = Mapping[int | str, Mapping[str, int]]
"""Next offsets per input, by partition or mailbox; see `records.state.Position`."""


class FirstRequests(NamedTuple):
    """Requests found in the log at a take-over, and where to go on reading; only partitions that exist."""

    records: list[Incoming]
    reached: dict[TopicPartition, int]


class Inputs:
    """The input topics of one slot."""

    def __init__(self, layout: Layout, slot: int) -> None:
        self._layout = layout
        self._slot = slot
        self._short_names: dict[str, str] = {}

    def partitions(self, domains: Iterable[str], lanes: Iterable[str] = ()) -> list[TopicPartition]:
        """Every partition the slot reads, for these request domains and lanes and the ones that always exist."""
        layout, numbers = self._layout, self._layout.partitions_of(self._slot)
        topics = [layout.name("requests", domain=domain) for domain in sorted({*domains, *DEFAULT_DOMAINS})]
        mailboxes = layout.signals_partitions_of(self._slot)
        return [
            *(TopicPartition(topic, number) for topic in topics for number in numbers),
            *(TopicPartition(layout.name(SIGNALS), mailbox) for mailbox in mailboxes),
            *(
                TopicPartition(layout.name("worker-events", lane=lane), self._slot)
                for lane in sorted({*lanes, *DEFAULT_LANES})
            ),
        ]

    def position(self, at: TopicPartition, positions: Positions) -> int:
        """The next offset to read of one of them; 0 when nothing of it was consumed yet."""
        short = self._short(at.topic)
        owner: int | str = at.partition if short.startswith("requests.") else f"slot-{self._slot}"
        return positions.get(owner, {}).get(Origin(short, at.partition, 0).name, 0)

    def read(self, replay: Replay, positions: Positions, config: ConfigView, *, records_max: int) -> FirstRequests:
        """Read what is in the log by now, about `records_max` records at most. Blocking; raises Doubt."""
        ends = replay.stable_offsets(self.partitions(config.domains, config.lanes))
        reached = {at: self.position(at, positions) for at in ends}
        records: list[Incoming] = []
        for chunk in replay.read(reached, ends):
            records += chunk
            reached.update((TopicPartition(each.topic, each.partition), each.offset + 1) for each in chunk)
            if len(records) >= records_max:
                return FirstRequests(records, reached)
        return FirstRequests(records, ends)

    def heard(self, record: Incoming) -> Heard | None:
        """The frame in a record of `worker-events.<lane>`; None for one that is none."""
        try:
            frame = decode_frame(record.value or b"")
        except (ValueError, RecursionError):
            return None
        if not frame.worker and frame.probe is None:
            return None
        lane = self._short(record.topic).removeprefix(WORKER_EVENTS)
        return Heard(lane, record.offset, record.appended_ms, frame)

    def is_event(self, record: Incoming) -> bool:
        """Whether a record is of `worker-events.<lane>`."""
        return self._short(record.topic).startswith(WORKER_EVENTS)

    def request(self, record: Incoming) -> Input | Message | None:
        """The request or message in a record; None for a record of `signals` that is neither."""
        topic, partition, offset, appended_ms, key, value, headers = record
        source = _origin(Origin, (self._short(topic), partition, offset))
        if source.topic != SIGNALS:
            return _input(Input, (source, source, appended_ms, key, value, headers, False, None))
        return self._signal(record, source)

    def _signal(self, record: Incoming, source: Origin) -> Input | Message | None:
        signal = decode_signal(record.value, record.headers)
        if signal is not None:
            return Message(source, record.partition % self._layout.slots, signal)
        headers = dict(record.headers)
        if headers.get("kind") != b"forward" or not self._is_ours(record.key):
            return None
        original = [(name[8:], value) for name, value in record.headers if name.startswith("request-")]
        origin = parse_origin(headers["origin"].decode())
        return Input(source, origin, int(headers["appended"]), record.key, record.value, original, forwarded=True)

    def _is_ours(self, key: bytes | None) -> bool:
        return key is not None and self._layout.slot_of(self._layout.partition_of(key)) == self._slot

    def _short(self, topic: str) -> str:
        name = self._short_names.get(topic)
        if name is None:
            name = self._short_names[topic] = self._layout.short(topic)
        return name
