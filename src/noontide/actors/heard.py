"""What workers said, as an owner reads it."""

from __future__ import annotations

from typing import NamedTuple

from noontide.records.worker_events import Frame


class Heard(NamedTuple):
    """A frame of events as it was read."""

    lane: str
    offset: int
    appended_ms: int
    frame: Frame

    @property
    def size_bytes(self) -> int:
        """Bytes of what it brings back: the greater part of a great frame."""
        return sum(len(end.result) for end in self.frame.ends)
