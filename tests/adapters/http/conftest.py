"""Executors that may talk to this machine, closed after each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from noontide.adapters.http import HttpExecutor, HttpSettings
from noontide.records.runs import Invitation
from noontide.records.worker_events import End

LOCAL = HttpSettings(allow_loopback=True)
Attempt = Callable[[Invitation], Awaitable[End]]


@pytest.fixture
async def executor() -> AsyncIterator[HttpExecutor]:
    made = HttpExecutor(LOCAL)
    yield made
    await made.aclose()


@pytest.fixture
def attempt(executor: HttpExecutor) -> Attempt:
    """One attempt with token 7 that nobody cancels."""

    async def execute(invited: Invitation) -> End:
        return await executor.execute(invited, 7, cancelled=asyncio.Event())

    return execute
