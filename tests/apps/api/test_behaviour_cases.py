"""Rows of tests/cases/behaviour.jsonl about schedules, zones and instants, sent over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from tests.apps.api.test_memory_api import problem

FILE = Path(__file__).parents[2] / "cases" / "behaviour.jsonl"
ROWS = {row["id"]: row for row in map(orjson.loads, FILE.read_bytes().splitlines())}
IMPOSSIBLE = [name for name, row in ROWS.items() if row["kind"] == "cron-impossible-date" and "cron" in row["input"]]
REFUSED = [name for name, row in ROWS.items()
           if name.startswith(("cron-", "tz-")) and str(row["expected"].get("create", "")).startswith("refused")
           and name not in IMPOSSIBLE]  # fmt: skip


def listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def sent(name: str) -> list[dict[str, object]]:
    """The definitions that a row is about."""
    given = ROWS[name]["input"]
    zones = listed(given.get("timezone", "UTC"))
    return [
        {"id": "case", "schedule": cron, "timezone": zone, "target": "kafka://orders"}
        for cron in listed(given["cron"])
        for zone in zones
    ]


async def post(http: httpx.AsyncClient, definition: dict[str, Any]) -> httpx.Response:
    return await http.post("/v1/jobs", content=orjson.dumps(definition), headers={"content-type": "application/json"})


def test_there_are_rows() -> None:
    assert len(REFUSED) >= 10
    assert len(IMPOSSIBLE) >= 5


@pytest.mark.parametrize("name", REFUSED)
async def test_what_makes_no_schedule_is_refused_with_the_field(http: httpx.AsyncClient, name: str) -> None:
    for definition in sent(name):
        answer = await post(http, definition)
        if ROWS[name]["kind"].endswith("/policy") and answer.status_code == 201:
            continue
        assert problem(answer) == (422, "invalid"), definition
        pointers = {each["pointer"].split("/")[1] for each in answer.json()["errors"]}
        assert pointers <= {"schedule", "timezone"}, definition
        assert (await http.get("/v1/jobs/case")).status_code == 404


@pytest.mark.parametrize("name", ["cron-71", "cron-75"])
async def test_what_may_be_accepted_or_refused_with_the_field(http: httpx.AsyncClient, name: str) -> None:
    for definition in sent(name):
        answer = await post(http, definition)
        if answer.status_code == 201:
            assert answer.json()["next_due"] is not None, definition
            await http.delete("/v1/jobs/case")
        else:
            assert name == "cron-75"
            assert problem(answer) == (422, "invalid")
            assert all(each["pointer"].startswith("/schedule") for each in answer.json()["errors"]), definition


@pytest.mark.parametrize("name", IMPOSSIBLE)
async def test_a_day_that_never_comes_is_refused_or_has_no_next_time(http: httpx.AsyncClient, name: str) -> None:
    for definition in sent(name):
        answer = await post(http, definition)
        if answer.status_code == 201:
            assert answer.json()["next_due"] is None, definition
            await http.delete("/v1/jobs/case")
        else:
            assert problem(answer) == (422, "invalid")


@pytest.mark.parametrize(
    "name, expected",
    [("clk-15", {"2030-06-24T14:54:41.634Z"}), ("clk-16", {"2017-01-01T00:00:00Z", "2017-01-01T00:00:00.000Z"})],
)
async def test_instants_are_cut_never_rounded_up(http: httpx.AsyncClient, name: str, expected: set[str]) -> None:
    answer = await http.post(
        "/v1/preview",
        params={"count": 1, "after": "2010-01-01T00:00:00Z"},
        json={"run_at": ROWS[name]["input"]["run_at"]},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["times"][0]["due"] in expected


async def test_local_instants_are_of_the_zone_that_is_named(http: httpx.AsyncClient) -> None:
    given = ROWS["clk-13"]["input"]["run_at"]
    found = []
    for zone in ({}, {"timezone": "America/New_York"}):
        answer = await http.post("/v1/preview", params={"count": 1}, json={"run_at": given, **zone})
        found.append(answer.json()["times"][0]["due"])
    assert found == ["2030-01-01T09:00:00Z", "2030-01-01T14:00:00Z"]


async def test_numbers_are_no_instants(http: httpx.AsyncClient) -> None:
    for value in ROWS["clk-17"]["input"]["run_at"]:
        answer = await post(http, {"run_at": value, "target": "kafka://orders"})
        assert problem(answer) == (422, "invalid"), value
        assert answer.json()["errors"][0]["pointer"] == "/run_at"
