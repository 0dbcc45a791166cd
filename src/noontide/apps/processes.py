"""Several scheduler processes on one machine: a parent that starts them, starts them again, and passes signals on.

Python runs one thread at a time, so a machine with more cores is used by more processes. They divide the slots like
processes on different machines.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from noontide.actors.waiting import wait_for_event

log = logging.getLogger("noontide.processes")

PARENT_FD: Final = "--parent-fd"
AGAIN_AFTER_S: Final = 1.0
AGAIN_AFTER_MAX_S: Final = 30.0
# A process that ends by itself so soon after its first start will not do better the next time.
HOPELESS_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Processes:
    """Child processes that run until a signal comes. commands: one each, to which the parent's descriptor is added.

    The children hold the reading end of a pipe: when the parent is gone, however that happened, they end too.
    """

    commands: Sequence[Sequence[str]]
    variables: Mapping[str, str] = field(default_factory=dict)
    _children: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _fault: int = 0

    async def run(self) -> int:
        """Run them until SIGTERM or SIGINT, which all of them get; returns an exit code, that of a hopeless child."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._pass_on, signum)
        reading, writing = os.pipe()
        try:
            await asyncio.gather(*(self._keep(number, reading) for number in range(len(self.commands))))
        finally:
            os.close(writing)
            os.close(reading)
        return self._fault

    def _pass_on(self, signum: int) -> None:
        self._stopping.set()
        for child in self._children.values():
            if child.returncode is None:
                child.send_signal(signum)

    async def _keep(self, number: int, reading: int) -> None:
        """Run one child, and another one whenever it has ended by itself."""
        loop, pause_s = asyncio.get_running_loop(), AGAIN_AFTER_S
        while not self._stopping.is_set():
            began_s = loop.time()
            child = await self._start(number, reading)
            code = await child.wait()
            if self._stopping.is_set():
                return
            if code > 0 and loop.time() - began_s < HOPELESS_S:
                log.error("process %d ended with %d right after its start; giving up", number, code)
                self._fault = code
                self._pass_on(signal.SIGTERM)
                return
            pause_s = (
                AGAIN_AFTER_S if loop.time() - began_s > AGAIN_AFTER_MAX_S else min(2 * pause_s, AGAIN_AFTER_MAX_S)
            )
            log.warning("process %d ended with %d; starting another one in %.0f s", number, code, pause_s)
            await wait_for_event(self._stopping, at_most_ms=pause_s * 1000)

    async def _start(self, number: int, reading: int) -> asyncio.subprocess.Process:
        """A child in a session of its own: Ctrl-C in a terminal reaches it once, through the parent."""
        child = self._children[number] = await asyncio.create_subprocess_exec(
            *self.commands[number],
            PARENT_FD,
            str(reading),
            stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, **self.variables},
            pass_fds=(reading,),
            start_new_session=True,
        )
        if self._stopping.is_set():
            child.send_signal(signal.SIGTERM)
        return child
