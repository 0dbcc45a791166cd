"""The event loop of a process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final

SWITCH_S: Final = 0.001
"""How long a thread that has read something waits for the thread of the loop, when that is at work; 5 ms by default."""


def run_on_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end on uvloop where it exists (not on Windows): sockets and timers cost half as much there."""
    sys.setswitchinterval(SWITCH_S)
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
