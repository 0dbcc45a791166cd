"""What comes in before any route sees it: types, sizes, paths, methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.apps.api.memory_api import MemoryApi

from noontide.apps.api.app import create_app
from noontide.apps.api.principal import Principal, Role
from noontide.apps.api.problems import ApiProblem
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.apps.serving import serving
from noontide.records.config import ConfigView
from noontide.records.topics import Layout

JSON = {"content-type": "application/json"}


def application(settings: ApiSettings, **options: object) -> httpx.AsyncClient:
    services = Services(layout=Layout(), config=ConfigView)
    app = create_app(services, settings=settings, **options)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://api")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "application/json; charset=latin-1", "application/jsonp", "x"]
)
async def test_bodies_of_another_type_are_refused(client: httpx.AsyncClient, content_type: str) -> None:
    headers = {"content-type": content_type}
    answer = await client.post("/v1/preview", content=b'{"schedule": "* * * * *"}', headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:noontide:problem:media-type")


@pytest.mark.parametrize("body", [b"", b"{", b'{"payload": NaN}', b'{"x": 1e999}', b"\xff", b"\xef\xbb\xbf{}", b"\0{}"])
async def test_what_is_no_json_is_400(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/v1/preview", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:noontide:problem:not-json")


async def test_json_that_is_no_object_is_422(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/preview", content=b"[]", headers=JSON)
    assert answer.status_code == 422


async def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    async with application(ApiSettings(body_max_bytes=100)) as client:
        answer = await client.post("/v1/preview", content=b"{" + b" " * 200 + b"}", headers=JSON)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:noontide:problem:too-large")


async def test_a_body_without_end_is_not_read_to_its_end() -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 64
            yield b" " * 64

    async with application(ApiSettings(body_max_bytes=100)) as client:
        answer = await client.post("/v1/preview", content=endless(), headers=JSON)
    assert answer.status_code == 413
    assert sent <= 192


async def test_a_body_that_does_not_come_is_408() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    async with application(ApiSettings(body_wait_ms=20)) as client:
        answer = await client.post("/v1/preview", content=slow(), headers=JSON)
    assert (answer.status_code, answer.headers["connection"]) == (408, "close")


async def test_bodies_that_are_too_much_together_are_503_and_their_bytes_are_free_again() -> None:
    async with application(ApiSettings(bodies_max_bytes=50)) as client:
        answer = await client.post("/v1/preview", content=b"{" + b" " * 60 + b"}", headers=JSON)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:noontide:problem:busy")
        assert answer.headers["retry-after"] == "2"
        again = await client.post("/v1/preview", json={"schedule": "* * * * *"})
        assert again.status_code == 200


async def test_more_at_once_than_allowed_is_503() -> None:
    arrived, may_go = asyncio.Event(), asyncio.Event()

    async def waits(_request: object) -> Principal:
        arrived.set()
        await may_go.wait()
        return Principal(name="one", role=Role.VIEWER, tenants=frozenset({"*"}))

    async with application(ApiSettings(concurrency_max=1), authenticate=waits) as client:
        first = asyncio.create_task(client.post("/v1/preview", json={"schedule": "* * * * *"}))
        await arrived.wait()
        second = await client.get("/healthz")
        may_go.set()
        assert (await first).status_code == 200
    assert (second.status_code, second.headers["retry-after"]) == (503, "2")


async def test_nothing_there_and_wrong_methods(client: httpx.AsyncClient) -> None:
    for path in ("/v1/nothing", "/v1/preview/", "/v1/../etc/passwd", "/v1/%2e%2e/x", "//"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:noontide:problem:not-found")
    answer = await client.get("/v1/preview")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_nobody_gets_in_without_being_known() -> None:
    async def refuses(_request: object) -> Principal:
        raise ApiProblem(401, "unauthenticated", "no token", headers={"www-authenticate": "Bearer"})

    async with application(ApiSettings(), authenticate=refuses) as client:
        answer = await client.post("/v1/preview", json={"schedule": "* * * * *"})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert (await client.get("/healthz")).status_code == 200


async def test_a_fault_of_ours_says_nothing_about_it() -> None:
    async def breaks(_request: object) -> Principal:
        raise RuntimeError("secret")

    async with application(ApiSettings(), authenticate=breaks) as client:
        answer = await client.post("/v1/preview", json={"schedule": "* * * * *"})
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:noontide:problem:internal")
    assert "secret" not in answer.text


async def test_a_client_that_goes_away_within_its_body_is_no_fault_of_ours(
    memory: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    said = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    answered: list[Any] = []

    async def receive() -> Any:
        return said.pop(0)

    async def send(message: Any) -> None:
        answered.append(message)

    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/jobs", "raw_path": b"/v1/jobs",
             "query_string": b"", "headers": [(b"content-type", b"application/json")], "scheme": "http",
             "server": ("api", 80), "client": ("127.0.0.1", 1), "root_path": ""}  # fmt: skip
    await create_app(memory.services, settings=memory.settings)(scope, receive, send)
    assert answered[0]["status"] == 499
    assert "failed" not in caplog.text


async def test_head_is_answered_as_get_without_the_body(memory: MemoryApi) -> None:
    """Balancers ask /healthz so."""
    app = create_app(memory.services, settings=memory.settings)
    async with serving(app, "127.0.0.1", 0, drain_s=1) as url, httpx.AsyncClient(base_url=url) as client:
        for path in ("/healthz", "/v1/jobs", "/v1/jobs/nobody"):
            asked, got = await client.head(path), await client.get(path)
            assert (asked.status_code, asked.headers["content-length"]) == (got.status_code, str(len(got.content)))
            assert asked.content == b""
        assert (await client.head("/v1/live?watch=/v1/jobs")).status_code == 405
        assert (await client.head("/v1/jobs:batch")).status_code == 405
