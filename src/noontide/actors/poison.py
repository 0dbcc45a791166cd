"""The one item of a cycle that cannot be handled."""

from __future__ import annotations

from noontide.core.errors import NoontideError


class Poisoned(NoontideError):
    """Deciding one item failed; the rest of the work is decided again without it."""

    def __init__(self, partition: int, item: object, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.partition = partition
        self.item = item
