"""`/v1/outcomes` and `/v1/runs/{id}/content`: what ended, how late, and what was in it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest
from tests.apps.api.memory_api import MemoryApi, client_of
from tests.apps.api.test_memory_api import create

from noontide.adapters.memory.index import MemoryIndex
from noontide.apps.api.redaction import HIDDEN, redacted
from noontide.apps.port.tallies import ENDS, LATE_MS, TENANTS_MAX, Counts, Tallies, counts_between, lateness, outdated
from noontide.core.access import Principal, Role
from noontide.ports.due_index import IndexBatch
from noontide.ports.record_log import Doubt, Incoming
from noontide.records.executions import Times, closed, decided, delivered

MINUTE_MS = 60_000


def line(value: bytes, *, slot: int = 0, minute: int = 10) -> Incoming:
    return Incoming("executions", slot, 1, minute * MINUTE_MS + 5, b"j:1", value, ())


def run(state: str, *, late_ms: int = 7, tenant: str = "default", **fields: object) -> bytes:
    times = Times(0, 0, 0, 0)
    return closed("j:1", "j", tenant=tenant, times=times, state=state, late_ms=late_ms, target="handler:x", **fields)


def between(
    index: MemoryIndex, slot: int, first: int, stop: int, tenants: list[str] | None = None
) -> list[tuple[int, Counts]]:
    return [each for some in counts_between(index, slot, first, stop, tenants) for each in some]


def test_lines_of_every_kind_are_counted_in_their_minute() -> None:
    index, batch = MemoryIndex(), IndexBatch()
    tallies = Tallies(index)
    lines = [
        line(delivered("j:1", "j", tenant="default", target="kafka://t", times=Times(0, 0, 3, 3))),
        line(run("succeeded", late_ms=0)),
        line(run("dead", reason='it said "state":"succeeded" and "late_ms":9')),
        line(run("cancelled", late_ms=10**9)),
        line(decided("j:1", "j", tenant="default", due_ms=0, at_ms=5, decision="skipped", reason="overlap")),
        line(run("succeeded"), minute=11),
        line(run("succeeded"), slot=1),
    ]
    tallies.add_to(batch, lines[:3])
    index.write(batch)
    again = IndexBatch()
    tallies.add_to(again, lines[3:])
    index.write(again)
    found = dict(between(index, 0, 10, 12))
    assert found[10][: len(ENDS)] == (2, 1, 1, 1)
    late = dict(zip((*LATE_MS, "more"), found[10][len(ENDS) :], strict=True))
    assert {bound: count for bound, count in late.items() if count} == {1: 1, 5: 1, 10: 1, "more": 1}
    assert found[11][: len(ENDS)] == (1, 0, 0, 0)
    assert between(index, 0, 10, 11, ["other"]) == []
    assert dict(between(index, 0, 0, 1_000, ["default", "other"])) == found
    index.write(IndexBatch(outdated(0, 11 * MINUTE_MS)))
    assert [list(dict(between(index, 0, 0, 99, whose))) for whose in (None, ["default"])] == [[11], [11]]
    assert list(dict(between(index, 1, 0, 99))) == [10]


def test_tenants_beyond_the_bound_are_counted_together() -> None:
    index, batch = MemoryIndex(), IndexBatch()
    Tallies(index).add_to(batch, [line(run("dead", tenant=f"t{number}")) for number in range(TENANTS_MAX + 7)])
    index.write(batch)
    assert [counts[1] for _, counts in between(index, 0, 10, 11)] == [TENANTS_MAX + 7]
    assert [counts[1] for _, counts in between(index, 0, 10, 11, ["t3"])] == [1]
    assert len(batch.puts) == TENANTS_MAX + 1


def test_lateness_is_the_bound_that_so_many_kept() -> None:
    counts = [0] * (len(ENDS) + len(LATE_MS) + 1)
    assert lateness(tuple(counts), 0.5) is None
    counts[len(ENDS) + LATE_MS.index(10)] = 99
    counts[-1] = 1
    assert (lateness(tuple(counts), 0.5), lateness(tuple(counts), 0.99)) == (10, 10)
    assert lateness(tuple(counts), 1.0) == 2 * LATE_MS[-1]


async def test_what_ended_by_minute(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="often", schedule={"every": "PT20S"}, tenant="orders")
    await memory.stage.advance(10 * MINUTE_MS)
    await memory.settle()
    found = (await http.get("/v1/outcomes", params={"minutes": 8})).json()
    assert found["step_sec"] == 60
    assert found["succeeded"][:7] == [3] * 7
    assert found["dead"] == [0] * 8
    assert found["late_p50_ms"][0] in LATE_MS
    wide = (await http.get("/v1/outcomes", params={"minutes": 8, "step": 4})).json()
    assert wide["succeeded"] == [sum(found["succeeded"][:4]), sum(found["succeeded"][4:])]

    async def theirs(_request: object) -> Principal:
        return Principal(name="token:a", role=Role.VIEWER, tenants=frozenset({"billing"}))

    async with client_of(memory, theirs) as client:
        assert sum((await client.get("/v1/outcomes")).json()["succeeded"]) == 0


async def test_what_a_run_was_given_and_brought_back(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    secret = {"month": "2026-02", "api_key": "k", "nested": [{"Password": "p"}]}
    await create(http, id="j", payload=secret)
    run_id = (await http.post("/v1/jobs/j/trigger", json={"payload": {"own": 1.50}})).json()["run_id"]
    found = (await http.get(f"/v1/runs/{run_id}/content")).json()
    assert found["payload_of"] == "job"  # what was given by hand is not kept beyond the end
    assert found["payload"] == {"month": "2026-02", "api_key": HIDDEN, "nested": [{"Password": HIDDEN}]}
    assert found["hidden"] == ["/payload/api_key", "/payload/nested/0/Password"]
    result = orjson.dumps({"run_id": run_id, "result": {"rows": 3, "session_token": "t"}, "truncated": True})
    object.__setattr__(memory.services, "result_of", lambda asked, _ended_ms: result if asked == run_id else None)
    found = (await http.get(f"/v1/runs/{run_id}/content")).json()
    assert (found["result"], found["truncated"]) == ({"rows": 3, "session_token": HIDDEN}, True)

    def away(_run_id: str, _ended_ms: int) -> bytes | None:
        raise Doubt("the brokers do not answer")

    object.__setattr__(memory.services, "result_of", away)
    found = (await http.get(f"/v1/runs/{run_id}/content")).json()
    assert (found["looked_up"], "result" in found, found["payload_of"]) == (False, False, "job")
    await http.delete("/v1/jobs/j")
    assert (await http.get(f"/v1/runs/{run_id}/content")).json()["payload_of"] is None


async def test_a_live_run_has_the_payload_it_was_claimed_with(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="h", target="handler:x", payload={"version": 1})
    run_id = (await http.post("/v1/jobs/h/trigger")).json()["run_id"]
    await http.patch("/v1/jobs/h", json={"payload": {"version": 2}})
    found = (await http.get(f"/v1/runs/{run_id}/content")).json()
    assert (found["payload"], found["payload_of"]) == ({"version": 1}, "run")
    assert "result" not in found


async def test_who_only_looks_sees_no_secrets_of_a_definition(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    await create(http, id="s", payload={"password": "p", "n": 12345678901234567890}, note="x")
    assert b'"password":"p"' in (await http.get("/v1/jobs/s")).content.replace(b" ", b"")

    async def viewer(_request: object) -> Principal:
        return Principal(name="token:v", role=Role.VIEWER, tenants=frozenset({"*"}))

    async with client_of(memory, viewer) as client:
        seen = await client.get("/v1/jobs/s")
        listed = await client.get("/v1/jobs")
    assert seen.json()["definition"]["payload"]["password"] == HIDDEN
    assert listed.json()["items"][0]["definition"]["payload"]["password"] == HIDDEN
    assert b"12345678901234567890" in seen.content


@pytest.mark.parametrize(
    "text, hidden",
    [
        (b'{"a": 1.50}', []),
        (b'{"key": "x", "monkey": 1, "keys": 2}', []),
        (b'{"AUTHORIZATION": "Basic x", "a/b~": {"refresh_token": [1]}}', ["/AUTHORIZATION", "/a~1b~0/refresh_token"]),
        (b'{"pass\\u0077ord": "p"}', ["/password"]),
        (b'[[{"secret": null}], "secret"]', []),
    ],
)
def test_what_is_hidden(text: bytes, hidden: list[str]) -> None:
    cleared, pointers = redacted(text)
    assert pointers == hidden
    if not hidden:
        assert cleared == text
    else:
        assert orjson.loads(cleared) != orjson.loads(text)


async def test_jobs_by_prefix_and_by_next_start(http: httpx.AsyncClient) -> None:
    for number in range(12):
        await create(http, id=f"j-{number:02}", schedule={"every": f"PT{90 - number}M"}, labels={"n": str(number % 2)})
    await create(http, id="j-paused", paused=True)
    await create(http, id="k", note="zzz")

    async def all_of(**query: Any) -> list[str]:
        found, cursor = [], None
        while True:
            page = (await http.get("/v1/jobs", params={**query, **({"cursor": cursor} if cursor else {})})).json()
            found += [each["id"] for each in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    every = [f"j-{number:02}" for number in range(12)]
    assert await all_of(prefix="j-0", limit=4) == every[:10]
    assert await all_of(prefix="j-1", text="J-", limit=1) == every[10:]
    assert await all_of(prefix="nothing") == []
    starts = (await http.get("/v1/jobs", params={"sort": "due"})).json()
    assert starts["scanned"] == 13
    ordered = [each["id"] for each in starts["items"]]
    assert [each["start_after"] for each in starts["items"]] == sorted(each["start_after"] for each in starts["items"])
    assert sorted(ordered) == [*every, "k"]
    assert await all_of(sort="due", limit=3) == ordered
    assert await all_of(sort="due", limit=2, label="n=1") == [
        each for each in ordered if each != "k" and int(each[-1]) % 2
    ]
    assert await all_of(text="ZZZ") == ["k"]
    by_id = (await http.get("/v1/jobs", params={"limit": 1})).json()["next_cursor"]
    assert (await http.get("/v1/jobs", params={"sort": "due", "cursor": by_id})).status_code == 422
    assert (await http.get("/v1/jobs", params={"sort": "due", "prefix": "j"})).status_code == 422


async def test_a_search_goes_on_page_by_page_and_rests_between(memory: MemoryApi, http: httpx.AsyncClient) -> None:
    lines = [
        {"id": f"s-{number:03}", "target": "kafka://orders", "schedule": {"every": "P1D"}, "note": f"n{number % 50}"}
        for number in range(200)
    ]
    batch = b"\n".join(orjson.dumps(line) for line in lines)
    await http.post("/v1/jobs:batch", content=batch, headers={"content-type": "application/x-ndjson"})
    pages = memory.queries._job_pages
    pages._piece_s = 0.0  # each look is over after a chunk
    began_s, naps = asyncio.get_running_loop().time(), 0
    for query in ({"text": "N7"}, {"text": "n7", "sort": "due"}):
        found, scanned, cursor = [], 0, None
        while True:
            answer = await http.get("/v1/jobs", params={**query, **({"cursor": cursor} if cursor else {})})
            page = answer.json()
            found += [each["id"] for each in page["items"]]
            scanned += page["scanned"]
            cursor = page["next_cursor"]
            naps += 1
            if cursor is None:
                break
        assert (sorted(found), scanned) == (["s-007", "s-057", "s-107", "s-157"], 200)
    assert naps >= 2 * 200 // 64
    assert asyncio.get_running_loop().time() - began_s > pages.longest_s
