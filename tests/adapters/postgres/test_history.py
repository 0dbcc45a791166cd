"""The table of executions on a real PostgreSQL: days, what falls between them, pruning, pages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest
from tests.postgres_scene import postgres

from noontide.adapters.postgres.errors import HistoryError
from noontide.adapters.postgres.history import PostgresHistory
from noontide.adapters.postgres.server import EmbeddedPostgres
from noontide.adapters.postgres.table import (
    add_days,
    create_table,
    drop_days,
    history_database,
    partition_days,
    table_status,
)
from noontide.ports.history import ExecutionFilter, Place, place_of

MONDAY = date(2026, 3, 2)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def url(server: EmbeddedPostgres) -> str:
    """Of the database, with an empty table that has three days from Monday."""
    with history_database(server.url) as connection:
        connection.execute("DROP SCHEMA IF EXISTS noontide CASCADE")
        create_table(connection)
        add_days(connection, MONDAY, 3)
    return server.url


def add(url: str, run_id: str, due: str, *, job: str = "a", tenant: str = "t", state: str = "succeeded") -> None:
    with history_database(url) as connection:
        connection.execute(
            "INSERT INTO noontide.executions (run_id, job_id, tenant, due, state, attempts) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            (run_id, job, tenant, due, state, '[{"attempt": 1}]'),
        )


def places(url: str) -> dict[str, str]:
    """Which partition each run is in."""
    with history_database(url) as connection:
        rows = connection.execute("SELECT run_id, tableoid::regclass::text FROM noontide.executions").fetchall()
    return {str(run): str(table).removeprefix("noontide.") for run, table in rows}


def test_a_row_is_in_its_day_and_strangers_are_in_the_rest(url: str) -> None:
    add(url, "first", "2026-03-02T00:00:00.000Z")
    add(url, "last", "2026-03-02T23:59:59.999Z")
    add(url, "next", "2026-03-03T00:00:00.000Z")
    add(url, "old", "2019-01-01T00:00:00.000Z")
    day = "executions_20260302"
    assert places(url) == {"first": day, "last": day, "next": "executions_20260303", "old": "executions_rest"}


def test_a_day_that_is_added_late_takes_its_rows_over(url: str) -> None:
    add(url, "late", "2026-03-09T12:00:00.000Z")
    add(url, "other", "2026-03-10T00:00:00.000Z")
    with history_database(url) as connection:
        assert add_days(connection, date(2026, 3, 9), 1) == [date(2026, 3, 9)]
        assert add_days(connection, date(2026, 3, 9), 1) == []
    assert places(url) == {"late": "executions_20260309", "other": "executions_rest"}


def test_pruning_drops_whole_days_and_old_rows_of_the_rest(url: str) -> None:
    for run, due in (("mon", "2026-03-02T12:00:00Z"), ("tue", "2026-03-03T00:00:00Z"), ("old", "2019-01-01T00:00:00Z")):
        add(url, run, due)
    with history_database(url) as connection:
        assert drop_days(connection, date(2026, 3, 3)) == ([MONDAY], 1)
        assert partition_days(connection) == [date(2026, 3, 3), date(2026, 3, 4)]
    assert places(url) == {"tue": "executions_20260303"}


def test_an_older_table_gets_the_columns_of_a_newer_version(url: str) -> None:
    add(url, "before", "2026-03-02T00:00:00Z")
    with history_database(url) as connection:
        connection.execute("ALTER TABLE noontide.executions DROP COLUMN tzdata")
        status = table_status(connection)
        assert status is not None
        assert status.missing_columns == ("tzdata",)
        create_table(connection)
        after = table_status(connection)
        assert after is not None
        assert (after.missing_columns, after.partitions, after.rest_rows) == ((), 3, 0)
    assert places(url) == {"before": "executions_20260302"}


def test_status_says_when_there_is_no_table(server: EmbeddedPostgres) -> None:
    with history_database(server.url) as connection:
        connection.execute("DROP SCHEMA IF EXISTS noontide CASCADE")
        assert table_status(connection) is None


async def test_pages_meet_without_gap_or_overlap_across_days(url: str) -> None:
    dues = [datetime(2026, 3, 2 + number // 4, number % 4, tzinfo=UTC).isoformat() for number in range(10)]
    for number, due in enumerate(dues):
        for job in ("a", "b"):
            add(url, f"{job}{number}", due, job=job)
    seen: list[str] = []
    last: Place | None = None
    async with PostgresHistory(url) as history:
        while page := await history.page(ExecutionFilter(tenants=("t",)), limit=3, after=last):
            seen += [str(item["run_id"]) for item in page]
            last = place_of(page[-1])
    assert seen == [f"{job}{number}" for number in reversed(range(10)) for job in ("b", "a")]


async def test_runs_that_ended_before_an_instant_in_whatever_state_and_order_they_were_due(url: str) -> None:
    noon = datetime(2026, 3, 3, 12, tzinfo=UTC)
    chance = random.Random(5)
    wanted: list[tuple[datetime, str]] = []
    for number in range(60):
        due = noon + timedelta(minutes=chance.randrange(-600, 600))  # some are due later than they ended
        ended = noon + timedelta(minutes=chance.randrange(-600, 600))
        state = chance.choice(("succeeded", "dead", "cancelled", "skipped"))
        run_id = f"r{number}"
        add(url, run_id, due.isoformat(), state=state, tenant="tu"[number % 2])
        if number % 5:
            with history_database(url) as connection:
                statement = "UPDATE noontide.executions SET ended_at = %s WHERE run_id = %s"
                connection.execute(statement, (ended, run_id))
        if state != "skipped" and (ended if number % 5 else due) < noon:
            wanted.append((due, run_id))
    closed = ("cancelled", "dead", "succeeded")
    asked = ExecutionFilter(states=closed, ended_before_ms=round(noon.timestamp() * 1000))
    ids = [run_id for _, run_id in sorted(wanted, reverse=True)]
    async with PostgresHistory(url) as history:

        async def pages(wanted: ExecutionFilter) -> list[str]:
            found: list[str] = []
            after: Place | None = None
            while page := await history.page(wanted, limit=4, after=after):
                found += [str(each["run_id"]) for each in page]
                after = place_of(page[-1])
            return found

        assert await pages(asked) == ids
        for tenants, odd in ((("t",), 0), (("u",), 1)):
            assert await pages(replace(asked, tenants=tenants)) == [each for each in ids if int(each[1:]) % 2 == odd]
        assert await pages(replace(asked, tenants=("t", "u"), job_id="a")) == ids


async def test_filters(url: str) -> None:
    add(url, "one", "2026-03-02T10:00:00.000Z")
    add(url, "two", "2026-03-02T11:00:00.000Z", state="dead")
    add(url, "three", "2026-03-02T11:00:00.000Z", job="b", tenant="u", state="skipped")
    eleven = round(datetime(2026, 3, 2, 11, tzinfo=UTC).timestamp() * 1000)

    async with PostgresHistory(url) as history:

        async def found(wanted: ExecutionFilter) -> list[object]:
            return [item["run_id"] for item in await history.page(wanted, limit=10)]

        assert await found(ExecutionFilter()) == ["two", "three", "one"]
        assert await found(ExecutionFilter(tenants=("t",))) == ["two", "one"]
        assert await found(ExecutionFilter(job_id="b")) == ["three"]
        assert await found(ExecutionFilter(states=("dead", "skipped"))) == ["two", "three"]
        assert await found(ExecutionFilter(states=("succeeded",))) == ["one"]
        assert await found(ExecutionFilter(since_ms=eleven)) == ["two", "three"]
        assert await found(ExecutionFilter(until_ms=eleven)) == ["one"]
        assert await history.find("two", tenants=("u",)) is None
        assert await history.find("two", tenants=("t",)) == {
            "run_id": "two",
            "job_id": "a",
            "tenant": "t",
            "due": "2026-03-02T11:00:00.000Z",
            "state": "dead",
            "attempts": '[{"attempt":1}]',
        }


async def test_run_ids_of_one_instant_are_in_the_order_of_their_bytes(url: str) -> None:
    """So that pages agree with those of owners."""
    ids = ["a:10", "a:1~2", "a:2", "A:3", "a:1", "a_1:1", "a-1:1", "Z:1"]
    for run_id in ids:
        add(url, run_id, "2026-03-02T10:00:00Z")
    expected = sorted(ids, reverse=True)
    async with PostgresHistory(url) as history:
        found = await history.page(ExecutionFilter(job_id="a"), limit=10)
        assert [each["run_id"] for each in found] == expected
        for number, each in enumerate(found):
            behind = await history.page(ExecutionFilter(job_id="a"), limit=10, after=place_of(each))
            assert [one["run_id"] for one in behind] == expected[number + 1 :]


async def test_decisions_that_reach_into_a_range_come_behind_it(url: str) -> None:
    add(url, "in", "2026-03-03T10:00:00Z")
    add(url, "before", "2026-03-03T09:59:59.999Z")
    for run_id, until in (("reaches", "2026-03-03T10:00:00Z"), ("ends", "2026-03-03T09:59:59Z")):
        add(url, run_id, "2026-03-02T10:00:00Z", state="coalesced")
        with history_database(url) as connection:
            connection.execute("UPDATE noontide.executions SET until = %s WHERE run_id = %s", (until, run_id))
    ten = round(datetime(2026, 3, 3, 10, tzinfo=UTC).timestamp() * 1000)
    async with PostgresHistory(url) as history:
        found = await history.page(ExecutionFilter(job_id="a", since_ms=ten, until_ms=ten + 1), limit=10)
        assert [each["run_id"] for each in found] == ["in", "reaches"]
        assert len(await history.page(ExecutionFilter(job_id="a", since_ms=ten), limit=1)) == 1


def test_an_address_that_is_none_is_refused_and_not_repeated() -> None:
    with pytest.raises(HistoryError, match="must be like") as refused:
        PostgresHistory("postgresql//ada:s3cret@host/name")
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_a_database_that_is_away_is_an_error_in_one_line() -> None:
    async with PostgresHistory("postgresql://nobody@127.0.0.1:1/none", connect_timeout_s=0.3) as history:
        with pytest.raises(HistoryError, match="history: "):
            await history.find("a")


def test_what_is_committed_survives_a_crash_of_the_server(url: str, server: EmbeddedPostgres) -> None:
    add(url, "kept", "2026-03-02T00:00:00Z")
    server.kill()
    with pytest.raises(HistoryError), history_database(url) as connection:
        connection.execute("SELECT 1")
    server.start()
    assert places(server.url) == {"kept": "executions_20260302"}
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
