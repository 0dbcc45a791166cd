"""What a decision may know besides the partition's own facts: time, configuration, and the health of target topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from noontide.actors.ties import Ties
from noontide.core.pace import Pace
from noontide.records.config import ConfigView
from noontide.records.topics import Layout


class Route(NamedTuple):
    """A registered topic, as seen when the cycle began.

    problem: why nothing can be written now (None = healthy); allowance: records that may be tried now.
    """

    partitions: int
    max_message_bytes: int
    problem: str | None
    allowance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A snapshot for one cycle. `config_is_fresh`: the configuration was read to its end after the inputs arrived.

    rooms: how many runs each lane's window takes beside the promised ones, which come from its queue.
    paces: targets that are slowed.
    ties: jobs that wait for others, as the slot knows them.
    permitted: runs that take a permit in this cycle, and the limiter it is of.
    """

    now_ms: int
    layout: Layout
    config: ConfigView
    routes: Mapping[str, Route] = field(default_factory=dict)
    config_is_fresh: bool = False
    rooms: Mapping[str, int] = field(default_factory=dict)
    promised: frozenset[str] = frozenset()
    permitted: Mapping[str, str] = field(default_factory=dict)
    ties: Ties = field(default_factory=Ties)
    paces: Mapping[str, Pace] = field(default_factory=dict)
