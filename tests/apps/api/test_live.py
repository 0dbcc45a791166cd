"""`/v1/live`: what is watched is told, first as it is, then when it changes, to those who may see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from tests.apps.api.memory_api import MemoryApi, client_of
from tests.apps.api.test_memory_api import create, problem

from noontide.apps.api import looks as looking
from noontide.apps.api.looks import Looks
from noontide.apps.api.problems import ApiProblem
from noontide.apps.api.settings import ApiSettings
from noontide.core.access import Principal, Role
from noontide.records.topics import Layout
from noontide.testing.memory_stage import MemoryStage

ANYBODY = Principal(name="token:a", role=Role.VIEWER, tenants=frozenset({"billing"}))


@pytest.fixture
async def memory(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryApi]:
    for word in looking.PACES_MS:
        monkeypatch.setitem(looking.PACES_MS, word, 5)
    async with MemoryStage(layout=Layout(partitions=8, slots=2)) as stage:
        stage.register("orders")
        api = MemoryApi(stage)
        api.settings = replace(api.settings, live_length_ms=400, live_beat_ms=50)
        yield api


def events(answer: httpx.Response) -> list[tuple[str, int, Any]]:
    """(path, status, answer) of each event."""
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    found = []
    for event in answer.text.split("\n\n"):
        lines = [line.removeprefix("data: ") for line in event.split("\n") if line.startswith("data: ")]
        if lines:
            about, body = map(orjson.loads, lines)
            found.append((about["path"], about["status"], body))
    return found


async def test_first_what_is_then_what_changes_and_nothing_twice(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="a")
    await create(http, id="b")
    following = asyncio.create_task(http.get("/v1/live", params={"watch": ["/v1/jobs/a", "/v1/jobs/none"]}))
    await asyncio.sleep(0.1)
    await http.post("/v1/jobs/a/pause")
    told = events(await following)
    assert [(path, status) for path, status, _ in told] == [
        ("/v1/jobs/a", 200), ("/v1/jobs/none", 404), ("/v1/jobs/a", 200),
    ]  # fmt: skip
    assert [body["state"] for path, _, body in told if path == "/v1/jobs/a"] == ["active", "paused"]


async def test_who_may_not_see_it_is_told_so(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="mine", tenant="orders")

    async def theirs(_request: object) -> Principal:
        return ANYBODY

    async with client_of(memory, theirs) as client:
        watch = ["/v1/jobs/mine", "/v1/jobs?limit=10", "/v1/workers"]
        told = {
            path: (status, body) for path, status, body in events(await client.get("/v1/live", params={"watch": watch}))
        }
    assert told["/v1/jobs/mine"][0] == 404
    assert told["/v1/jobs?limit=10"][1]["items"] == []
    assert told["/v1/workers"][0] == 403


@pytest.mark.parametrize(
    "path",
    ["/v1/me", "/v1/live?watch=x", "/v1/requests/1", "/v1/runs/x/content?a", "/healthz", "https://a.example/", "/v1/"],
)
async def test_only_what_is_made_for_it_is_watched(http: httpx.AsyncClient, path: str) -> None:
    assert problem(await http.get("/v1/live", params={"watch": path})) == (422, "invalid")


async def test_a_token_that_is_revoked_hears_nothing_more(memory: MemoryApi) -> None:
    memory.settings = replace(memory.settings, live_length_ms=60_000, live_beat_ms=20)
    asked = 0

    async def revoked_soon(_request: object) -> Principal:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise ApiProblem(401, "unauthorised", "it was revoked")
        return ANYBODY

    async with client_of(memory, revoked_soon) as client, asyncio.timeout(10):
        answer = await client.get("/v1/live", params={"watch": "/v1/runs"})
    assert answer.status_code == 200
    assert asked == 4


async def test_no_more_streams_than_there_may_be() -> None:
    looks = Looks(_silent, ApiSettings(live_streams_max=3, live_streams_each_max=2, live_looks_max=4))
    others = replace(ANYBODY, name="token:b")
    mine = looks.join(ANYBODY, ["/v1/runs"])
    looks.join(ANYBODY, ["/v1/runs", "/v1/jobs"])
    with pytest.raises(ApiProblem, match="too much"):
        looks.join(ANYBODY, ["/v1/runs"])
    with pytest.raises(ApiProblem, match="too much"):
        looks.join(others, ["/v1/runs", "/v1/jobs", "/v1/alerts", "/v1/workers", "/v1/tenants"])
    looks.join(others, ["/v1/runs"])
    with pytest.raises(ApiProblem, match="too much"):
        looks.join(others, ["/v1/runs"])
    looks.leave(ANYBODY, ["/v1/runs"], mine)
    looks.join(others, ["/v1/runs"])
    assert looks.streams == 3
    looks.close()
    with pytest.raises(ApiProblem, match="too much"):
        looks.join(others, ["/v1/jobs"])


async def test_what_many_watch_is_looked_at_once_and_a_slow_reader_gets_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(looking.PACES_MS, "runs", 1)
    asked, enough = 0, asyncio.Event()

    async def counting(_scope: object, _receive: object, send: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 10:
            enough.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % asked})

    looks = Looks(counting, ApiSettings(live_share_percent=100))
    listeners = [looks.join(replace(ANYBODY, name=f"token:{number}"), ["/v1/runs"]) for number in range(5)]
    await enough.wait()
    for listener in listeners:
        (answer,) = (await listener.news(at_most_s=1)).values()
        assert int(answer.body) >= 9
    for number, listener in enumerate(listeners):
        looks.leave(replace(ANYBODY, name=f"token:{number}"), ["/v1/runs"], listener)
    assert looks.streams == 0


async def _silent(_scope: object, _receive: object, _send: object) -> None:
    await asyncio.Event().wait()
