"""`ExecutionHistory` over the table that the sink fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, LiteralString, Self

import orjson
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from noontide.adapters.postgres.errors import HistoryError
from noontide.adapters.postgres.table import SCHEMA, TABLE
from noontide.core.instants import format_instant, ms_of
from noontide.ports.history import Execution, ExecutionFilter, Place, place_of
from noontide.records.history import columns

CONNECTIONS_MAX: Final = 8
STATEMENT_TIMEOUT_MS: Final = 10_000
PAGE_MAX: Final = 1_001
"""One more than a page of the API has, which tells whether there are more."""
CONNECT_TIMEOUT_S: Final = 5.0
_Condition = tuple[sql.SQL, tuple[object, ...]]


class PostgresHistory:
    """Pages by key, so that a page costs the same however deep it is. An async context that opens and closes a pool.

    Raises HistoryError for an address that is none.
    """

    def __init__(
        self, url: str, *, connections_max: int = CONNECTIONS_MAX, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
        _check_address(url)
        self._pool = AsyncConnectionPool(
            url,
            min_size=0,
            max_size=connections_max,
            open=False,
            timeout=connect_timeout_s,
            kwargs={
                "row_factory": dict_row,
                "autocommit": True,
                "options": f"-c timezone=UTC -c statement_timeout={STATEMENT_TIMEOUT_MS}",
            },
        )
        self._columns = tuple(column.name for column in columns())

    async def open(self) -> None:
        """Make the pool ready; connections are opened when they are needed."""
        await self._pool.open()

    async def close(self) -> None:
        """End all connections."""
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def page(self, wanted: ExecutionFilter, *, limit: int, after: Place | None = None) -> Sequence[Execution]:
        """See `ExecutionHistory.page`; `limit` is cut to 1 .. 1,001."""
        size = max(1, min(limit, PAGE_MAX))
        if wanted.job_id is None and len(wanted.states) > 1:
            return await self._page_of_states(wanted, size, after)
        rows = await self._early(wanted, size, after) if wanted.ended_before_ms is not None else []
        known = [*_conditions(wanted), *_since(wanted.since_ms), *_ended(wanted.ended_before_ms), *_behind(after)]
        rows += await self._page(known, size - len(rows)) if len(rows) < size else []
        if wanted.since_ms is not None and len(rows) < size:
            reaching = [*_conditions(wanted), *_reaching(wanted.since_ms), *_behind(after)]
            rows += await self._page(reaching, size - len(rows))
        return [_execution(row) for row in rows]

    async def _page_of_states(self, wanted: ExecutionFilter, size: int, after: Place | None) -> Sequence[Execution]:
        """Each state by itself has an index in the order of the places: what matches nothing is not read through."""
        found: list[Execution] = []
        for state in wanted.states:
            found += await self.page(replace(wanted, states=(state,)), limit=size, after=after)
        return sorted(found, key=place_of, reverse=True)[:size]

    async def _early(self, wanted: ExecutionFilter, size: int, after: Place | None) -> list[dict[str, object]]:
        """Runs that ended before a time that is not before their own: made by hand for a time to come."""
        before = _instant(wanted.ended_before_ms or 0)
        early: _Condition = (sql.SQL("ended_at < due AND ended_at < %s AND due >= %s"), (before, before))
        return await self._page([*_conditions(wanted), *_since(wanted.since_ms), early, *_behind(after)], size)

    async def _page(self, conditions: Sequence[_Condition], size: int) -> list[dict[str, object]]:
        where = sql.SQL(" AND ").join(condition for condition, _ in conditions) if conditions else sql.SQL("true")
        order = sql.SQL('ORDER BY due DESC, run_id COLLATE "C" DESC LIMIT {}').format(sql.Literal(size))
        query = sql.SQL("SELECT {} FROM {} WHERE {} {}").format(self._selection, _TABLE, where, order)
        return await self._rows(query, [value for _, values in conditions for value in values])

    async def find(self, run_id: str, *, tenants: tuple[str, ...] | None = None) -> Execution | None:
        """See `ExecutionHistory.find`."""
        query = sql.SQL("SELECT {} FROM {} WHERE run_id = %s AND (%s::text[] IS NULL OR tenant = ANY(%s)) LIMIT 1")
        named = None if tenants is None else list(tenants)
        rows = await self._rows(query.format(self._selection, _TABLE), [run_id, named, named])
        return _execution(rows[0]) if rows else None

    @property
    def _selection(self) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, self._columns))

    async def _rows(self, query: sql.Composed, values: Sequence[object]) -> list[dict[str, object]]:
        try:
            async with self._pool.connection() as connection:
                return await (await connection.execute(query, values)).fetchall()  # type: ignore[return-value] # dict_row
        except (psycopg.Error, PoolTimeout) as error:
            raise HistoryError(f"history: {' '.join(str(error).split())[:300]}") from error


def _check_address(url: str) -> None:
    """Now, since what the driver says of it later has it in full, and it may hold a password."""
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        raise HistoryError("history: the address must be like postgresql://user:password@host:5432/name") from None


_TABLE: Final = sql.Identifier(SCHEMA, TABLE)


def _conditions(wanted: ExecutionFilter) -> list[_Condition]:
    found: list[_Condition] = []
    if wanted.tenants is not None:
        found.append(_one_of("tenant", wanted.tenants))
    if wanted.job_id is not None:
        found.append((sql.SQL("job_id = %s"), (wanted.job_id,)))
    if wanted.states:
        found.append(_one_of("state", wanted.states))
        if "succeeded" not in wanted.states:
            found.append((sql.SQL("state <> 'succeeded'"), ()))  # names the partial index
    if wanted.until_ms is not None:
        found.append((sql.SQL("due < %s"), (_instant(wanted.until_ms),)))
    return found


def _one_of(column: LiteralString, values: tuple[str, ...]) -> _Condition:
    """One value is compared by itself: rows that an index finds so are in its order."""
    if len(values) == 1:
        return sql.SQL(column + " = %s"), values
    return sql.SQL(column + " = ANY(%s)"), (list(values),)


def _ended(before_ms: int | None) -> list[_Condition]:
    """The second condition is for partitions and indexes; see `_early` for what it leaves out."""
    if before_ms is None:
        return []
    before = _instant(before_ms)
    return [(sql.SQL("coalesce(ended_at, due) < %s"), (before,)), (sql.SQL("due < %s"), (before,))]


def _since(since_ms: int | None) -> list[_Condition]:
    return [] if since_ms is None else [(sql.SQL("due >= %s"), (_instant(since_ms),))]


def _reaching(since_ms: int) -> list[_Condition]:
    """Of decisions over many occurrences that begin before an instant and reach it."""
    since = _instant(since_ms)
    return [(sql.SQL("due < %s"), (since,)), (sql.SQL("until IS NOT NULL AND until >= %s"), (since,))]


def _behind(after: Place | None) -> list[_Condition]:
    """The second condition says nothing new, but partitions are chosen by it."""
    if after is None:
        return []
    due = _instant(after.due_ms)
    return [
        (sql.SQL('(due, run_id COLLATE "C") < (%s, %s)'), (due, after.run_id)),
        (sql.SQL("due <= %s"), (due,)),
    ]


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _execution(row: dict[str, object]) -> Execution:
    return {name: _spelt(value) for name, value in row.items() if value is not None}


def _spelt(value: object) -> object:
    """As on the topic: instants as text with milliseconds, documents as JSON in a string."""
    if isinstance(value, datetime):
        return format_instant(ms_of(value))
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else value
