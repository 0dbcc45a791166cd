"""The application without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.apps.api.memory_api import MemoryApi, client_of

from noontide.apps.api.app import create_app
from noontide.apps.api.services import Services
from noontide.core.instants import parse_instant
from noontide.records.config import ConfigView, updated_view
from noontide.records.topics import Layout
from noontide.testing.memory_stage import MemoryStage

NOW_MS = parse_instant("2026-03-01T12:00:00Z", zone=None, pointer="")


@pytest.fixture
def config() -> ConfigView:
    """A calendar and a topic."""
    holidays = b'{"dates": ["2026-03-02"]}'
    return updated_view(ConfigView(), [("calendar/holidays", holidays)], offset=1)


@pytest.fixture
async def client(config: ConfigView) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks to an application whose clock stands at NOW_MS."""
    app = create_app(Services(layout=Layout(), config=lambda: config, now_ms=lambda: NOW_MS))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as opened:
        yield opened


@pytest.fixture
async def memory() -> AsyncIterator[MemoryApi]:
    """The whole API over two slots in memory, with a registered topic."""
    async with MemoryStage(layout=Layout(partitions=8, slots=2)) as stage:
        stage.register("orders")
        yield MemoryApi(stage)


@pytest.fixture
async def http(memory: MemoryApi) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks to it."""
    async with client_of(memory) as opened:
        yield opened
