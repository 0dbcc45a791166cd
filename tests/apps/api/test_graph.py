"""The graph of jobs, calendars compared, and workers needed, over real slots in memory."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.actors.workers import handler
from tests.apps.api.memory_api import MemoryApi
from tests.apps.api.test_tenants import definition, opened

from noontide.apps.api.app import create_app
from noontide.apps.cli.calendars import diff_over_api
from noontide.apps.cli.graph import graph_over_api
from noontide.client import NotFound
from noontide.records.topics import Layout
from noontide.testing.builders import cron, every, job
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work

TWO_SLOTS = Layout(partitions=8, slots=2)


async def asked(stage: MemoryStage, method: str, path: str, **more: Any) -> httpx.Response:
    memory = MemoryApi(stage)
    app = create_app(memory.services, settings=memory.settings)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        return await client.request(method, path, **more)


async def test_a_graph_goes_up_and_down_over_all_slots() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.put(handler("extract", cron("0 2 * * *")))
        for name, after in (("clean", ["extract"]), ("rates", ["extract"]), ("report", ["clean", "rates", "nowhere"])):
            stage.put(handler(name, None, after=after))
        stage.put(handler("mail", None, after=["report"], paused=True))
        stage.put(handler("alone", cron("0 2 * * *")))
        await stage.run_until_idle()
        found = (await asked(stage, "GET", "/v1/jobs/clean/graph")).json()
        by_id = {each["id"]: each for each in found["jobs"]}
        assert sorted(by_id) == ["clean", "extract", "mail", "report"]
        assert by_id["clean"]["after"] == ["extract"]
        whole = (await asked(stage, "GET", "/v1/jobs/report/graph")).json()
        by_id = {each["id"]: each for each in whole["jobs"]}
        assert sorted(by_id) == ["clean", "extract", "mail", "nowhere", "rates", "report"]
        assert by_id["nowhere"]["exists"] is False
        assert by_id["mail"]["state"] == "paused"
        assert (whole["cycle"], whole["truncated"]) == (None, False)
        alone = (await asked(stage, "GET", "/v1/jobs/alone/graph")).json()
        assert [each["id"] for each in alone["jobs"]] == ["alone"]
        assert (await asked(stage, "GET", "/v1/jobs/report/graph?limit=2")).json()["truncated"]
        assert (await asked(stage, "GET", "/v1/jobs/nobody/graph")).status_code == 404


async def test_the_graph_of_another_tenant_is_not_there() -> None:
    async with opened() as (_, clients):
        await clients["billing"].create_job(definition("j"))
        await clients["billing"].create_job({"id": "k", "after": ["j"], "target": "handler:x"})
        graph = await clients["billing"].job_graph("k")
        assert sorted(each["id"] for each in graph["jobs"]) == ["j", "k"]
        with pytest.raises(NotFound):
            await clients["orders"].job_graph("k")


async def test_a_subtree_runs_again_over_the_api() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        Crew(stage).hire()
        stage.put(handler("extract", cron("0 2 * * *"), timing="exact", lane="default"))
        stage.put(handler("clean", None, after=["extract"]))
        stage.put(handler("other", None, after=["extract"]))
        await stage.advance(2 * 3_600_000 + 5_000)
        again = {"due": "2026-03-01T02:00:00Z", "members": ["extract", "clean"]}
        answer = await asked(stage, "POST", "/v1/jobs/extract/trigger", json=again)
        assert answer.status_code == 201, answer.text
        await stage.advance(5_000)
        begun = answer.json()["run_id"].rpartition(":")[2]
        first, second = [str(line["run_id"]) for line in stage.executions("clean")]
        assert (first, second.startswith(f"clean:{begun}")) == ("clean:20260301T020000Z", True)
        assert [line["run_id"] for line in stage.executions("other")] == ["other:20260301T020000Z"]


async def test_the_command_draws_a_graph_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    class Client:
        def job_graph(self, _job_id: str) -> dict[str, Any]:
            jobs = [("a", [], True), ("b", ["a", "gone"], True), ("gone", [], False)]
            return {"jobs": [{"id": name, "after": after, "state": "active", "reason": None, "exists": exists}
                             for name, after, exists in jobs]}  # fmt: skip

    graph_over_api(Client(), "b", mermaid=False, as_json=False)  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert "└─ b" in shown
    assert "gone  [does not exist]" in shown


async def test_a_calendar_is_compared_before_it_is_changed() -> None:
    async with MemoryStage(layout=TWO_SLOTS) as stage:
        stage.register("orders")
        stage.configure("calendar/holidays", {"dates": ["2026-03-02"]})
        for number in range(30):
            stage.put(job(f"other-{number}", cron("0 12 * * *")))
        stage.put(job("noon", cron("0 12 * * *"), calendar={"exclude": ["holidays"]}))
        stage.put(job("payday", cron("0 9 * * *"), calendar={"include": ["holidays"]}))
        stage.put(job("never", cron("0 9 * * *"), calendar={"exclude": ["holidays"]}, ends_at="2026-03-01T23:00:00Z"))
        await stage.run_until_idle()
        body = {"dates": ["2026-03-03"]}
        answer = await asked(stage, "POST", "/v1/calendars/holidays/diff?days=10", json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["jobs"], found["complete"]) == (3, True)
        moved = {each["job_id"]: (each["gone"], each["new"]) for each in found["items"]}
        assert moved == {
            "noon": (["2026-03-03T12:00:00Z"], ["2026-03-02T12:00:00Z"]),
            "payday": (["2026-03-02T09:00:00Z"], ["2026-03-03T09:00:00Z"]),
        }
        assert stage.config.calendars["holidays"].covers_day(20_514)  # 2026-03-02: nothing has changed
        bad = await asked(stage, "POST", "/v1/calendars/holidays/diff", json={"dates": ["soon"]})
        assert bad.status_code == 422


def test_the_command_shows_what_moves(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    file = tmp_path / "days.json"
    file.write_text('{"dates": ["2026-03-03"]}')

    class Client:
        def calendar_diff(self, name: str, calendar: object, *, days: int) -> dict[str, Any]:
            assert (name, calendar, days) == ("holidays", {"dates": ["2026-03-03"]}, 10)
            item = {"job_id": "noon", "tenant": "billing", "gone": ["2026-03-03T12:00:00Z"], "new": [], "cut": False}
            return {"items": [item], "jobs": 1, "complete": True}

    diff_over_api(Client(), "holidays", str(file), 10, as_json=False)  # type: ignore[arg-type]
    assert "2026-03-03T12:00:00Z" in capsys.readouterr().out


async def test_workers_needed_follow_from_what_waits_what_comes_and_what_a_run_takes() -> None:
    async with MemoryStage() as stage:
        Crew(stage).hire(does=lambda _run: Work(30_000), capacity=4)
        for number in range(8):
            stage.put(handler(f"job-{number}", every("PT1M"), overlap="allow", timing="exact", lane="default"))
        await stage.advance(300_000)
        found = (await asked(stage, "GET", "/v1/scaling?minutes=5&concurrency=2")).json()
        lane = found["lanes"]["default"]
        assert found["complete"]
        assert lane["mean_ms"] == pytest.approx(30_000, rel=0.1)
        assert (lane["coming"], lane["fullest_minute"]) == (32, 8)  # those of this minute have been claimed
        # 8 runs a minute of 30 s are 4 places, and what waits besides; 1.6 places of each worker are to be in use
        backlog = lane["ready"] + lane["queued"]
        places = max((backlog + 32) * lane["mean_ms"] / 300_000, 8 * lane["mean_ms"] / 60_000, lane["running"])
        assert lane["places"] == pytest.approx(places, rel=0.01)
        assert lane["workers"] == -(-places // 1.6)
        assert found["lanes"]["bulk"]["workers"] == 0
