"""Executions as one list over owner and history: no gap and nothing twice at the seam; what is said without it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import orjson
import pytest
from tests.apps.api.memory_api import MemoryApi, client_of
from tests.apps.api.test_memory_api import create, pages, problem

from noontide.adapters.postgres.history import PAGE_MAX as POSTGRES_PAGE_MAX
from noontide.apps.api.archive import Archive
from noontide.apps.api.job_lists import PAGE_MAX
from noontide.core.access import Principal, Role
from noontide.core.errors import NoontideError
from noontide.core.instants import format_basic, format_instant
from noontide.ports.history import Execution, ExecutionFilter, Place, ended_ms_of, place_of
from noontide.ports.record_log import Record, TopicPartition
from noontide.records.topics import Layout
from noontide.testing.memory_stage import MemoryStage

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@dataclass
class Remembered:
    """A history in memory. away: its questions fail; hanging: they are never answered."""

    lines: list[Execution] = field(default_factory=list)
    away: bool = False
    hanging: bool = False
    asked: int = 0

    async def page(self, wanted: ExecutionFilter, *, limit: int, after: Place | None = None) -> Sequence[Execution]:
        await self._answering()
        found = [each for each in self.lines if wanted.job_id in (None, each["job_id"])]
        if wanted.states:
            found = [each for each in found if each["state"] in wanted.states]
        if wanted.ended_before_ms is not None:
            found = [each for each in found if ended_ms_of(each) < wanted.ended_before_ms]
        if wanted.tenants is not None:
            found = [each for each in found if each["tenant"] in wanted.tenants]
        if wanted.since_ms is not None and wanted.until_ms is not None:
            found = [each for each in found if wanted.since_ms <= place_of(each).due_ms < wanted.until_ms]
        if after is not None:
            found = [each for each in found if place_of(each) < after]
        return sorted(found, key=place_of, reverse=True)[:limit]

    async def find(self, run_id: str, *, tenants: tuple[str, ...] | None = None) -> Execution | None:
        await self._answering()
        for each in self.lines:
            if each["run_id"] == run_id and (tenants is None or each["tenant"] in tenants):
                return each
        return None

    async def _answering(self) -> None:
        self.asked += 1
        if self.away:
            raise NoontideError("history: no route")
        if self.hanging:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.05)  # ending takes its time too


@dataclass
class Site:
    """An API over slots in memory with a history beside it."""

    api: MemoryApi
    history: Remembered
    archive: Archive

    def rested(self) -> None:
        """So long after that the history is asked again."""
        self.archive._resting_until_s = 0.0

    @property
    def now_ms(self) -> int:
        return self.api.stage.clock.now_ms()

    def line(self, due_ms: int, *, job: str = "a", run: str = "", **more: object) -> Execution:
        run_id = f"{job}:{run or format_basic(due_ms)}"
        due = format_instant(due_ms)
        return {"run_id": run_id, "job_id": job, "tenant": "default", "due": due, "state": "succeeded", **more}

    def write(self, execution: Execution) -> None:
        """To the topic, where the owner finds it."""
        layout = self.api.stage.layout
        at = TopicPartition(layout.name("executions"), layout.slot_of(layout.partition_of(str(execution["job_id"]))))
        self.api.stage.log.append(at, [Record(str(execution["run_id"]).encode(), orjson.dumps(dict(execution)))])


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with MemoryStage(layout=Layout(partitions=8, slots=2)) as stage:
        stage.register("orders")
        api, history = MemoryApi(stage), Remembered()
        archive = Archive(history, replace(api.settings, history_wait_ms=200, history_rest_ms=3_600_000))
        api.services = replace(api.services, archive=archive)
        yield Site(api, history, archive)


@pytest.fixture
async def http(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(site.api) as opened:
        await create(opened, id="a")
        yield opened


EXECUTIONS = "/v1/jobs/a/executions"


@pytest.mark.parametrize("seed", range(12))
async def test_wherever_the_owner_has_forgotten_each_line_is_on_one_page(
    site: Site, http: httpx.AsyncClient, seed: int
) -> None:
    """Also runs that were due long ago and ended of late: redriven, backfilled."""
    chance = random.Random(seed)
    lines = [site.line(site.now_ms - (60 - number) * DAY_MS) for number in range(50)]
    lines += [site.line(site.now_ms - 20 * DAY_MS, run=f"m{number}") for number in range(4)]
    begin = chance.randrange(len(lines) + 1)  # what was written from here on, the owner still has
    late = chance.sample(lines, 5)
    for each in lines[begin:] + late:
        site.write(each)
    behind = chance.randrange(3)  # the sink has not copied the last ones yet
    site.history.lines = lines[: len(lines) - behind] if begin <= len(lines) - behind else list(lines)
    found = await pages(http, EXECUTIONS, limit=chance.choice((1, 3, 7, 100)))
    ids = [item["run_id"] for page in found for item in page]
    assert ids == [each["run_id"] for each in sorted(lines, key=place_of, reverse=True)]


async def test_the_owners_end_is_shown_where_both_have_one(site: Site, http: httpx.AsyncClient) -> None:
    site.history.lines = [site.line(site.now_ms, state="dead")]
    site.write(site.line(site.now_ms))
    answer = (await http.get(EXECUTIONS)).json()
    assert [each["state"] for each in answer["items"]] == ["succeeded"]
    assert (answer["older"], answer["next_cursor"]) == ("history", None)


async def test_a_page_that_the_owner_fills_asks_nobody_else(site: Site, http: httpx.AsyncClient) -> None:
    for number in range(5):
        site.write(site.line(site.now_ms + number))
    answer = (await http.get(EXECUTIONS, params={"limit": 4})).json()
    assert (len(answer["items"]), answer["older"], site.history.asked) == (4, "history", 0)


@pytest.mark.parametrize("how", ["away", "hanging"])
async def test_without_the_history_the_recent_ones_are_given_and_the_answer_says_so(
    site: Site, http: httpx.AsyncClient, how: str
) -> None:
    old = [site.line(site.now_ms - number * DAY_MS) for number in range(9, 19)]
    site.history.lines = list(old)
    recent = [site.line(site.now_ms + number) for number in range(3)]
    backfilled = site.line(site.now_ms - 30 * DAY_MS)
    for each in (*recent, backfilled):
        site.write(each)
    setattr(site.history, how, True)
    first = (await http.get(EXECUTIONS)).json()
    assert [each["run_id"] for each in first["items"]] == [each["run_id"] for each in (*recent[::-1], backfilled)]
    assert first["older"] == "unreachable"
    again = {"cursor": first["next_cursor"]}
    refused = await http.get(EXECUTIONS, params=again)
    assert (problem(refused), refused.headers["retry-after"]) == ((503, "unavailable"), "2")
    assert site.history.asked == 1  # it is left alone for a while
    setattr(site.history, how, False)
    site.rested()
    rest = (await http.get(EXECUTIONS, params=again)).json()  # nothing was passed over
    assert [each["run_id"] for each in rest["items"]] == [each["run_id"] for each in (*old, backfilled)]
    assert (rest["older"], rest["next_cursor"]) == ("history", None)


async def test_a_job_without_recent_lines_and_a_history_that_is_away(site: Site, http: httpx.AsyncClient) -> None:
    site.history.away = True
    first = (await http.get(EXECUTIONS)).json()
    assert (first["items"], first["older"]) == ([], "unreachable")
    assert problem(await http.get(EXECUTIONS, params={"cursor": first["next_cursor"]})) == (503, "unavailable")
    assert problem(await http.get("/v1/jobs/nobody/executions")) == (404, "not-found")


async def test_without_a_history_the_answer_says_that_nothing_older_is_kept(
    site: Site, http: httpx.AsyncClient
) -> None:
    site.api.services = replace(site.api.services, archive=None)
    async with client_of(site.api) as plain:
        answer = (await plain.get(EXECUTIONS)).json()
    assert answer == {"items": [], "next_cursor": None, "older": "not_kept"}


async def test_a_tenant_sees_only_its_own_also_of_the_past(site: Site) -> None:
    billing = Principal(name="b", role=Role.VIEWER, tenants=frozenset({"billing"}))
    site.history.lines = [site.line(site.now_ms - DAY_MS)]

    async def authenticate(_request: object) -> Principal:
        return billing

    async with client_of(site.api, authenticate) as theirs:
        assert problem(await theirs.get(EXECUTIONS)) == (404, "not-found")
        assert problem(await theirs.get(f"/v1/runs/{site.history.lines[0]['run_id']}")) == (404, "not-found")


async def test_one_run_that_the_owner_has_forgotten(site: Site, http: httpx.AsyncClient) -> None:
    line = site.line(site.now_ms - 30 * DAY_MS, attempts='[{"attempt": 1}]')
    site.history.lines = [line]
    path = f"/v1/runs/{line['run_id']}"
    found = (await http.get(path)).json()
    assert (found["run_id"], found["attempts"], len(found["ends"])) == (line["run_id"], [{"attempt": 1}], 1)
    assert problem(await http.get("/v1/runs/a:m999")) == (404, "not-found")
    site.history.away = True
    assert problem(await http.get(path)) == (503, "unavailable")


async def test_occurrences_of_long_ago_are_told_from_the_history(site: Site, http: httpx.AsyncClient) -> None:
    made = await create(http, id="minutely", schedule={"every": "PT1M"}, timing="exact")
    assert made["state"] == "active"
    await site.api.stage.advance(30 * MINUTE_MS)
    found = (await http.get("/v1/jobs/minutely/executions", params={"limit": 1_000})).json()["items"]
    begin, end = found[-1]["due"], format_instant(site.now_ms)
    site.history.lines = [{key: value for key, value in each.items() if key != "attempts"} for each in found]
    site.api.forget()
    query = {"from": begin, "to": end}
    answer = (await http.get("/v1/jobs/minutely/occurrences", params=query)).json()
    assert {each["state"] for each in answer["items"]} == {"succeeded"}
    assert (len(answer["items"]), answer["older"]) == (len([each for each in found if each["due"] < end]), "history")
    site.history.away = True
    answer = (await http.get("/v1/jobs/minutely/occurrences", params=query)).json()
    assert ({each["state"] for each in answer["items"]}, answer["older"]) == ({"unrecorded"}, "unreachable")


async def test_occurrences_of_a_job_with_many_lines_reach_back_as_far_as_asked(
    site: Site, http: httpx.AsyncClient
) -> None:
    """More lines than one answer has came since; they hide nothing."""
    times = [site.now_ms + number for number in range(1_200)]
    for each in times:
        site.write(site.line(each))
    query = {"from": format_instant(times[10]), "to": format_instant(times[20])}
    answer = (await http.get("/v1/jobs/a/occurrences", params=query)).json()
    assert [each["due"] for each in answer["items"]] == [format_instant(each) for each in times[10:20]]
    query["to"] = format_instant(times[-1])
    answer = (await http.get("/v1/jobs/a/occurrences", params=query)).json()
    assert (len(answer["items"]), answer["truncated"]) == (1_000, True)


@pytest.mark.parametrize(
    "fields",
    [{"due": 1 << 60, "run": "a:1"}, {"due": "x", "run": "a:1"}, {"due": 1.5, "run": "a:1"}, {"due": 1}, {"due": True},
     {"due": 1, "run": 7}, {"due": 1, "run": "a\0"}],
)  # fmt: skip
async def test_a_cursor_that_was_made_up_is_refused(http: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    from noontide.apps.api.cursors import encode_cursor

    answer = await http.get(EXECUTIONS, params={"cursor": encode_cursor("executions", fields)})
    assert problem(answer) == (422, "invalid")


def test_the_history_gives_one_more_than_a_page_has() -> None:
    assert POSTGRES_PAGE_MAX > PAGE_MAX
