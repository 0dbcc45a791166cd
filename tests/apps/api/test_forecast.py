"""`/v1/forecast` over real slots in memory: what it says comes true."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import pytest
from tests.apps.api.memory_api import MemoryApi
from tests.apps.api.test_tenants import definition, opened

from noontide.apps.api.app import create_app
from noontide.apps.api.forecast import router
from noontide.apps.cli.forecast import forecast_over_api
from noontide.core.instants import parse_instant
from noontide.testing.builders import cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

MINUTE_MS = 60_000


async def asked(stage: MemoryStage, path: str) -> dict[str, Any]:
    memory = MemoryApi(stage)
    app = create_app(memory.services, settings=memory.settings)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_forecast_comes_true() -> None:
    async with MemoryStage() as stage:
        stage.register("orders")
        stage.configure("calendar/never", {"dates": ["2026-03-01"]})
        for number in range(20):
            stage.put(job(f"hourly-{number}", cron("0 * * * *"), timing="relaxed"))
            stage.put(job(f"exact-{number}", cron("30 * * * *")))
        stage.put(job("often", every("PT40S")))
        stage.put(job("later", once(START_MS + 10 * MINUTE_MS)))
        stage.put(job("paused", every("PT1M"), paused=True))
        stage.put(job("bounded", every("PT5M"), max_runs=3))
        stage.put(job("holiday", every("PT5M"), calendar={"exclude": ["never"]}))
        await stage.advance(90_000)
        found = await asked(stage, "/v1/forecast?minutes=60&by=target")
        from_ms = parse_instant(found["from"], zone=None, pointer="")
        before = len(stage.executions())
        await stage.advance(59 * MINUTE_MS)
        actual = Counter(
            (parse_instant(each["ended_at"], zone=None, pointer="") - from_ms) // MINUTE_MS
            for each in stage.executions()[before:]
        )
        assert found["complete"]
        assert found["missing_partitions"] == []
        assert {minute: count for minute, count in enumerate(found["runs"][:59]) if count} == {
            minute: count for minute, count in actual.items() if minute < 59
        }
        assert found["totals"]["targets"] == {"kafka://orders": sum(found["runs"])}
        assert found["jobs"] > 40
        assert (await asked(stage, "/v1/forecast?minutes=60&tenant=nobody"))["jobs"] == 0
        assert found["series"] == {"kafka://orders": found["runs"]}
        peak = found["peaks"][0]
        assert peak["at"].endswith("T00:30:00Z")
        assert (peak["exact"], peak["tenants"]) == (peak["runs"], {"default": peak["runs"]})
        assert peak["relaxed"] < peak["runs"]


async def test_somebody_sees_the_runs_of_their_own_tenants_only() -> None:
    async with opened() as (_, clients):
        root = clients["root"]
        for tenant in ("billing", "orders", "third"):
            await root.replace_job(tenant, definition(tenant, tenant=tenant, timing="exact"))
        mine = await clients["billing"].forecast(by="tenant")
        pair = await clients["pair"].forecast(by="tenant")
        every_one = await root.forecast(by="tenant")
        assert (sum(mine["runs"]), list(mine["series"])) == (1, ["billing"])
        assert (sum(pair["runs"]), sorted(pair["series"])) == (2, ["orders", "third"])
        assert sum(every_one["runs"]) == 3
        assert (await clients["billing"].forecast(tenant="orders"))["totals"] == {
            "tenants": {},
            "lanes": {},
            "targets": {},
        }


async def test_the_compact_array_is_the_same_series() -> None:
    async with MemoryStage() as stage:
        stage.register("orders")
        stage.put(job("a", every("PT10M", anchor_ms=START_MS)))
        await stage.run_until_idle()
        whole = await asked(stage, "/v1/forecast")
        compact = await asked(stage, "/v1/forecast/due?minutes=1440")
        assert compact["runs"] == whole["runs"]
        assert len(compact["runs"]) == 1440
        hour = await asked(stage, "/v1/forecast/due")
        assert hour["runs"] == whole["runs"][:60]
        assert [minute for minute, count in enumerate(hour["runs"]) if count] == [10, 20, 30, 40, 50]


async def test_partitions_without_an_owner_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryStage() as stage:
        stage.register("orders")
        stage.put(job("a", every("PT10M")))
        await stage.run_until_idle()
        monkeypatch.setattr(MemoryApi, "readable", lambda self, slot: None)
        found = await asked(stage, "/v1/forecast?minutes=5")
        assert not found["complete"]
        assert found["missing_partitions"] == list(range(stage.layout.partitions))
        assert found["runs"] == [0] * 5


async def test_bad_questions_are_refused() -> None:
    async with MemoryStage() as stage:
        memory = MemoryApi(stage)
        app = create_app(memory.services, settings=memory.settings)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            for query in ("minutes=0", "minutes=1441", "minutes=x", "by=job", "peaks=51"):
                assert (await client.get(f"/v1/forecast?{query}")).status_code == 422, query
        assert {route.path for route in router.routes} >= {"/v1/forecast", "/v1/forecast/due"}  # type: ignore[attr-defined]


async def test_the_command_shows_hours_and_peaks(capsys: pytest.CaptureFixture[str]) -> None:
    async with MemoryStage() as stage:
        stage.register("orders")
        stage.put(job("a", cron("30 * * * *")))
        await stage.run_until_idle()
        found = await asked(stage, "/v1/forecast?by=lane")

    class Client:
        def forecast(self, **_asked: object) -> dict[str, Any]:
            return found

    forecast_over_api(Client(), minutes=1440, by="lane", tenant=None, peaks=5, as_json=False)  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "24 runs of 1 job in 1,440 minutes" in shown
    assert "2026-03-01 00:30Z" in shown
    assert "(topics)" in shown
