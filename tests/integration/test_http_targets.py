"""From a definition to a target on a real server: what an owner publishes is what the executor carries out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from noontide.adapters.http import HttpExecutor, HttpSettings, SecretRule, SecretStore, completion_app
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.examples.http_target import Memory, OncePerRun
from noontide.records.runs import Invitation, decode_invitation, encode_invitation, standing_part
from noontide.records.worker_events import End, Frame, Outcome, decode_frame, encode_frame

KEY = b"a key of the deployment, 32 bytes"
RULE = SecretRule(tenants=frozenset({"default"}), hosts=frozenset({"localhost"}), plain_http=True)


@asynccontextmanager
async def hosted(app: Any) -> AsyncIterator[str]:
    """The address of a running server."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", ws="none", log_level="error")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    serving = asyncio.create_task(server._serve([socket]))
    try:
        async with asyncio.timeout(10):
            while not server.started:  # noqa: ASYNC110 - it has no event for this
                await asyncio.sleep(0.01)
        yield f"http://localhost:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        socket.close()


def published(url: str, *, payload: str = "null", **http: object) -> Invitation:
    """What a worker reads of a job that was defined with this target."""
    definition = {"id": "report", "schedule": "0 6 * * *", "target": {"http": {"url": url, **http}}, "timeout": "PT10S"}
    raw = json.dumps(definition)[:-1] + f', "payload": {payload}}}'
    accepted = parse_definition(raw.encode(), context=DefinitionContext(key=None, tenant=None, created_ms=0))
    value = encode_invitation(
        "report:20260101T060000Z",
        slot=3,
        times=(1_767_247_200_000, 1_767_247_200_000),
        attempt=1,
        rest=standing_part(accepted.job, accepted.document),
        payload=payload.encode(),
    )
    return decode_invitation(value)


def executor() -> HttpExecutor:
    return HttpExecutor(
        HttpSettings(allow_loopback=True, callback_url="https://noontide.example.com"),
        secrets=SecretStore({"hook": RULE}, environment={"NOONTIDE_SECRET_HOOK": "s3cret"}),
        callback_key=KEY,
    )


async def test_a_run_that_is_delivered_three_times_is_worked_on_once(tmp_path: Path) -> None:
    done: list[object] = []

    async def work(_run_id: str, payload: object) -> object:
        done.append(payload)
        return {"done": len(done)}

    memory, client = Memory(str(tmp_path / "runs.sqlite")), executor()
    async with hosted(OncePerRun(work, memory)) as url:
        invited = published(f"{url}/report", payload='{"month": 1.50}')
        ends = [await client.execute(invited, token, cancelled=asyncio.Event()) for token in (1, 2, 3)]
    await client.aclose()
    memory.close()
    assert done == [{"month": 1.5}]
    assert [(end.outcome, json.loads(bytes(end.result))) for end in ends] == [(Outcome.SUCCEEDED, {"done": 1})] * 3
    assert client.counters().connections_opened == 1


async def test_auth_and_signature_of_a_definition_reach_the_target() -> None:
    seen: list[httpx.Headers] = []

    async def app(scope: dict[str, Any], _receive: object, send: Any) -> None:
        seen.append(httpx.Headers(scope["headers"]))
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    client = executor()
    async with hosted(app) as url:
        invited = published(url, auth={"bearer": {"secret": "hook"}}, sign={"secret": "hook"}, headers={"X-A": "b"})
        end = await client.execute(invited, 1, cancelled=asyncio.Event())
    await client.aclose()
    assert end.outcome is Outcome.SUCCEEDED
    assert (seen[0]["authorization"], seen[0]["x-a"]) == ("Bearer s3cret", "b")
    assert seen[0]["webhook-signature"].startswith("v1,")


async def test_a_target_that_goes_on_later_completes_its_run() -> None:
    callbacks: list[str] = []
    completed: list[End] = []

    async def accept(scope: dict[str, Any], _receive: object, send: Any) -> None:
        callbacks.append(httpx.Headers(scope["headers"])["noontide-callback"])
        await send({"type": "http.response.start", "status": 202, "headers": [(b"noontide-async", b"true")]})
        await send({"type": "http.response.body"})

    async def complete(end: End) -> None:
        frame = decode_frame(encode_frame(Frame(worker="callback", ends=[end])))
        completed.extend(frame.ends)

    client = executor()
    async with hosted(accept) as target, hosted(completion_app(complete, key=KEY)) as api:
        end = await client.execute(published(target), 9, cancelled=asyncio.Event())
        url = callbacks[0].replace("https://noontide.example.com", api)
        async with httpx.AsyncClient() as outside:
            answer = await outside.post(url, json={"outcome": "succeeded", "result": [1, 2]})
            forged = await outside.post(url.replace("token=9.", "token=10."), json={"outcome": "succeeded"})
    await client.aclose()
    assert (end.outcome, answer.status_code, forged.status_code) == (Outcome.OPEN, 202, 403)
    assert [(each.run_id, each.token, bytes(each.result)) for each in completed] == [(end.run_id, 9, b"[1,2]")]
