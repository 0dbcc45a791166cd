"""Starting although brokers that have just started may not know their partitions yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from noontide.ports.record_log import Doubt

START_S: Final = 60.0
START_AGAIN_S: Final = 0.2
QUIET_S: Final = 5.0
"""So long it is normal."""
log = logging.getLogger("noontide.start")


async def patiently(start: Callable[[], Awaitable[None]]) -> None:
    """Start something, again while brokers do not answer, for at most START_S. Raises Doubt then."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + START_S
    while True:
        try:
            return await start()
        except Doubt as doubt:
            if loop.time() > until_s:
                raise
            normal = loop.time() < until_s - START_S + QUIET_S
            log.log(logging.INFO if normal else logging.WARNING, "start_waits: %s; trying again", doubt)
            await asyncio.sleep(START_AGAIN_S)
