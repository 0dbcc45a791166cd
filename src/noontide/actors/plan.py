"""One cycle of a slot between gather and apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from noontide.actors.effects import Effects
from noontide.actors.exchange import ExchangeWork
from noontide.actors.lease_keeper import KeeperWork
from noontide.actors.partition import Work
from noontide.actors.world import World
from noontide.records.rows import due_key_parts


@dataclass(slots=True, kw_only=True)
class Plan:
    """One cycle between gather and apply.

    expired: what is to be forgotten; positions: the inputs consumed with it, by partition or mailbox.
    """

    world: World
    work: dict[int, Work]
    keeping: KeeperWork
    exchange: ExchangeWork
    fetched: Mapping[bytes, bytes | None]
    effects: Effects
    expired: list[bytes]
    positions: dict[int | str, dict[str, int]]

    @property
    def late_ms(self) -> int | None:
        """How late the oldest occurrence is that is fired; None when nothing is."""
        oldest = (due_key_parts(each.due[0][0])[0] for each in self.work.values() if each.due)
        return max((max(0, self.world.now_ms - start_ms) for start_ms in oldest), default=None)
