"""Jobs over HTTP, through the real broker and a real scheduler: create, read, replace, change, delete."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess

TARGET = "handler:report"


@pytest.fixture(scope="module")
def api(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a running API."""
    folder: Path = tmp_path_factory.mktemp("api")
    with (
        Installation.create(kafka.bootstrap, "api-jobs.") as installation,
        SchedulerProcess(installation, folder / "data", secret=SECRET) as scheduler,
        ApiProcess(installation, folder) as process,
    ):
        scheduler.start().until_owner()
        with httpx.Client(base_url=process.url, timeout=30) as client:
            yield client
        assert "Traceback" not in process.log


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and kind of a problem document."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


def create(api: httpx.Client, **definition: Any) -> dict[str, Any]:
    """A job that could be created."""
    answer = api.post("/v1/jobs", json={"schedule": "0 6 * * *", "target": TARGET, **definition})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("when", [{"schedule": "0 6 * * *"}, {"run_at": "2096-10-01T12:00:00Z"}])
def test_the_body_that_the_first_page_shows(api: httpx.Client, when: dict[str, str]) -> None:
    body = {
        **when,
        "target": "https://svc/report",
        "payload": {"month": "2026-02"},
        "retry": {"max_attempts": 5, "backoff": "exponential"},
        "timeout_sec": 300,
        "idempotency_key": f"key of {next(iter(when))}",
    }
    answer = api.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{made['id']}"
    assert answer.headers["etag"] == f'"{made["etag"]}"'
    assert (made["state"], made["tenant"]) == ("active", "default")
    assert made["definition"]["target"] == {"http": {"url": "https://svc/report"}}
    assert made["definition"]["timeout"] == "PT5M"
    assert api.get(f"/v1/jobs/{made['id']}").json() == made

    again = api.post("/v1/jobs", json=body)
    assert (again.status_code, again.json()) == (200, made)
    assert again.headers["idempotency-replayed"] == "true"
    assert problem(api.post("/v1/jobs", json={**body, "timeout_sec": 60})) == (409, "conflict")


def test_what_is_coming_and_what_it_needs_through_the_real_broker(api: httpx.Client) -> None:
    """The forecast, the hints for autoscalers, the graph, a calendar compared, and the quota of exact starts."""
    for number in range(12):
        create(api, id=f"soon-{number}", schedule={"every": "PT1M"}, tenant="coming")
    found = api.get("/v1/forecast", params={"minutes": 30, "tenant": "coming", "by": "target"}).json()
    assert found["complete"]
    assert 12 * 28 <= sum(found["runs"]) <= 12 * 31  # the first of each is up to two minutes away
    assert list(found["series"]) == [TARGET]
    assert api.get("/v1/forecast/due", params={"minutes": 30}).json()["runs"][5] >= 12
    assert api.get("/v1/scaling", params={"concurrency": 1}).json()["lanes"]["default"]["coming"] >= 12 * 3

    create(api, id="down", schedule=None, after=["soon-0"], tenant="coming")
    graph = api.get("/v1/jobs/down/graph").json()
    assert sorted(each["id"] for each in graph["jobs"]) == ["down", "soon-0"]

    assert api.put("/v1/calendars/off", json={"dates": ["2096-01-01"]}).status_code == 200
    create(api, id="daily", schedule="0 12 * * *", calendar={"exclude": ["off"]}, tenant="coming")
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()
    moved = api.post("/v1/calendars/off/diff", json={"dates": [tomorrow]}, params={"days": 5}).json()
    assert [(each["job_id"], each["gone"]) for each in moved["items"]] == [("daily", [f"{tomorrow}T12:00:00Z"])]

    assert api.put("/v1/tenants/strict", json={"exact_starts_per_minute_max": 2}).status_code == 200
    exact = {"schedule": "0 9 * * *", "target": TARGET, "tenant": "strict", "timing": "exact"}
    answers = list[httpx.Response]()

    def refused() -> bool:  # the quota counts from when the owners have read it
        answers.append(api.post("/v1/jobs", json={**exact, "id": f"nine-{len(answers)}"}))
        return answers[-1].status_code != 201

    eventually(refused, what="the quota is used up")
    assert len(answers) > 2
    assert answers[-1].status_code == 422
    assert "the nearest free minute is" in answers[-1].text


def test_what_was_created_is_read_at_once_as_it_was_answered(api: httpx.Client) -> None:
    for number in range(20):
        made = create(api, schedule={"every": "PT1H"}, payload={"n": number})
        assert api.get(f"/v1/jobs/{made['id']}").json() == made


def test_an_idempotency_key_in_the_header(api: httpx.Client) -> None:
    body = {"schedule": {"every": "PT1H"}, "target": TARGET}
    answers = [api.post("/v1/jobs", json=body, headers={"idempotency-key": "h1"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]


def test_an_id_that_is_taken_is_a_conflict(api: httpx.Client) -> None:
    create(api, id="taken")
    answer = api.post("/v1/jobs", json={"id": "taken", "schedule": "0 7 * * *", "target": TARGET})
    assert problem(answer) == (409, "conflict")


def test_a_patch_resets_nothing_it_does_not_name(api: httpx.Client) -> None:
    made = create(api, id="patched", payload={"keep": 1.50}, labels={"team": "x", "stage": "y"}, note="n")
    answer = api.patch("/v1/jobs/patched", json={"paused": True, "labels": {"stage": None}})
    assert answer.status_code == 200, answer.text
    changed = answer.json()
    assert changed["state"] == "paused"
    assert changed["definition"] == {**made["definition"], "paused": True, "labels": {"team": "x"}}
    resumed = api.patch("/v1/jobs/patched", json={"paused": False, "schedule": "30 6 * * *"}).json()
    assert (resumed["state"], resumed["next_due"][11:16]) == ("active", "06:30")
    assert problem(api.patch("/v1/jobs/patched", json=[1])) == (422, "invalid")
    assert problem(api.patch("/v1/jobs/patched", json={"pausd": True})) == (422, "invalid")
    assert problem(api.patch("/v1/jobs/patched", json={"id": "other"})) == (422, "invalid")


def test_if_match(api: httpx.Client) -> None:
    made = create(api, id="matched")
    stale, current = {"if-match": '"api-0-999999"'}, {"if-match": f'"{made["etag"]}"'}
    body = {"schedule": "0 8 * * *", "target": TARGET}
    assert problem(api.put("/v1/jobs/matched", json=body, headers=stale)) == (412, "stale-version")
    assert problem(api.patch("/v1/jobs/matched", json={"note": "x"}, headers=stale)) == (412, "stale-version")
    assert problem(api.delete("/v1/jobs/matched", headers=stale)) == (412, "stale-version")
    assert api.put("/v1/jobs/matched", json=body, headers=current).status_code == 200
    assert problem(api.patch("/v1/jobs/matched", json={"note": "x"}, headers=current)) == (412, "stale-version")
    assert api.get("/v1/jobs/matched", headers={"if-none-match": f'"{made["etag"]}"'}).status_code == 200
    etag = api.get("/v1/jobs/matched").headers["etag"]
    assert api.get("/v1/jobs/matched", headers={"if-none-match": etag}).status_code == 304


def test_put_replaces_the_whole_and_may_create(api: httpx.Client) -> None:
    new = {"if-none-match": "*"}
    body = {"schedule": "0 8 * * *", "target": TARGET, "note": "first"}
    assert api.put("/v1/jobs/put", json=body, headers=new).json()["definition"]["note"] == "first"
    assert problem(api.put("/v1/jobs/put", json=body, headers=new)) == (409, "conflict")
    replaced = api.put("/v1/jobs/put", json={"schedule": "0 8 * * *", "target": TARGET}).json()
    assert "note" not in replaced["definition"]


def test_a_deleted_job_is_gone(api: httpx.Client) -> None:
    create(api, id="gone")
    assert api.delete("/v1/jobs/gone").status_code == 204
    assert problem(api.get("/v1/jobs/gone")) == (404, "not-found")
    assert problem(api.delete("/v1/jobs/gone")) == (404, "not-found")
    assert problem(api.patch("/v1/jobs/gone", json={"paused": True})) == (404, "not-found")


def test_everything_that_is_wrong_is_named_at_once(api: httpx.Client) -> None:
    body = {"schedule": "61 * * * *", "target": TARGET, "priorty": 3, "retry": {"max_attempts": 0}}
    answer = api.post("/v1/jobs", json=body)
    assert problem(answer) == (422, "invalid")
    pointers = {each["pointer"] for each in answer.json()["errors"]}
    assert pointers == {"/schedule", "/priorty", "/retry/max_attempts"}


def test_a_payload_that_is_too_large_is_413(api: httpx.Client) -> None:
    """Case kaf-12."""
    for size in (300_000, 1_048_576, 5_000_000):
        answer = api.post("/v1/jobs", json={"schedule": "0 6 * * *", "target": TARGET, "payload": "x" * size})
        assert problem(answer) == (413, "too-large")


def test_what_became_of_a_request_can_be_asked(api: httpx.Client) -> None:
    made = create(api, id="asked")
    _, partition, offset = made["etag"].split("-")
    found = api.get(f"/v1/requests/{partition}-{offset}-{appended_ms(made)}").json()
    assert (found["state"], found["verdict"], found["etag"]) == ("decided", "accepted", made["etag"])
    assert problem(api.get("/v1/requests/nothing")) == (404, "not-found")
    assert api.get(f"/v1/requests/{partition}-999999999-1").json()["state"] == "pending"


def appended_ms(made: dict[str, Any]) -> int:
    from noontide.core.instants import parse_instant

    return parse_instant(made["created_at"], zone=None, pointer="")
