"""What other slots have sent to this one, in the order in which it arrived: forwarded requests, and messages.

Both are taken from the front only, so what is consumed of a partition is always a prefix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from noontide.actors.request_input import Input
from noontide.core.errors import NoontideError
from noontide.records.rejected import Origin
from noontide.records.signals import Signal


class Message(NamedTuple):
    """A signal that was read. sender: the slot it is from."""

    source: Origin
    sender: int
    signal: Signal

    @property
    def size_bytes(self) -> int:
        """Messages are small: they do not count."""
        return 0


class Misread(NoontideError):
    """Deciding one message (or what became of an earlier one) failed; all is decided again with it set aside."""

    def __init__(self, what: object, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.what = what


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Deciding about one thing: whatever goes wrong is told of it. what: a Message's source, or another name."""
    try:
        yield
    except Exception as error:
        raise Misread(what, error) from error


class Mailbox:
    """The mailbox of one slot."""

    def __init__(self) -> None:
        self._items: deque[Input | Message] = deque()

    def put(self, item: Input | Message) -> None:
        """Something has arrived."""
        self._items.append(item)

    def take_messages(self, limit: int) -> list[Message]:
        """Messages up to the next forwarded request, at most `limit`."""
        taken: list[Message] = []
        while self._items and len(taken) < limit and isinstance(item := self._items[0], Message):
            taken.append(item)
            self._items.popleft()
        return taken

    def take_requests(self, limit: int, bytes_max: int) -> list[Input]:
        """Forwarded requests up to the next message, at most `limit`; one at least, whatever its size."""
        taken: list[Input] = []
        while self._items and len(taken) < limit and (bytes_max > 0 or not taken):
            item = self._items[0]
            if not isinstance(item, Input):
                break
            taken.append(item)
            self._items.popleft()
            bytes_max -= item.size_bytes
        return taken

    @property
    def has_request(self) -> bool:
        """Whether a forwarded request is next."""
        return bool(self._items) and isinstance(self._items[0], Input)

    def __len__(self) -> int:
        return len(self._items)
