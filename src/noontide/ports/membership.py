"""Who works on which slots. A hint only: the lock of a slot is its transactional id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


class Assignment(NamedTuple):
    """What one member is to do.

    owned: slots to work on. standby: slots to keep a copy of. warming: those of `standby` that are to be owned as soon
    as the copy has caught up, and that their present owner keeps until then.
    retired: the group knows that this member is leaving; what is owned nevertheless, nobody else can take.
    """

    owned: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    warming: frozenset[int] = frozenset()
    retired: bool = False


class Standing(NamedTuple):
    """What a member tells about its slots at each division; see `adapters.kafka.assignor.Claim`.

    freshness: per slot with a local copy, the sum of the offsets it reflects. load: per owned slot, how busy it is.
    unfit: its disk fails, so others should have all its slots while there are any.
    """

    freshness: Mapping[int, int]
    load: Mapping[int, int]
    unfit: bool = False


class Membership(Protocol):
    """Membership of the scheduler group."""

    async def join(self, on_assignment: Callable[[Assignment], None]) -> None:
        """Join; `on_assignment` is called on the event loop with all this member is to do, at every change."""

    def rejoin(self) -> None:
        """Ask for another division: what this member can take has changed."""

    def retire(self) -> None:
        """Ask for a division that gives this member's slots to others, while it works on."""

    async def leave(self) -> None:
        """Leave cleanly so that others take over at once; bounded, never raises."""
