"""Workers in other languages: leases, heartbeats and ends over HTTP, through the real broker and a real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess
from tests.integration.test_api_jobs import create, problem

from noontide.adapters.kafka.topics import ensure_topics

FAR = {"schedule": {"every": "P1D"}, "timing": "exact", "lease": "PT2M"}
LEASES = 6


@pytest.fixture(scope="module")
def site(kafka: RunningKafka) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, "api-work.", partitions=8, slots=2) as installation:
        ensure_topics(kafka.bootstrap, installation.layout)
        yield installation


@pytest.fixture(scope="module")
def nodes(site: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two nodes: what one has leased is kept and ended through the other."""
    folder = tmp_path_factory.mktemp("api")
    with (
        SchedulerProcess(site, folder / "data", secret=SECRET) as scheduler,
        ApiProcess(site, folder) as first,
        ApiProcess(site, folder, name="second") as second,
    ):
        scheduler.start().until_owner()
        with httpx.Client(base_url=first.url, timeout=60) as one, httpx.Client(base_url=second.url, timeout=60) as two:
            yield one, two
        for log in (first.log, second.log, scheduler.log):
            assert "Traceback" not in log


@pytest.fixture
def api(nodes: tuple[httpx.Client, httpx.Client]) -> httpx.Client:
    return nodes[0]


def lease(api: httpx.Client, handler: str, lane: str, **more: Any) -> dict[str, Any]:
    """One run, with the worker that has it; asked for again, as a worker would, while there is none."""
    for _ in range(LEASES):
        answer = api.post("/v1/workers/lease", json={"handlers": [handler], "lane": lane, "wait_ms": 20_000, **more})
        assert answer.status_code == 200, answer.text
        if answer.json()["runs"]:
            break
    (run,) = answer.json()["runs"]
    return {**run, "worker": answer.json()["worker"]}


def held(run: dict[str, Any]) -> dict[str, Any]:
    return {"run_id": run["run_id"], "token": run["token"]}


def beat(api: httpx.Client, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = api.post("/v1/workers/heartbeat", json={"worker": run["worker"], "runs": [{**held(run), **more}]})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["runs"][0]
    return found


def end(api: httpx.Client, run: dict[str, Any], outcome: str, **more: Any) -> httpx.Response:
    said = {"worker": run["worker"], **held(run), "outcome": outcome, **more}
    return api.post("/v1/workers/complete", json=said)


def test_a_run_is_leased_at_one_node_and_kept_and_ended_at_another(nodes: tuple[httpx.Client, httpx.Client]) -> None:
    one, two = nodes
    create(one, id="remote", target="handler:report", payload={"n": 1}, lane="express", **FAR)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lease, one, "report", "express")
        run_id = one.post("/v1/jobs/remote/trigger", json={"payload": {"n": 2}}).json()["run_id"]
        run = waiting.result()
    assert (run["run_id"], run["handler"], run["payload"], run["attempt"]) == (run_id, "report", {"n": 2}, 1)
    assert (run["lease_ms"], run["tenant"], run["lane"]) == (120_000, "default", "express")
    assert beat(two, run, progress=0.5, note="half") == {**held(run), "state": "running"}
    assert one.get(f"/v1/runs/{run_id}").json()["worker"] == run["worker"]
    done = {**held(run), "accepted": True, "state": "succeeded"}
    assert end(two, run, "succeeded", result={"rows": 3}).json() == done
    assert end(one, run, "succeeded", result={"rows": 3}).json() == done  # an answer that was lost is asked for again
    assert problem(end(one, run, "failed", error="no")) == (409, "conflict")
    assert beat(one, run)["state"] == "lost"
    assert one.get(f"/v1/runs/{run_id}").json()["state"] == "succeeded"


def test_failures_are_tried_again_and_what_is_permanent_is_not(api: httpx.Client) -> None:
    create(
        api, id="again", target="handler:flaky", lane="express", retry={"max_attempts": 5, "backoff": ["PT0.1S"]}, **FAR
    )
    run_id = api.post("/v1/jobs/again/trigger").json()["run_id"]
    first = lease(api, "flaky", "express")
    answer = end(api, first, "failed", error="HTTP 502")
    assert (answer.json()["accepted"], answer.json()["state"]) == (True, "retry_wait")
    second = lease(api, "flaky", "express")
    assert (second["run_id"], second["attempt"]) == (run_id, 2)
    assert second["token"] > first["token"]
    assert problem(end(api, first, "succeeded")) == (409, "conflict")  # a stale end changes nothing
    assert beat(api, second)["state"] == "running"
    assert end(api, second, "handed_back").json()["accepted"]
    third = lease(api, "flaky", "express")
    assert third["attempt"] == 2  # it cost none
    assert end(api, third, "failed", error="no such customer", permanent=True).json()["state"] == "dead"
    assert "no such customer" in api.get(f"/v1/runs/{run_id}").json()["reason"]


def test_a_cancel_is_seen_in_the_answer_to_a_heartbeat(api: httpx.Client) -> None:
    create(api, id="long", target="handler:long", lane="express", **FAR)
    run_id = api.post("/v1/jobs/long/trigger").json()["run_id"]
    run = lease(api, "long", "express")
    assert api.post(f"/v1/runs/{run_id}/cancel", json={"reason": "wrong data"}).status_code == 200
    assert beat(api, run) == {**held(run), "state": "cancel", "reason": "wrong data"}
    assert end(api, run, "cancelled").json()["state"] == "cancelled"


def test_nobody_waits_for_ever_and_a_worker_that_left_gets_nothing(api: httpx.Client) -> None:
    answer = api.post("/v1/workers/lease", json={"handlers": ["rare"], "lane": "express", "wait_ms": 300})
    assert (answer.status_code, answer.json()["runs"]) == (200, [])
    with pytest.raises(httpx.ReadTimeout):  # it hangs up while it waits
        api.post("/v1/workers/lease", json={"handlers": ["rare"], "lane": "express"}, timeout=0.5)
    create(api, id="rare", target="handler:rare", lane="express", **FAR)
    run_id = api.post("/v1/jobs/rare/trigger").json()["run_id"]
    run = lease(api, "rare", "express")
    assert (run["run_id"], run["attempt"]) == (run_id, 1)
    assert end(api, run, "succeeded").json()["state"] == "succeeded"


@pytest.mark.slow
def test_a_worker_that_says_nothing_loses_its_run(api: httpx.Client) -> None:
    create(api, id="silent", target="handler:silent", lane="express", **{**FAR, "lease": "PT10S"})
    run_id = api.post("/v1/jobs/silent/trigger").json()["run_id"]
    first = lease(api, "silent", "express")
    eventually(lambda: beat_state(api, run_id) != "running", within_s=60, what="the lease is lost")
    assert problem(end(api, first, "succeeded")) == (409, "conflict")
    second = lease(api, "silent", "express")
    assert (second["run_id"], second["attempt"]) == (run_id, 2)
    assert end(api, second, "succeeded").json()["state"] == "succeeded"


def beat_state(api: httpx.Client, run_id: str) -> str:
    """The state of a run; asking for it extends nothing."""
    return str(api.get(f"/v1/runs/{run_id}").json()["state"])


def test_what_is_asked_wrongly_is_refused_with_the_place(api: httpx.Client) -> None:
    def pointer(path: str, **said: Any) -> tuple[int, str]:
        answer = api.post(f"/v1/workers/{path}", json=said)
        return answer.status_code, answer.json()["errors"][0]["pointer"]

    good = {"worker": "w-1", "run_id": "job:20260101T000000Z", "token": 1}
    assert pointer("lease", handlers=["no spaces"]) == (422, "/handlers/0")
    assert pointer("lease", handlers=[]) == (422, "/handlers")
    assert pointer("lease", handlers=["x"], lane="nowhere") == (422, "/lane")
    assert pointer("lease", handlers=["x"], max=0) == (422, "/max")
    assert pointer("lease", handlers=["x"], wait_ms=10_000_000) == (422, "/wait_ms")
    assert pointer("lease", handlers=["x"], max="1") == (422, "/max")
    assert pointer("heartbeat", worker="", runs=[]) == (422, "/worker")
    assert pointer("heartbeat", worker="w", runs=[{"run_id": good["run_id"], "token": 1, "progress": 2}])[0] == 422
    assert pointer("complete", **good, outcome="open") == (422, "/outcome")
    assert pointer("complete", **good, outcome="great") == (422, "/outcome")
    assert problem(api.post("/v1/workers/lease", json={"handlers": ["x"], "lanes": []})) == (422, "invalid")
    assert problem(api.post("/v1/workers/complete", json={**good, "outcome": "succeeded"})) == (404, "not-found")
    big = {**good, "outcome": "succeeded", "result": "x" * 70_000}
    assert problem(api.post("/v1/workers/complete", json=big)) == (413, "too-large")
    assert problem(api.post("/v1/workers/lease", content=b"{")) == (400, "not-json")
