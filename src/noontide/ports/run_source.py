"""What a worker needs from the world: invitations that come in, frames that go out, answers that come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from noontide.records.worker_inbox import Answer

Place = tuple[int, int]
"""Where an invitation stood: partition and offset on `runs.<lane>`."""


class Delivered(NamedTuple):
    """One record of `runs.<lane>`.

    last: the group gives the record up when it is released once more; it then comes back by its queue deadline.
    """

    place: Place
    value: bytes
    last: bool


DeliverySink = Callable[[list[Delivered]], None]
AnswerSink = Callable[[list[Answer]], None]


class RunSource(Protocol):
    """The records of one lane as one member of its worker group gets them. All methods are for the loop's thread.

    It only delivers: a record may come twice, or to two workers. The lease decides.
    """

    def start(self, sink: DeliverySink) -> None:
        """Begin; the sink is called on the event loop."""

    def want(self, count: int) -> None:
        """How many records the worker can take now. More may come at once, nothing comes at 0.

        A member that wants nothing for a while leaves the group, so that others get what it would have got.
        """

    def accept(self, places: Sequence[Place]) -> None:
        """These records need not be delivered again to anybody."""

    def release(self, places: Sequence[Place]) -> None:
        """These records are for somebody else, or for later."""

    async def close(self) -> None:
        """Leave the group within a bounded time; what was neither accepted nor released is released. Never raises."""


class EventLine(Protocol):
    """The way to the owners of slots and back."""

    async def open(self, sink: AnswerSink) -> None:
        """Begin to listen: answers to everything posted from now on reach the sink, on the event loop."""

    async def post(self, lane: str, slot: int, value: bytes) -> None:
        """Append a frame to `worker-events.<lane>`; returns when all replicas in sync have it. Tries until it is told
        to end (cancel the task), so a frame may be appended twice."""

    async def close(self) -> None:
        """End within a bounded time; never raises."""
