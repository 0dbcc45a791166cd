"""The configuration topic as one process has read it: to its end at the start, then as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noontide.ports.record_log import Feed, Incoming, Replay, TopicPartition
from noontide.records.config import ConfigView, updated_view


class ConfigDirectory:
    """Keeps the latest view. `on_change` is called on the event loop after each change."""

    def __init__(
        self, at: TopicPartition, *, feed: Feed, replay: Replay, on_change: Callable[[ConfigView], None]
    ) -> None:
        self._at = at
        self._feed = feed
        self._replay = replay
        self._on_change = on_change
        self._view = ConfigView()

    @property
    def view(self) -> ConfigView:
        """What is known now."""
        return self._view

    async def start(self) -> None:
        """Read all there is, then follow. Raises Doubt when the log cannot be read."""
        await self.refresh()
        self._feed.attach(self._take, {self._at: self._view.offset})

    async def refresh(self) -> ConfigView:
        """Read to the end as of now."""
        start = self._view.offset
        end, records = await asyncio.to_thread(self._read, start)
        self._take(records, end=end)
        return self._view

    def close(self) -> None:
        """Stop following."""
        self._feed.detach([self._at])

    def _read(self, start: int) -> tuple[int, list[Incoming]]:
        end = self._replay.stable_offsets([self._at])[self._at]
        chunks = self._replay.read({self._at: start}, {self._at: end})
        return end, [record for chunk in chunks for record in chunk]

    def _take(self, records: list[Incoming], end: int = 0) -> None:
        fresh = [record for record in records if record.offset >= self._view.offset]
        known = [((record.key or b"").decode(errors="replace"), record.value) for record in fresh]
        offset = max([self._view.offset, end, *(record.offset + 1 for record in fresh)])
        self._view = updated_view(self._view, known, offset=offset)
        if known:
            self._on_change(self._view)
