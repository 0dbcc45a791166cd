"""The event loop of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run_on_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end on uvloop where it exists (not on Windows): sockets and timers cost half as much there."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
