"""`POST /v1/preview`."""

from __future__ import annotations

from collections.abc import Mapping

import httpx


async def due(client: httpx.AsyncClient, definition: Mapping[str, object], **query: str | int) -> list[str]:
    answer = await client.post("/v1/preview", json=definition, params=query)
    assert answer.status_code == 200, answer.text
    return [each["due"] for each in answer.json()["times"]]


async def test_times_in_the_zone_after_an_instant(client: httpx.AsyncClient) -> None:
    definition = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"}
    found = await due(client, definition, count=2, after="2027-03-27T12:00:00Z")
    assert found == ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]


async def test_calendars_of_the_configuration_count(client: httpx.AsyncClient) -> None:
    definition = {"schedule": "0 6 * * *", "calendar": {"exclude": ["holidays"]}}
    assert await due(client, definition, count=1) == ["2026-03-03T06:00:00Z"]


async def test_no_more_than_max_runs(client: httpx.AsyncClient) -> None:
    assert len(await due(client, {"schedule": {"every": "PT1M"}, "max_runs": 3})) == 3


async def test_what_is_wrong_is_named_by_pointers(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/preview", json={"schedul": "* * * * *", "run_at": 5, "timezone": "Mars/Base"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:noontide:problem:invalid"
    pointers = {each["pointer"]: each["message"] for each in problem["errors"]}
    assert pointers.keys() == {"/schedul", "/timezone"}
    assert "schedule" in pointers["/schedul"]


async def test_an_unknown_calendar_is_refused(client: httpx.AsyncClient) -> None:
    definition = {"schedule": "0 6 * * *", "calendar": {"exclude": ["nobody"]}}
    answer = await client.post("/v1/preview", json=definition)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/calendar")


async def test_parameters_are_checked(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/preview", json={"schedule": "* * * * *"}, params={"count": "0"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/count")
