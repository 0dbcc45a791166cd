"""Lists, runs, dead letters, configuration and batches over HTTP, through the real broker and a real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from click.testing import CliRunner
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess
from tests.integration.test_api_jobs import create, problem

from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.agents.ledger import Ledger, ended_of
from noontide.apps.cli.main import main
from noontide.core.instants import format_instant
from noontide.records.agents_state import minute_of

FAR = {"schedule": {"every": "P1D"}, "timing": "exact"}


@pytest.fixture(scope="module")
def site(kafka: RunningKafka) -> Iterator[Installation]:
    with Installation.create(kafka.bootstrap, "api-runs.") as installation:
        installation.create_target("orders")
        yield installation


@pytest.fixture(scope="module")
def api(site: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("api")
    with (
        SchedulerProcess(site, folder / "data", secret=SECRET) as scheduler,
        ApiProcess(site, folder) as process,
    ):
        scheduler.start().until_owner()
        with httpx.Client(base_url=process.url, timeout=30) as client:
            yield client
        assert "Traceback" not in process.log
        assert "Traceback" not in scheduler.log


def pages(api: httpx.Client, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages of a list."""
    found, cursor = [], None
    while True:
        answer = api.get(path, params={**query, **({} if cursor is None else {"cursor": cursor})})
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["items"])
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found


def run_of(api: httpx.Client, job_id: str) -> dict[str, Any]:
    """Trigger a job and wait until its run is closed."""
    answer = api.post(f"/v1/jobs/{job_id}/trigger")
    assert answer.status_code == 201, answer.text
    run_id = answer.json()["run_id"]
    assert answer.headers["location"] == f"/v1/runs/{run_id}"
    eventually(lambda: api.get(f"/v1/runs/{run_id}").json().get("ended_at") is not None, what=f"{run_id} ends")
    found: dict[str, Any] = api.get(f"/v1/runs/{run_id}").json()
    return found


def test_pages_of_jobs_hold_each_exactly_once(api: httpx.Client) -> None:
    """Cases pag-01 and pag-02: thirty rows of one moment, seven on a page; others come and go meanwhile."""
    lines = b"\n".join(orjson.dumps({"id": f"page-{n:02}", "target": "handler:x", **FAR}) for n in range(30))
    made = api.post("/v1/jobs:batch", content=lines, headers={"content-type": "application/x-ndjson"})
    assert [orjson.loads(line)["status"] for line in made.content.splitlines()] == [201] * 30
    seen, cursor = [], None
    for turn in range(20):
        query: dict[str, Any] = {"limit": 7, "text": "page-", **({} if cursor is None else {"cursor": cursor})}
        page = api.get("/v1/jobs", params=query).json()
        seen += [job["id"] for job in page["items"]]
        create(api, id=f"page-{turn:02}-new", target="handler:x", **FAR)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert cursor is None
    assert [job_id for job_id in seen if not job_id.endswith("new")] == [f"page-{n:02}" for n in range(30)]
    assert len(set(seen)) == len(seen)


def test_filters_of_jobs(api: httpx.Client) -> None:
    create(api, id="f1", target="kafka://orders", labels={"team": "x"}, note="Invoices", **FAR)
    create(api, id="f2", target="handler:y", labels={"team": "z"}, paused=True, tenant="billing", **FAR)

    def ids(**query: Any) -> set[str]:
        return {job["id"] for page in pages(api, "/v1/jobs", **query) for job in page} & {"f1", "f2"}

    assert ids() == {"f1", "f2"}
    assert ids(tenant="billing") == {"f2"}
    assert ids(state="paused") == {"f2"}
    assert ids(target="kafka://orders") == {"f1"}
    assert ids(text="invoice") == {"f1"}
    assert ids(label="team=x") == {"f1"}
    assert ids(label=["team"], state="active") == {"f1"}
    assert problem(api.get("/v1/jobs", params={"state": "asleep"})) == (422, "invalid")
    assert problem(api.get("/v1/jobs", params={"cursor": "e30"})) == (422, "invalid")


def test_a_run_by_hand_and_its_history(api: httpx.Client, site: Installation) -> None:
    create(api, id="orders-job", target={"topic": {"name": site.foreign("orders")}}, payload={"n": 1}, **FAR)
    first = run_of(api, "orders-job")
    assert (first["state"], first["job_id"], first["target"]) == (
        "succeeded", "orders-job", f"kafka://{site.foreign('orders')}",
    )  # fmt: skip
    for _ in range(4):
        run_of(api, "orders-job")
    found = pages(api, "/v1/jobs/orders-job/executions", limit=2)
    assert [len(page) for page in found] == [2, 2, 1]
    ids = [item["run_id"] for page in found for item in page]
    assert ids[-1] == first["run_id"]
    assert len(set(ids)) == 5
    key = {"idempotency-key": "once"}
    answers = [api.post("/v1/jobs/orders-job/trigger", json={"payload": 2}, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json() == answers[1].json()
    assert problem(api.post("/v1/jobs/orders-job/trigger", json={"paylod": 2})) == (422, "invalid")
    assert problem(api.post("/v1/jobs/nobody/trigger")) == (404, "not-found")
    assert problem(api.get("/v1/jobs/nobody/executions")) == (404, "not-found")


def test_live_runs_cancel_and_the_closed_behind_them(api: httpx.Client) -> None:
    """Case pag-03: each run is on one page, although some are closed while the pages are turned."""
    create(api, id="idle", target="handler:nobody", overlap="allow", **FAR)
    run_ids = {api.post("/v1/jobs/idle/trigger").json()["run_id"] for _ in range(12)}
    eventually(lambda: all(api.get(f"/v1/runs/{each}").status_code == 200 for each in run_ids), what="runs are live")
    seen, cursor = [], None
    victims = sorted(run_ids)
    while True:
        query: dict[str, Any] = {"job": "idle", "limit": 3, **({} if cursor is None else {"cursor": cursor})}
        page = api.get("/v1/runs", params=query).json()
        seen += [run["run_id"] for run in page["items"]]
        if victims:
            run_id = victims.pop()
            assert api.post(f"/v1/runs/{run_id}/cancel", json={"reason": "enough"}).json()["state"] == "cancelled"
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(run_ids)
    cancelled = api.get(f"/v1/runs/{sorted(run_ids)[-1]}").json()
    assert (cancelled["state"], "enough" in cancelled["reason"]) == ("cancelled", True)
    assert problem(api.post(f"/v1/runs/{cancelled['run_id']}/cancel")) == (409, "conflict")
    assert problem(api.post("/v1/runs/idle:m999999/cancel")) == (404, "not-found")
    assert problem(api.get("/v1/runs/idle:nothing")) == (404, "not-found")
    live = [run for page in pages(api, "/v1/runs", job="idle", state="pending,queued") for run in page]
    assert {run["run_id"] for run in live} == set(victims)
    assert problem(api.get("/v1/runs", params={"state": "lost"})) == (422, "invalid")


def test_dead_runs_are_listed_and_redriven(api: httpx.Client, site: Installation) -> None:
    missing = f"{site.foreign('missing')}"
    retry = {"max_attempts": 1}
    create(api, id="dies", target={"topic": {"name": missing}}, retry=retry, guarantee="at_most_once", **FAR)
    run_id = api.post("/v1/jobs/dies/trigger").json()["run_id"]
    eventually(lambda: api.get(f"/v1/runs/{run_id}").json().get("state") == "dead", what="it dies")
    (dead,) = [run for page in pages(api, "/v1/dead-letters", job="dies") for run in page]
    assert (dead["run_id"], dead["state"]) == (run_id, "dead")
    failed = [run["run_id"] for page in pages(api, "/v1/runs", job="dies", state="failed") for run in page]
    assert failed == [run_id]
    dry = api.post("/v1/dead-letters/redrive", json={"job_id": "dies", "dry_run": True}).json()
    assert [run["run_id"] for run in dry["runs"]] == [run_id]
    assert api.post("/v1/dead-letters/redrive", json={"job_id": "dies"}).json() == {"started": [run_id], "refused": []}
    assert problem(api.post("/v1/dead-letters/redrive", json={})) == (422, "invalid")


def test_next_pause_and_resume(api: httpx.Client) -> None:
    create(api, id="paused", target="handler:x", schedule="0 6 * * *", timezone="Europe/Berlin", timing="exact")
    times = api.get("/v1/jobs/paused/next", params={"count": 2, "after": "2027-03-27T12:00:00Z"}).json()["times"]
    assert [each["due"] for each in times] == ["2027-03-28T04:00:00Z", "2027-03-29T04:00:00Z"]
    paused = api.post("/v1/jobs/paused/pause", json={"note": "holiday"}).json()
    assert (paused["state"], paused["definition"]["note"]) == ("paused", "holiday")
    assert api.post("/v1/jobs/paused/resume").json()["state"] == "active"


def test_a_batch_has_a_verdict_for_each_line(api: httpx.Client) -> None:
    good = {"id": "batch-1", "target": "handler:x", **FAR}
    lines = [orjson.dumps(good), b"{", orjson.dumps({**good, "id": "batch-2", "priority": 11}), b"", orjson.dumps(good)]
    answer = api.post("/v1/jobs:batch", content=b"\n".join(lines), headers={"content-type": "application/x-ndjson"})
    verdicts = [orjson.loads(line) for line in answer.content.splitlines()]
    assert [(each["line"], each["status"]) for each in verdicts] == [(1, 201), (2, 400), (3, 422), (4, 409)]
    assert verdicts[2]["errors"][0]["pointer"] == "/priority"
    query = {"mode": "replace"}
    headers = {"content-type": "application/x-ndjson"}
    replaced = api.post("/v1/jobs:batch", content=orjson.dumps(good), params=query, headers=headers)
    assert orjson.loads(replaced.content)["status"] == 201
    assert problem(api.post("/v1/jobs:batch", json={})) == (415, "media-type")


def test_configuration(api: httpx.Client, site: Installation) -> None:
    value = {"dates": ["2096-12-25"]}
    assert api.put("/v1/calendars/xmas", json=value).json() == {"name": "xmas", "value": value}
    assert api.get("/v1/calendars/xmas").json()["value"] == value
    assert [each["name"] for each in api.get("/v1/calendars").json()["items"]] == ["xmas"]
    create(api, id="no-xmas", target="handler:x", calendar={"exclude": ["xmas"]}, schedule="0 6 * * *")
    assert problem(api.put("/v1/calendars/bad", json={"dates": ["soon"]})) == (422, "invalid")
    assert problem(api.put("/v1/targets/t", json={"topic": "there-is-none"})) == (422, "invalid")
    topic = {"topic": site.foreign("orders"), "tenants": "*"}
    assert api.put("/v1/targets/t", json=topic).status_code == 200
    assert api.delete("/v1/targets/t").status_code == 204
    assert problem(api.get("/v1/targets/t")) == (404, "not-found")


def test_the_cluster(api: httpx.Client) -> None:
    assert api.get("/readyz").status_code == 200
    slots = api.get("/v1/partitions").json()["items"]
    assert [slot["slot"] for slot in slots] == [0, 1]
    assert all(slot["owner"] for slot in slots)
    assert "lanes" in api.get("/v1/workers").json()
    assert api.get("/v1/meta").json()["slots"] == 2
    assert 'noontide_api_requests_total{method="GET",route="/v1/meta",status="200"} 1.0' in api.get("/metrics").text


def test_jobs_that_are_due_in_a_moment_with_nothing_else_going_on(api: httpx.Client, site: Installation) -> None:
    """Case clk-10: created just before they are due, at odd parts of a second; all run within three seconds."""
    for after_ms in (400, 600, 1_400):
        at = format_instant(wall_now_ms() + after_ms)
        body = {"id": f"soon-{after_ms}", "run_at": at, "target": f"kafka://{site.foreign('orders')}"}
        assert api.post("/v1/jobs", json=body).status_code == 201

    def late_s(after_ms: int) -> list[float]:
        items = api.get(f"/v1/jobs/soon-{after_ms}/executions").json()["items"]
        return [(datetime.fromisoformat(each["ended_at"]) - datetime.fromisoformat(each["due"])).total_seconds()
                for each in items]  # fmt: skip

    eventually(lambda: all(late_s(after_ms) for after_ms in (400, 600, 1_400)), what="all three have run")
    assert all(0 <= each < 3 for after_ms in (400, 600, 1_400) for each in late_s(after_ms))


def test_what_a_jobs_runs_came_to(api: httpx.Client, site: Installation) -> None:
    """`/v1/jobs/{id}/stats`: all windows, of what agents have written, and nothing of another job or tenant."""
    create(api, id="counted", target="handler:nobody", tenant="billing", **FAR)
    create(api, id="uncounted", target="handler:nobody", **FAR)
    now = api.get("/v1/jobs/counted").json()["created_at"]
    ends = [
        ("counted", "billing", "dead", 3),
        ("counted", "billing", "succeeded", 700),
        ("other", "billing", "dead", 1),
    ]
    batch = []
    for offset, (job_id, tenant, state, late_ms) in enumerate(ends):
        said = {"run_id": f"{job_id}:{offset}", "job_id": job_id, "tenant": tenant, "due": now, "ended_at": now}
        found = ended_of(0, offset, orjson.dumps({**said, "state": state, "late_ms": late_ms}))
        assert found is not None
        batch.append(found)
    for key, row in Ledger().count(batch, now_minute=minute_of(wall_now_ms())).items():
        site.produce(site.name("agents-state"), key=key.encode(), value=orjson.dumps(row), partition=0)

    def windows(job_id: str) -> dict[str, dict[str, Any]]:
        answer = api.get(f"/v1/jobs/{job_id}/stats")
        assert answer.status_code == 200, answer.text
        return {each["window"]: each for each in answer.json()["windows"]}

    eventually(lambda: windows("counted")["5m"]["runs"] == 2, what="the node has read what agents wrote")
    for each in windows("counted").values():
        assert (each["job_id"], each["tenant"], each["dead"], each["succeeded"]) == ("counted", "billing", 1, 1)
        assert each["failure_rate"] == 0.5
    assert {each["runs"] for each in windows("uncounted").values()} == {0}
    assert problem(api.get("/v1/jobs/no-such-job/stats")) == (404, "not-found")


def test_a_part_runs_again_and_is_watched_over_the_api(api: httpx.Client, site: Installation) -> None:
    target = f"kafka://{site.foreign('orders')}"
    server = ("--server", str(api.base_url))

    def said(*arguments: str) -> list[Any]:
        done = CliRunner().invoke(main, [*arguments, *server, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    create(api, id="again-extract", target=target)
    for job_id, upstream in (("again-clean", "again-extract"), ("again-report", "again-clean")):
        answer = api.post("/v1/jobs", json={"id": job_id, "after": [upstream], "target": target})
        assert answer.status_code == 201, answer.text
    before = run_of(api, "again-extract")
    part = {"due": before["due"], "jobs": ["again-extract", "again-clean", "again-report"]}
    again = ("runs", "rerun", before["run_id"], "--subtree")
    assert said(*again, "--dry-run") == [{"run_id": None, **part}]
    ((begun),) = said(*again)
    assert begun["run_id"] not in (None, before["run_id"])
    eventually(lambda: len(said("runs", "list", "--job", "again-report")) == 1, what="the last of the part runs")
    (last,) = said("runs", "list", "--job", "again-report")
    assert (last["state"], last["due"]) == ("succeeded", before["due"])
    watched = said("runs", "watch", "--job", "again-extract", "--since", "10m", "--count", "2")
    assert [each["run_id"] for each in watched] == [before["run_id"], begun["run_id"]]
    watch = ("runs", "watch", "--job", "again-clean", "--since", "10m", "--count", "1")
    shown = CliRunner().invoke(main, [*watch, *server])
    assert shown.exit_code == 0, shown.output
    assert {"succeeded", "again-clean"} <= set(shown.output.split())
    nobody = CliRunner().invoke(main, ["runs", "rerun", "again-extract:m1-api", *server])
    assert nobody.exit_code != 0
    assert "m1-api" in nobody.output


def test_commands_over_the_api(api: httpx.Client, tmp_path: Path) -> None:
    def said(*arguments: str) -> list[Any]:
        done = CliRunner().invoke(main, [*arguments, "--server", str(api.base_url)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    create(api, id="by-command", target="handler:nobody", **FAR)
    run_id = api.post("/v1/jobs/by-command/trigger").json()["run_id"]
    (workers,) = said("workers", "--json")
    assert set(workers) == {"workers", "lanes"}
    slots = said("partitions", "--json")
    assert [each["slot"] for each in slots] == list(range(len(slots)))
    assert all(each["phase"] == "working" for each in slots)
    (share,) = said("tenants", "share", "default", "--json")
    assert share["tenant"] == "default"
    days = tmp_path / "days.json"
    days.write_text('{"dates": ["2026-12-25", {"from": "2027-01-01", "to": "2027-01-03"}]}')
    said("calendars", "put", "by-command", str(days))
    assert said("calendars", "show", "by-command") == [orjson.loads(days.read_bytes())]
    found = {each["calendar"]: each for each in said("calendars", "list", "--json")}
    assert found["by-command"] == {"calendar": "by-command", "days": 4, "from": "2026-12-25", "to": "2027-01-03"}
    for command in (("workers",), ("partitions",), ("tenants", "share", "default"), ("calendars", "list")):
        said(*command)
    said("runs", "cancel", run_id)
    assert [each["run_id"] for each in said("runs", "list", "--job", "by-command", "--json")] == [run_id]
    unnamed = CliRunner().invoke(main, ["tenants", "share", "--server", str(api.base_url)])
    assert (unnamed.exit_code, "name the TENANT" in unnamed.output) == (2, True)
