"""The end of an index that several actors use one after the other."""

from __future__ import annotations

import asyncio
import logging

from noontide.ports.due_index import DueIndex, IndexFailed

log = logging.getLogger("noontide.slot")


async def close_index(index: DueIndex, slot: int) -> None:
    """Close an index in a thread; a disk that fails loses only what the log has too."""
    try:
        await asyncio.to_thread(index.close)
    except IndexFailed as error:
        log.warning("slot %d: %s", slot, error)
