"""What one tenant is to another: nothing. Through the client, every route, and real slots in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.apps.access.test_bearer import token_of
from tests.apps.api.memory_api import MemoryApi

from noontide.apps.access.bearer import BearerAccess
from noontide.apps.api.app import create_app
from noontide.apps.api.verdicts import Place
from noontide.client import AsyncClient, ClientSettings, Conflict, Invalid, NotFound, StaleVersion
from noontide.core.access import Role
from noontide.records.config import ConfigView, updated_view
from noontide.testing.memory_stage import MemoryStage

HANDLER = "handler:x"
TENANTS = {"billing": {"billing"}, "orders": {"orders"}, "pair": {"orders", "third"}, "root": {"*"}}
SETTINGS = ClientSettings(attempts_max=1)


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[MemoryStage, dict[str, AsyncClient]]]:
    """A client per token, all of operators."""
    texts, view = {}, ConfigView()
    for name, tenants in TENANTS.items():
        texts[name], kept = token_of(name, Role.ADMIN if name == "root" else Role.OPERATOR, tenants)
        view = updated_view(view, [(f"token/{name}", kept)], offset=view.offset + 1)
    async with MemoryStage() as stage:
        stage.register("orders")
        memory = MemoryApi(stage)
        access = BearerAccess(lambda: view, memory.settings)
        app = create_app(memory.services, settings=memory.settings, authenticate=access)
        transport = httpx.ASGITransport(app)
        clients = {
            name: AsyncClient("http://api", token=text, settings=SETTINGS, transport=transport)
            for name, text in texts.items()
        }
        yield stage, clients
        for client in clients.values():
            await client.aclose()


def definition(job_id: str, **fields: object) -> dict[str, object]:
    return {"id": job_id, "schedule": "0 6 * * *", "target": HANDLER, **fields}


@pytest.mark.parametrize("stranger", ["orders", "pair"])
async def test_a_job_and_its_runs_are_not_there_for_another_tenant(stranger: str) -> None:
    async with opened() as (_, clients):
        mine, theirs = clients["billing"], clients[stranger]
        job = await mine.create_job(definition("j"))
        assert job.tenant == "billing"
        run_id = await mine.trigger_job("j")
        asks: dict[str, Callable[[], Awaitable[object]]] = {
            "get": lambda: theirs.get_job("j"),
            "change": lambda: theirs.change_job("j", {"note": "x"}),
            "delete": lambda: theirs.delete_job("j"),
            "pause": lambda: theirs.pause_job("j"),
            "resume": lambda: theirs.resume_job("j"),
            "trigger": lambda: theirs.trigger_job("j"),
            "next": lambda: theirs.next_times("j"),
            "run": lambda: theirs.get_run(run_id),
            "cancel": lambda: theirs.cancel_run(run_id),
            "retry": lambda: theirs.retry_run(run_id),
        }
        for name, ask in asks.items():
            with pytest.raises(NotFound) as refused:
                await ask()
            assert "billing" not in str(refused.value), name
        assert [each.id async for each in theirs.jobs()] == []
        assert [each.run_id async for each in theirs.runs()] == []
        with pytest.raises(NotFound):
            _ = [each async for each in theirs.executions("j")]
        assert (await theirs.redrive(run_ids=[run_id])).started == []
        assert (await mine.get_job("j")).etag == job.etag
        assert (await mine.get_run(run_id)).tenant == "billing"
        assert [each.id async for each in mine.jobs()] == ["j"]


@pytest.mark.parametrize("stranger", ["orders", "pair"])
async def test_dead_runs_of_another_tenant_are_not_there_either(stranger: str) -> None:
    async with opened() as (stage, clients):
        mine, theirs = clients["billing"], clients[stranger]
        run_id = await dead_run(stage, mine)
        assert [each.run_id async for each in mine.dead_letters()] == [run_id]
        assert [each.run_id async for each in theirs.dead_letters()] == []
        assert (await theirs.redrive(run_ids=[run_id])).started == []
        assert (await theirs.redrive(job="j")).started == []
        with pytest.raises(NotFound):
            await theirs.retry_run(run_id)
        with pytest.raises(NotFound):
            _ = [each async for each in theirs.executions("j")]
        assert (await mine.redrive(run_ids=[run_id])).started == [run_id]


async def dead_run(stage: MemoryStage, client: AsyncClient) -> str:
    """A run that its target refused for good."""
    stage.sicken("orders", noticed=False)
    stage.create_topic("elsewhere")
    stage.log.faults.refuse("elsewhere")
    document = {"retry": {"max_attempts": 1}, "target": "kafka://elsewhere"}
    await client.create_job({**definition("j"), **document})
    run_id = await client.trigger_job("j")
    for _ in range(4):
        await stage.send()
        await stage.run_until_idle()
    assert (await client.get_run(run_id)).state == "dead"
    return run_id


async def test_nobody_makes_or_takes_jobs_of_tenants_that_are_not_theirs() -> None:
    async with opened() as (_, clients):
        root, theirs = clients["root"], clients["orders"]
        await root.replace_job("j", definition("j", tenant="third"))
        with pytest.raises(Invalid, match="tenant"):
            await theirs.create_job(definition("k", tenant="third"))
        for tenant in ("orders", None):
            with pytest.raises((Invalid, NotFound, Conflict)):
                await theirs.replace_job("j", definition("j", tenant=tenant))
        lines = [line async for line in theirs.put_jobs([definition("j"), definition("k", tenant="third")])]
        assert [line.accepted for line in lines] == [False, False]
        assert (await root.get_job("j")).tenant == "third"


async def test_a_token_for_two_tenants_works_for_both_and_says_which() -> None:
    async with opened() as (_, clients):
        pair = clients["pair"]
        made = [(await pair.create_job(definition(each, tenant=each))).tenant for each in ("orders", "third")]
        assert made == ["orders", "third"]
        with pytest.raises(Invalid, match="tenant"):
            await pair.create_job(definition("x"))
        assert (await pair.pause_job("third", note="why")).state == "paused"
        assert [each.id async for each in pair.jobs()] == ["orders", "third"]
        await pair.delete_job("orders")


async def test_versions_keys_and_batches() -> None:
    async with opened() as (_, clients):
        client = clients["billing"]
        first = await client.create_job(definition("j"), idempotency_key="k-7")
        assert (await client.create_job(definition("j"), idempotency_key="k-7")).etag == first.etag
        with pytest.raises(Conflict):
            await client.create_job(definition("j", note="another"), idempotency_key="k-8")
        second = await client.change_job("j", {"note": "x"}, if_match=first.etag)
        with pytest.raises(StaleVersion):
            await client.change_job("j", {"note": "y"}, if_match=first.etag)
        assert second.definition["note"] == "x"
        lines = [line async for line in client.put_jobs([definition("a"), definition("b", timezone="Mars/X")])]
        assert [(line.line, line.id, line.accepted) for line in lines] == [(1, "a", True), (2, lines[1].id, False)]
        assert [each.pointer for each in lines[1].errors] == ["/timezone"]
        assert len(await client.next_times("a", count=3)) == 3
        assert len(await client.preview(definition("p"), count=2)) == 2


async def test_what_became_of_a_request_is_told_to_its_tenant_only() -> None:
    async with MemoryStage() as stage:
        texts, view = {}, ConfigView()
        for name in ("billing", "orders", "root"):
            texts[name], kept = token_of(name, Role.ADMIN if name == "root" else Role.OPERATOR, TENANTS[name])
            view = updated_view(view, [(f"token/{name}", kept)], offset=view.offset + 1)
        memory = MemoryApi(stage)
        app = create_app(memory.services, authenticate=BearerAccess(lambda: view, memory.settings))
        writer = memory.services.writer
        assert writer is not None
        place = Place(3, 999, 1)
        sealed = writer._name(place, "billing")  # as a 202 would say it

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:

            async def status(who: str, name: str) -> int:
                headers = {"authorization": f"Bearer {texts[who]}"}
                return (await client.get(f"/v1/requests/{name}", headers=headers)).status_code

            assert await status("billing", sealed) == await status("root", sealed) == 200
            assert await status("root", "3-999-1") == 200
            assert await status("billing", "3-999-1") == 404
            assert await status("orders", sealed) == 404
            assert await status("billing", sealed.replace("999", "998")) == 404
