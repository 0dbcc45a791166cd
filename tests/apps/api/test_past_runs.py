"""`GET /v1/runs` over owners and history: each end once, whatever was forgotten, in any state, for any tenant."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from tests.apps.api.memory_api import client_of
from tests.apps.api.test_memory_api import problem
from tests.apps.api.test_past import DAY_MS, MINUTE_MS, Site, http, site

from noontide.apps.api.cursors import encode_cursor
from noontide.apps.api.past_runs import seam_ms
from noontide.apps.port import wire
from noontide.core.access import Principal, Role
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant
from noontide.ports.history import Execution, ended_ms_of
from noontide.ports.record_log import Incoming

__all__ = ("http", "site")  # fixtures
RUNS = "/v1/runs"
HOUR_MS = 60 * MINUTE_MS


class Past:
    """Runs that ended one after the other, of which the owners have forgotten those older than a week."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._offsets: dict[int, int] = {}
        self._begin_ms = site.now_ms
        self.lines: list[Execution] = []

    def end(self, days_ago: float, *, due_ms: int | None = None, lag_ms: int = 0, **more: Any) -> Execution:
        """A run that ended then; its record was appended a little later."""
        at_ms = self._begin_ms - round(days_ago * DAY_MS)
        due_ms = at_ms - 1_000 if due_ms is None else due_ms
        line = self._site.line(due_ms, ended_at=format_instant(at_ms), **more)
        self._record(line, at_ms + lag_ms)
        self.lines.append(line)
        return line

    def remember(self, lines: list[Execution]) -> None:
        """In the history."""
        self._site.history.lines = lines

    def _record(self, line: Execution, appended_ms: int) -> None:
        layout, recents = self._site.api.stage.layout, self._site.api._recents
        slot = layout.slot_of(layout.partition_of(str(line["job_id"])))
        offset = self._offsets[slot] = self._offsets.get(slot, -2) + 2
        recents._batches = 200  # so that what is old is forgotten with this one
        topic = layout.name("executions")
        recents.copy([Incoming(topic, slot, offset, appended_ms, b"key", orjson.dumps(dict(line)), ())])


async def turned(http: httpx.AsyncClient, **query: Any) -> list[str]:
    """The run ids of all pages."""
    found, cursor = [], None
    while True:
        answer = await http.get(RUNS, params={**query, **({} if cursor is None else {"cursor": cursor})})
        assert answer.status_code == 200, answer.text
        found += [item["run_id"] for item in answer.json()["items"]]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found


def some(site: Site, chance: random.Random, days: float, count: int) -> Past:
    """Runs of five jobs, ended within the last `days`, of two tenants and in three states."""
    past = Past(site)
    for number, days_ago in enumerate(sorted((chance.random() * days for _ in range(count)), reverse=True)):
        ahead_ms = site.now_ms + number * DAY_MS
        past.end(
            days_ago,
            job=chance.choice("abcde"),
            run=f"m{number}",
            due_ms=ahead_ms if chance.random() < 0.1 else None,  # made by hand for a time to come
            lag_ms=chance.randrange(60_000),
            state=chance.choice(("succeeded", "dead", "cancelled")),
            tenant=chance.choice(("default", "billing")),
        )
    return past


@pytest.mark.parametrize("days", [0.02, 6.9, 30])
@pytest.mark.parametrize("seed", range(4))
async def test_each_run_is_on_one_page(site: Site, http: httpx.AsyncClient, seed: int, days: float) -> None:
    chance = random.Random(seed)
    past = some(site, chance, days, 60)
    # The sink is an hour behind at most, and has decisions that are no runs.
    skipped = site.line(site.now_ms - 20 * DAY_MS, run="m900", state="skipped")
    past.remember([*(each for each in past.lines if ended_ms_of(each) < site.now_ms - HOUR_MS), skipped])
    for query in ({}, {"state": "succeeded"}, {"state": "failed,cancelled"}, {"job": "b"}, {"tenant": "billing"}):
        found = await turned(http, limit=chance.choice((1, 7, 100)), **query)
        states = query.get("state", "succeeded,cancelled,dead").replace("failed", "dead").split(",")
        wanted = [
            str(each["run_id"])
            for each in past.lines
            if each["state"] in states
            and query.get("job", each["job_id"]) == each["job_id"]
            and query.get("tenant", each["tenant"]) == each["tenant"]
        ]
        assert sorted(found) == sorted(wanted), query


@pytest.mark.parametrize("limit", [1, 3])
async def test_what_owners_forget_while_pages_are_turned_is_neither_lost_nor_told_twice(
    site: Site, http: httpx.AsyncClient, limit: int
) -> None:
    past = some(site, random.Random(7), 9, 40)
    past.remember(list(past.lines))
    wanted = sorted(str(each["run_id"]) for each in past.lines)
    found, cursor, minutes = [], None, 0
    while True:
        answer = (await http.get(RUNS, params={"limit": limit} | ({} if cursor is None else {"cursor": cursor}))).json()
        found += [item["run_id"] for item in answer["items"]]
        cursor, minutes = answer["next_cursor"], minutes + 1
        if cursor is None:
            break
        site.api.stage.clock.advance(MINUTE_MS)
        # Another one ends, and so something is forgotten.
        past.end(-minutes / (24 * 60), job="abcde"[minutes % 5], run=f"m{1_000 + minutes}")
    assert sorted(found) == wanted


async def test_recent_ones_come_first_the_newest_end_first_then_older_ones_by_nominal_time(
    site: Site, http: httpx.AsyncClient
) -> None:
    past = Past(site)
    days = (40, 20, 10, 2, 1)
    lines = [past.end(each, job="ab"[number % 2], run=f"m{number}") for number, each in enumerate(days)]
    past.remember(lines)
    assert await turned(http) == [each["run_id"] for each in reversed(lines)]
    first = (await http.get(RUNS, params={"limit": 2, "state": "succeeded"})).json()
    assert (first["older"], site.history.asked) == ("history", 1)  # once by the pages above, and not for recent ones


async def test_a_run_that_was_redriven_shows_its_last_end(site: Site, http: httpx.AsyncClient) -> None:
    past = Past(site)
    past.end(20, run="m1", state="dead")
    past.remember([past.end(1, run="m1", state="succeeded")])
    assert await turned(http, limit=1) == ["a:m1"]
    assert await turned(http, state="dead") == []


async def test_a_history_that_is_away_is_said_behind_the_recent_ones_and_nothing_is_passed_over(
    site: Site, http: httpx.AsyncClient
) -> None:
    past = Past(site)
    old, new = past.end(30, run="m1"), past.end(1, run="m2")
    past.remember([old, new])
    site.history.away = True
    first = (await http.get(RUNS, params={"state": "succeeded"})).json()
    assert [each["run_id"] for each in first["items"]] == [new["run_id"]]
    behind = {"state": "succeeded", "cursor": first["next_cursor"]}
    refused = await http.get(RUNS, params=behind)
    assert (problem(refused), refused.headers["retry-after"]) == ((503, "unavailable"), "2")
    site.history.away = False
    site.rested()
    rest = (await http.get(RUNS, params=behind)).json()
    assert ([each["run_id"] for each in rest["items"]], rest["next_cursor"]) == ([old["run_id"]], None)


async def test_live_runs_alone_have_no_past(site: Site, http: httpx.AsyncClient) -> None:
    past = Past(site)
    past.remember([past.end(30, run="m1")])
    answer = (await http.get(RUNS, params={"state": "running,queued"})).json()
    assert (answer["items"], answer["next_cursor"], site.history.asked) == ([], None, 0)


async def test_a_tenant_sees_its_own_also_of_the_past_and_with_the_cursor_of_another(site: Site) -> None:
    past = some(site, random.Random(3), 30, 40)
    past.remember(list(past.lines))

    async def authenticate(_request: object) -> Principal:
        return Principal(name="b", role=Role.VIEWER, tenants=frozenset({"billing"}))

    own = sorted(str(each["run_id"]) for each in past.lines if each["tenant"] == "billing")
    async with client_of(site.api) as all_of_them, client_of(site.api, authenticate) as theirs:
        assert sorted(await turned(theirs, limit=5)) == own
        cursor = (await all_of_them.get(RUNS, params={"state": "succeeded"})).json()["next_cursor"]
        for each in (cursor, encode_cursor("runs", {"part": "past", "until": site.now_ms + DAY_MS})):
            found = (await theirs.get(RUNS, params={"cursor": each})).json()
            assert found["items"]
            assert {item["tenant"] for item in found["items"]} == {"billing"}


async def test_without_a_history_the_answer_says_that_nothing_older_is_kept(site: Site) -> None:
    past = Past(site)
    past.end(1, run="m1")
    site.api.services = replace(site.api.services, archive=None)
    async with client_of(site.api) as plain:
        answer = (await plain.get(RUNS, params={"state": "succeeded"})).json()
        assert (len(answer["items"]), answer["next_cursor"], answer["older"]) == (1, None, "not_kept")
        late = {"cursor": encode_cursor("runs", {"part": "past", "until": site.now_ms})}
        assert problem(await plain.get(RUNS, params=late)) == (503, "unavailable")


@pytest.mark.parametrize(
    "fields",
    [{"part": "past"}, {"part": "past", "until": "x"}, {"part": "past", "until": True},
     {"part": "past", "until": 1 << 60}, {"part": "closed", "before": {}, "until": 1.5},
     {"part": "past", "until": 1, "due": 1, "run": "a\0"}],
)  # fmt: skip
async def test_a_cursor_that_was_made_up_is_refused(http: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    assert problem(await http.get(RUNS, params={"cursor": encode_cursor("runs", fields)})) == (422, "invalid")


def test_the_seam_is_where_every_owner_knows_everything() -> None:
    now_ms, week_ms = 100 * DAY_MS, 7 * DAY_MS
    young = wire.Kept(now_ms - DAY_MS, whole=True, retention_ms=week_ms)
    old = wire.Kept(now_ms - week_ms, whole=False, retention_ms=week_ms)
    cut = wire.Kept(now_ms - 3 * DAY_MS, whole=False, retention_ms=week_ms)  # the topic keeps less than a week
    never = wire.Kept(None, whole=True, retention_ms=week_ms)
    skew_ms = 10 * MINUTE_MS
    assert seam_ms({"0": young, "1": never}, [0, 1], now_ms, None) == now_ms - DAY_MS - skew_ms
    assert seam_ms({"0": young, "1": old}, [0, 1], now_ms, None) == now_ms - week_ms + HOUR_MS
    assert seam_ms({"0": cut, "1": old}, [0, 1], now_ms, None) == now_ms - 3 * DAY_MS + skew_ms
    assert seam_ms({"0": never}, [0], now_ms, None) == now_ms
    assert seam_ms({"0": old}, [0, 1], now_ms, None) is None  # a scheduler of an earlier version does not say
    assert seam_ms({"0": old}, [0], now_ms, now_ms - week_ms + 1) == now_ms - week_ms + 1
    with pytest.raises(InvalidDefinition, match="too old"):
        seam_ms({"0": old}, [0], now_ms, now_ms - week_ms - 1)
