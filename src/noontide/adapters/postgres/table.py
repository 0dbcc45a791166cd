"""The table of executions: one partition per day of `due`, so that old days are dropped and not deleted.

noontide.executions                     partitioned by range (due), primary key (run_id, due)
noontide.executions_20260302            one day, UTC
noontide.executions_rest                days without a partition: what is dated far back or ahead
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from noontide.adapters.postgres.errors import HistoryError
from noontide.records.history import KEY, columns

SCHEMA: Final = "noontide"
TABLE: Final = "executions"
REST: Final = "executions_rest"
_LOCK: Final = 0x6E6F6F6E  # advisory: two that keep the same table take turns
_INDEXES: Final[dict[str, LiteralString]] = {
    "executions_of_job": '(job_id, due DESC, run_id COLLATE "C" DESC)',
    "executions_of_range": "(job_id, until) WHERE until IS NOT NULL",
    "executions_of_state": '(state, due DESC, run_id COLLATE "C" DESC)',
    "executions_ended_early": '(due DESC, run_id COLLATE "C" DESC) WHERE ended_at < due',
    "executions_by_due": "(tenant, due DESC, run_id DESC)",
    "executions_by_trouble": "(tenant, state, due DESC, run_id DESC) WHERE state <> 'succeeded'",
}
_FORMER_INDEXES: Final[tuple[LiteralString, ...]] = ("executions_by_job",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """What is there. rows: PostgreSQL's estimate; rest_rows: counted; first, last: days that have partitions."""

    rows: int
    rest_rows: int
    bytes: int
    partitions: int
    first: date | None
    last: date | None
    missing_columns: tuple[str, ...]
    newest_end: str | None


@contextmanager
def history_database(url: str) -> Iterator[psycopg.Connection]:
    """A connection in UTC that commits at the end; errors become one line. Raises HistoryError."""
    try:
        with psycopg.connect(url, connect_timeout=10, options="-c timezone=UTC") as connection:
            yield connection
    except psycopg.Error as error:
        raise HistoryError(f"history: {' '.join(str(error).split())[:300]}") from error


def create_table(connection: psycopg.Connection) -> None:
    """Create what is missing: schema, table, columns of a newer version, indexes. Changes nothing that is there."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    body = sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            sql.Identifier(column.name), _raw(column.sql_type), _raw(" NOT NULL" if column.required else "")
        )
        for column in columns()
    )
    key = sql.SQL(", ").join(map(sql.Identifier, KEY))
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({})) PARTITION BY RANGE (due)").format(
            _TABLE, body, key
        )
    )
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} DEFAULT").format(sql.Identifier(SCHEMA, REST), _TABLE)
    )
    for column in columns():
        if not column.required:
            connection.execute(
                sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}").format(
                    _TABLE, sql.Identifier(column.name), _raw(column.sql_type)
                )
            )
    for name, what in _INDEXES.items():
        connection.execute(
            sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} {}").format(sql.Identifier(name), _TABLE, sql.SQL(what))
        )
    for name in _FORMER_INDEXES:
        connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(sql.Identifier(SCHEMA, name)))


def upsert_rows(connection: psycopg.Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """Write executions as the sink does: by key, the last one wins. Columns that a row does not have are null."""
    names = [column.name for column in columns()]
    others = sql.SQL(", ").join(
        sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names if name not in KEY
    )
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}").format(
        _TABLE,
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.SQL(", ").join(sql.Placeholder(name) for name in names),
        sql.SQL(", ").join(map(sql.Identifier, KEY)),
        others,
    )
    with connection.cursor() as cursor:
        cursor.executemany(statement, [{name: row.get(name) for name in names} for row in rows])


def add_days(connection: psycopg.Connection, first: date, days: int) -> list[date]:
    """Give days their partitions, those that have none; rows of such a day move over from the rest."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    present = set(partition_days(connection))
    wanted = [day for day in (first + timedelta(days=number) for number in range(days)) if day not in present]
    for day in wanted:
        _add_day(connection, day)
    return wanted


def _add_day(connection: psycopg.Connection, day: date) -> None:
    name, rest = sql.Identifier(SCHEMA, f"{TABLE}_{day:%Y%m%d}"), sql.Identifier(SCHEMA, REST)
    since, until = sql.Literal(f"{day}T00:00:00Z"), sql.Literal(f"{day + timedelta(days=1)}T00:00:00Z")
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(rest))
    connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS)").format(name, _TABLE))
    connection.execute(
        sql.SQL(
            "WITH moved AS (DELETE FROM {} WHERE due >= {} AND due < {} RETURNING *) INSERT INTO {} SELECT * FROM moved"
        ).format(rest, since, until, name)
    )
    connection.execute(
        sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(_TABLE, name, since, until)
    )


def drop_days(connection: psycopg.Connection, before: date) -> tuple[list[date], int]:
    """Forget everything that was due before a day: returns the days dropped, and the rows deleted from the rest."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    old = [day for day in partition_days(connection) if day < before]
    for day in old:
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, f"{TABLE}_{day:%Y%m%d}")))
    deleted = connection.execute(
        sql.SQL("DELETE FROM {} WHERE due < {}").format(
            sql.Identifier(SCHEMA, REST), sql.Literal(f"{before}T00:00:00Z")
        )
    )
    return old, deleted.rowcount


def partition_days(connection: psycopg.Connection) -> list[date]:
    """The days that have partitions, in order."""
    found = connection.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = to_regclass(%s) ORDER BY 1",
        (f"{SCHEMA}.{TABLE}",),
    ).fetchall()
    names = [str(name).removeprefix(f"{TABLE}_") for (name,) in found]
    return [date(int(name[:4]), int(name[4:6]), int(name[6:])) for name in names if name.isdecimal()]


def table_status(connection: psycopg.Connection) -> TableStatus | None:
    """What is there; None when the table is missing."""
    row = connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.{TABLE}",)).fetchone()
    if row is None or row[0] is None:
        return None
    days = partition_days(connection)
    sums = connection.execute(
        "SELECT coalesce(sum(greatest(c.reltuples, s.n_live_tup))::bigint, 0), "
        "coalesce(sum(pg_total_relation_size(c.oid))::bigint, 0) "
        "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE i.inhparent = to_regclass(%s)",
        (f"{SCHEMA}.{TABLE}",),
    ).fetchone()
    assert sums is not None
    present = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
        (SCHEMA, TABLE),
    ).fetchall()
    rest = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(SCHEMA, REST))).fetchone()
    newest = connection.execute(
        sql.SQL("SELECT max(ended_at) FROM {} WHERE due >= now() - interval '2 days'").format(_TABLE)
    ).fetchone()
    known = {str(name) for (name,) in present}
    return TableStatus(
        rows=int(sums[0]),
        rest_rows=0 if rest is None else int(rest[0]),
        bytes=int(sums[1]),
        partitions=len(days),
        first=days[0] if days else None,
        last=days[-1] if days else None,
        missing_columns=tuple(column.name for column in columns() if column.name not in known),
        newest_end=None if newest is None or newest[0] is None else newest[0].isoformat(),
    )


def _raw(text: str) -> sql.SQL:
    return sql.SQL(text)  # types come from records.history, not from outside


_TABLE: Final = sql.Identifier(SCHEMA, TABLE)
