"""What a slot works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from noontide.actors.breaker import Breakers
from noontide.actors.effects import Decided, Effects, Send
from noontide.actors.pulse import Pulse
from noontide.core.tracing import TraceSpan
from noontide.ports.clock import BrokerTimeSource
from noontide.ports.due_index import DueIndex
from noontide.ports.record_log import SlotLog
from noontide.records.config import ConfigView
from noontide.records.worker_inbox import Answer


class ConfigSource(Protocol):
    """The configuration as this process has read it."""

    @property
    def view(self) -> ConfigView:
        """What is known now."""

    async def refresh(self) -> ConfigView:
        """Read to the end as of now."""


def to_nobody(_decided: list[Decided]) -> None:
    """Nobody waits for verdicts here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPorts:
    """What a slot works with. `send`, `answer`, `decided` and `spans` take what goes out after the commit."""

    log: SlotLog
    index: DueIndex
    clock: BrokerTimeSource
    config: ConfigSource
    breakers: Breakers
    send: Callable[[list[Send]], None]
    answer: Callable[[list[tuple[int, Answer]]], None]
    decided: Callable[[list[Decided]], None] = to_nobody
    spans: Callable[[list[TraceSpan]], None] | None = None
    pulse: Pulse = field(default_factory=Pulse)

    def tell(self, effects: Effects) -> None:
        """Send out what follows from a commit."""
        self.send(effects.sends)
        self.answer(list(effects.answers.values()))
        if effects.decided:
            self.decided(effects.decided)
        if effects.spans and self.spans is not None:
            self.spans(effects.spans)
