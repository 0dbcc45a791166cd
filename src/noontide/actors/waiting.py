"""The one way in which a loop waits: for something to happen, and no longer than so long."""

from __future__ import annotations

import asyncio


async def wait_for_event(event: asyncio.Event, *, at_most_ms: float) -> None:
    """Return when the event is set, or after `at_most_ms` milliseconds."""
    try:
        async with asyncio.timeout(at_most_ms / 1000):
            await event.wait()
    except TimeoutError:
        return
