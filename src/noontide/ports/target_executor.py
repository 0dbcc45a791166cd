"""Carrying out one attempt of a run: what a worker calls once it holds the lease."""

from __future__ import annotations

import asyncio
from typing import Protocol

from noontide.records.runs import Invitation
from noontide.records.worker_events import End


class TargetExecutor(Protocol):
    """Carries out attempts of one kind of target; many at the same time on one event loop."""

    async def execute(self, invitation: Invitation, token: int, *, cancelled: asyncio.Event) -> End:
        """Carry out the attempt `invitation.attempt` under this fencing token, once, and say how it ended.

        Bounded by `invitation.timeout_ms`. Never raises for what a target does: that is a failed End with a reason.
        When `cancelled` is set the attempt is dropped as soon as it can be, with the outcome CANCELLED. Cancelling the
        task itself is how a worker gives up at shutdown: the asyncio.CancelledError passes through.
        """
