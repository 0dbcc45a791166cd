"""Backfills through the client and every route, over real slots in memory."""

from __future__ import annotations

import httpx
import pytest
from tests.apps.api.memory_api import MemoryApi

from noontide.apps.api.app import create_app
from noontide.client import AsyncClient, ClientSettings, Conflict, Invalid
from noontide.testing.builders import every, job
from noontide.testing.memory_stage import MemoryStage

FROM, TO = "2026-02-28T20:00:00Z", "2026-03-01T00:00:00Z"


async def test_it_says_what_it_makes_and_makes_it() -> None:
    async with MemoryStage() as stage:
        stage.register("orders")
        stage.put(job("a", every("PT1H")))
        await stage.advance(1_000)
        memory = MemoryApi(stage)
        app = create_app(memory.services, settings=memory.settings)
        transport, settings = httpx.ASGITransport(app), ClientSettings(attempts_max=1)
        async with AsyncClient("http://api", settings=settings, transport=transport) as client:
            dry = await client.backfill_job("a", FROM, TO, dry_run=True)
            assert (dry.runs, dry.skipped, dry.dry_run) == (4, 0, True)
            assert stage.run_ids("orders") == []
            made = await client.backfill_job("a", FROM, TO, idempotency_key="k")
            assert (made.runs, made.repeated, made.begin.hour, made.end.hour) == (4, False, 20, 0)
            again = await client.backfill_job("a", FROM, TO, idempotency_key="k")
            assert (again.runs, again.repeated) == (4, True)
            with pytest.raises(Conflict):
                await client.backfill_job("a", FROM, TO, idempotency_key="k", max=9)
            with pytest.raises(Invalid) as refused:
                await client.backfill_job("a", FROM, TO, max=3)
            assert [each.pointer for each in refused.value.problems] == ["/to"]
        assert stage.run_ids("orders") == [f"a:20260228T{hour}0000Z" for hour in (20, 21, 22, 23)]
