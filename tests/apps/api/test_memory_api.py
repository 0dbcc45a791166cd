"""The routes over real slots in memory: what they answer, without a broker."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest
from tests.apps.api.memory_api import MemoryApi, client_of

from noontide.core.access import Principal, Role

FAR = {"schedule": {"every": "P1D"}, "timing": "exact"}


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


async def create(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post("/v1/jobs", json={"target": "kafka://orders", **FAR, **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def pages(http: httpx.AsyncClient, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    cursor = None
    while True:
        answer = await http.get(path, params={**query, **({} if cursor is None else {"cursor": cursor})})
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["items"])
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found


async def test_a_job_from_its_creation_to_its_end(http: httpx.AsyncClient) -> None:
    made = await create(http, id="a", payload={"keep": 1.50}, labels={"team": "x"})
    assert (await http.get("/v1/jobs/a")).json() == made
    patched = (await http.patch("/v1/jobs/a", json={"paused": True, "labels": {"team": None, "b": "c"}})).json()
    assert (patched["state"], patched["definition"]["labels"]) == ("paused", {"b": "c"})
    assert (await http.post("/v1/jobs/a/resume")).json()["state"] == "active"
    run_id = (await http.post("/v1/jobs/a/trigger", json={"reason": "now"})).json()["run_id"]
    run = (await http.get(f"/v1/runs/{run_id}")).json()
    assert (run["state"], run["job_id"]) == ("succeeded", "a")
    assert [each["run_id"] for each in (await http.get("/v1/jobs/a/executions")).json()["items"]] == [run_id]
    assert (await http.delete("/v1/jobs/a")).status_code == 204
    assert problem(await http.get("/v1/jobs/a")) == (404, "not-found")


async def test_what_nobody_decides_is_202_with_a_place_to_ask(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    memory.decides = False
    answer = await http.post("/v1/jobs", json={"id": "a", "target": "kafka://orders", **FAR})
    assert (answer.status_code, answer.json()["state"]) == (202, "pending")
    place = answer.headers["location"]
    assert (await http.get(place)).json()["state"] == "pending"
    memory.decides = True
    assert (await http.get("/v1/jobs/a")).status_code == 200
    assert (await http.get(place)).json()["verdict"] == "accepted"


async def test_pages_of_jobs_are_by_id_over_all_slots(http: httpx.AsyncClient) -> None:
    for number in range(30):
        await create(http, id=f"j{number:02}", labels={"even": str(number % 2 == 0).lower()})
    found = await pages(http, "/v1/jobs", limit=7)
    ids = [job["id"] for page in found for job in page]
    assert ids == [f"j{number:02}" for number in range(30)]
    assert all(len(page) <= 7 for page in found)
    even = [job["id"] for page in await pages(http, "/v1/jobs", limit=4, label="even=true") for job in page]
    assert even == [f"j{number:02}" for number in range(0, 30, 2)]


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_runs_that_close_while_pages_are_turned_are_on_one_page(http: httpx.AsyncClient, limit: int) -> None:
    await create(http, id="idle", target="handler:x", overlap="allow")
    await create(http, id="quick")
    ids = [(await http.post("/v1/jobs/idle/trigger")).json()["run_id"] for _ in range(6)]
    ids += [(await http.post("/v1/jobs/quick/trigger")).json()["run_id"] for _ in range(3)]
    seen: list[str] = []
    cursor, victims = None, sorted(ids[:6])
    while True:
        query = {"limit": limit, **({} if cursor is None else {"cursor": cursor})}
        page = (await http.get("/v1/runs", params=query)).json()
        seen += [run["run_id"] for run in page["items"]]
        for turn in (0, -1):
            if len(victims) > 1:
                await http.post(f"/v1/runs/{victims.pop(turn)}/cancel")
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(ids)


async def test_dead_runs_are_listed_and_redriven(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="d", target={"topic": {"name": "nowhere"}}, guarantee="at_most_once")
    run_id = (await http.post("/v1/jobs/d/trigger")).json()["run_id"]
    await memory.stage.advance(120_000)
    (dead,) = (await http.get("/v1/dead-letters")).json()["items"]
    assert (dead["run_id"], dead["state"]) == (run_id, "dead")
    failed = (await http.get("/v1/runs", params={"state": "failed"})).json()["items"]
    assert [run["run_id"] for run in failed] == [run_id]
    answer = await http.post("/v1/dead-letters/redrive", json={"job_id": "d"})
    assert answer.json() == {"started": [run_id], "refused": []}
    again = await http.post("/v1/dead-letters/redrive", json={"run_id": "d:m999"})
    assert again.json()["refused"][0]["run_id"] == "d:m999"


async def test_a_batch_has_a_verdict_for_each_line(http: httpx.AsyncClient) -> None:
    good = {"id": "b1", "target": "kafka://orders", **FAR}
    lines = [orjson.dumps(good), b"{", orjson.dumps({**good, "id": "b2", "priority": 11}), b"", orjson.dumps(good)]
    headers = {"content-type": "application/x-ndjson"}
    answer = await http.post("/v1/jobs:batch", content=b"\n".join(lines), headers=headers)
    verdicts = [orjson.loads(line) for line in answer.content.splitlines()]
    assert [(each["line"], each["status"]) for each in verdicts] == [(1, 201), (2, 400), (3, 422), (4, 409)]


async def test_a_tenant_sees_and_touches_only_its_own(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="theirs", tenant="other")
    run_id = (await http.post("/v1/jobs/theirs/trigger")).json()["run_id"]

    async def mine(_request: object) -> Principal:
        return Principal(name="user:ada", role=Role.OPERATOR, tenants=frozenset({"mine"}))

    async with client_of(memory, mine) as ada:
        made = await ada.post("/v1/jobs", json={"id": "own", "target": "kafka://orders", **FAR})
        assert made.json()["tenant"] == "mine"
        for method, path in (
            ("GET", "/v1/jobs/theirs"), ("DELETE", "/v1/jobs/theirs"), ("PATCH", "/v1/jobs/theirs"),
            ("POST", "/v1/jobs/theirs/trigger"), ("POST", "/v1/jobs/theirs/pause"), ("GET", "/v1/jobs/theirs/next"),
            ("GET", f"/v1/runs/{run_id}"), ("POST", f"/v1/runs/{run_id}/cancel"),
        ):  # fmt: skip
            answer = await ada.request(method, path, json={} if method in ("POST", "PATCH") else None)
            assert problem(answer) == (404, "not-found"), (method, path)
        assert [job["id"] for page in await pages(ada, "/v1/jobs") for job in page] == ["own"]
        assert await pages(ada, "/v1/runs") == [[], []]
        taken = await ada.post("/v1/jobs", json={"id": "theirs", "target": "kafka://orders", **FAR})
        assert problem(taken) == (409, "conflict")
        body = {"id": "x", "tenant": "other", "target": "kafka://orders", **FAR}
        assert problem(await ada.post("/v1/jobs", json=body)) == (422, "invalid")


@pytest.mark.parametrize("job_id", ["a b", "日本語", "..", "a/b", "x" * 201, "a\nb", "%2e%2e", " a ", "a+b", 'a"b'])
async def test_ids_that_cannot_be_used_are_refused_at_creation(http: httpx.AsyncClient, job_id: str) -> None:
    """Cases ids-01 and ids-03."""
    body = {"id": job_id, "target": "kafka://orders", **FAR}
    assert problem(await http.post("/v1/jobs", json=body)) == (422, "invalid")


@pytest.mark.parametrize("job_id", ["my.scan.v1", "CON", "A", "a", "a:b@c~d-e", "-", "..."])
async def test_ids_that_can_be_used_work_everywhere(http: httpx.AsyncClient, job_id: str) -> None:
    path = f"/v1/jobs/{job_id}"
    assert (await create(http, id=job_id))["id"] == job_id
    assert (await http.get(path)).json()["id"] == job_id
    assert (await http.post(f"{path}/pause")).json()["state"] == "paused"
    assert (await http.delete(path)).status_code == 204


@pytest.mark.parametrize(
    "run_at",
    [
        1698566537,
        1698566537000,
        "1698566537000",
        -1,
        1e30,
        "2030-02-30T00:00:00Z",
        "soon",
        True,
        None,
        {},
        [],
        "0000-01-01T00:00:00Z",
    ],
)
async def test_instants_that_are_none(http: httpx.AsyncClient, run_at: object) -> None:
    """Case clk-17 and its like."""
    assert problem(await http.post("/v1/jobs", json={"run_at": run_at, "target": "kafka://orders"})) == (422, "invalid")


async def test_instants_with_a_zone_and_with_many_digits(http: httpx.AsyncClient) -> None:
    """Cases clk-13, clk-15 and clk-16."""
    body = {"target": "kafka://orders"}
    local = await http.post("/v1/jobs", json={**body, "run_at": "2030-01-01T09:00:00", "timezone": "America/New_York"})
    assert local.json()["next_due"] == "2030-01-01T14:00:00Z"
    plain = await http.post("/v1/jobs", json={**body, "run_at": "2030-01-01T09:00:00"})
    assert plain.json()["next_due"] == "2030-01-01T09:00:00Z"
    long = await http.post("/v1/jobs", json={**body, "run_at": "2030-06-24T14:54:41.634362969Z"})
    assert long.json()["next_due"] == "2030-06-24T14:54:41.634Z"
    leap = await http.post("/v1/jobs", json={**body, "run_at": "2016-12-31T23:59:60Z"})
    assert leap.status_code in (201, 422)


@pytest.mark.parametrize(
    "body", [b'{"payload":{"x":NaN}}', b'{"payload":{"y":-Infinity}}', b'{"payload":{"z":1e999}}', b'{"a":1}x', b"\xff"]
)
async def test_what_is_no_strict_json_is_400(http: httpx.AsyncClient, body: bytes) -> None:
    """Case pay-03."""
    headers = {"content-type": "application/json"}
    assert problem(await http.post("/v1/jobs", content=body, headers=headers)) == (400, "not-json")


async def test_of_a_name_given_twice_the_last_counts(http: httpx.AsyncClient) -> None:
    body = b'{"id":"x","id":"twice","target":"kafka://orders","schedule":{"every":"P1D"},"payload":1,"payload":2}'
    made = await http.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert (made.json()["id"], made.json()["definition"]["payload"]) == ("twice", 2)


async def test_configuration_by_name(http: httpx.AsyncClient) -> None:
    value = {"dates": ["2096-12-25"]}
    assert (await http.put("/v1/calendars/xmas", json=value)).json() == {"name": "xmas", "value": value}
    assert (await http.get("/v1/calendars/xmas")).json()["value"] == value
    assert problem(await http.put("/v1/calendars/bad", json={"dates": ["soon"]})) == (422, "invalid")
    assert (await http.delete("/v1/calendars/xmas")).status_code == 204
    assert problem(await http.get("/v1/calendars/xmas")) == (404, "not-found")


async def test_the_cluster(http: httpx.AsyncClient) -> None:
    assert (await http.get("/readyz")).status_code == 200
    assert (await http.get("/v1/meta")).json()["slots"] == 2
    assert [each["slot"] for each in (await http.get("/v1/partitions")).json()["items"]] == [0, 1]
    await create(http, id="idle", target="handler:x")
    await http.post("/v1/jobs/idle/trigger")
    assert (await http.get("/v1/workers")).json()["lanes"] == {"express": {"queued": 1}}
    assert 'route="/v1/workers",status="200"} 1.0' in (await http.get("/metrics")).text


async def test_occurrences_of_a_range_say_what_was_decided(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="o", target="handler:x", schedule={"every": "PT1M"}, overlap="skip")
    await memory.stage.advance(150_000)
    query = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-01T00:04:30Z"}
    answer = await http.get("/v1/jobs/o/occurrences", params=query)
    found = [(each["due"][11:19], each["state"]) for each in answer.json()["items"]]
    assert found == [("00:01:00", "queued"), ("00:02:00", "skipped"), ("00:03:00", "planned"), ("00:04:00", "planned")]
    assert "overlap" in answer.json()["items"][1]["reason"]
    backwards = await http.get("/v1/jobs/o/occurrences", params={"from": query["to"], "to": query["from"]})
    assert problem(backwards) == (422, "invalid")


async def test_the_share_of_a_tenant(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    memory.stage.configure("tenant/capped", {"concurrency_max": 2, "weight": 3})
    for number in range(5):
        body = {"id": f"c-{number}", "tenant": "capped", "run_at": "2026-03-01T00:00:00Z", "target": "handler:x"}
        assert (await http.post("/v1/jobs", json=body)).status_code == 201
    await memory.stage.advance(700)
    answer = await http.get("/v1/tenants/capped/share")
    assert answer.status_code == 200, answer.text
    (limiter,) = answer.json()["limiters"]
    assert limiter == {
        "limiter": "tenant/capped", "concurrency_max": 2, "starts_per_second_max": None,
        "given": 2, "running": 0, "waiting": 3,
    }  # fmt: skip
    assert answer.json()["weight"] == 3
    assert answer.json()["lanes"] == [{"lane": "default", "ready": 0, "queued": 2, "running": 0, "waiting": 3}]
    nobody = (await http.get("/v1/tenants/other/share")).json()
    assert (nobody["limiters"], nobody["lanes"]) == ([], [])


@pytest.mark.parametrize(
    "path, name, hint",
    [("/v1/jobs?tennant=billing", "tennant", 'did you mean "tenant"'), ("/v1/runs?stat=dead", "stat", '"state"'),
     ("/v1/jobs/a/executions?after=x", "after", ""), ("/v1/jobs?a~b/c=1", "a~0b~1c", ""), ("/v1/meta?_=1", "_", "")],
)  # fmt: skip
async def test_a_parameter_that_nobody_knows_is_refused_with_the_nearest(
    http: httpx.AsyncClient, path: str, name: str, hint: str
) -> None:
    """A filter with a slip of the pen would otherwise show everything."""
    answer = await http.get(path)
    assert problem(answer) == (422, "invalid")
    (found,) = answer.json()["errors"]
    assert found["pointer"] == f"/query/{name}"
    assert hint in found["message"]
