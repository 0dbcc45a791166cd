"""`ExecutionHistory` over the table that the sink fills."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

import orjson
import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from noontide.adapters.postgres.errors import HistoryError
from noontide.adapters.postgres.table import SCHEMA, TABLE
from noontide.core.errors import InvalidDefinition
from noontide.core.instants import format_instant
from noontide.ports.history import Execution, ExecutionFilter, ExecutionPage
from noontide.records.history import columns

CONNECTIONS_MAX: Final = 8
STATEMENT_TIMEOUT_MS: Final = 10_000
PAGE_MAX: Final = 1_000
CONNECT_TIMEOUT_S: Final = 5.0


class _Mark(NamedTuple):
    """The place behind which a page begins."""

    due_ms: int
    run_id: str


class PostgresHistory:
    """Pages by key, so that a page costs the same however deep it is. An async context that opens and closes a pool."""

    def __init__(
        self, url: str, *, connections_max: int = CONNECTIONS_MAX, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
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

    async def page(self, wanted: ExecutionFilter, *, limit: int, cursor: str | None = None) -> ExecutionPage:
        """See `ExecutionHistory.page`; `limit` is cut to 1 .. 1,000."""
        size = max(1, min(limit, PAGE_MAX))
        conditions = [*_conditions(wanted), *_behind(cursor)]
        where = sql.SQL(" AND ").join(condition for condition, _ in conditions) if conditions else sql.SQL("true")
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY due DESC, run_id DESC LIMIT {}").format(
            self._selection, _TABLE, where, sql.Literal(size + 1)
        )
        rows = await self._rows(query, [value for _, values in conditions for value in values])
        items = tuple(_execution(row) for row in rows[:size])
        more = len(rows) > size
        return ExecutionPage(items=items, next_cursor=_cursor(rows[size - 1]) if more else None)

    async def find(self, run_id: str, *, tenant: str | None = None) -> Execution | None:
        """See `ExecutionHistory.find`."""
        query = sql.SQL("SELECT {} FROM {} WHERE run_id = %s AND (%s::text IS NULL OR tenant = %s) LIMIT 1").format(
            self._selection, _TABLE
        )
        rows = await self._rows(query, [run_id, tenant, tenant])
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


_TABLE: Final = sql.Identifier(SCHEMA, TABLE)
_Condition = tuple[sql.SQL, tuple[object, ...]]


def _conditions(wanted: ExecutionFilter) -> list[_Condition]:
    found: list[_Condition] = []
    if wanted.tenant is not None:
        found.append((sql.SQL("tenant = %s"), (wanted.tenant,)))
    if wanted.job_id is not None:
        found.append((sql.SQL("job_id = %s"), (wanted.job_id,)))
    if wanted.states:
        found.append((sql.SQL("state = ANY(%s)"), (list(wanted.states),)))
        if "succeeded" not in wanted.states:
            found.append((sql.SQL("state <> 'succeeded'"), ()))  # names the partial index
    if wanted.since_ms is not None:
        found.append((sql.SQL("due >= %s"), (_instant(wanted.since_ms),)))
    if wanted.until_ms is not None:
        found.append((sql.SQL("due < %s"), (_instant(wanted.until_ms),)))
    return found


def _behind(cursor: str | None) -> list[_Condition]:
    """The second condition says nothing new, but partitions are chosen by it."""
    if cursor is None:
        return []
    mark = _mark(cursor)
    due = _instant(mark.due_ms)
    return [(sql.SQL("(due, run_id) < (%s, %s)"), (due, mark.run_id)), (sql.SQL("due <= %s"), (due,))]


def _cursor(row: dict[str, object]) -> str:
    due = row["due"]
    assert isinstance(due, datetime)
    raw = orjson.dumps([round(due.timestamp() * 1000), row["run_id"]])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _mark(cursor: str) -> _Mark:
    try:
        due_ms, run_id = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        mark = _Mark(int(due_ms), str(run_id))
        _instant(mark.due_ms)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidDefinition.of("/cursor", "is not a cursor of this list") from error
    return mark


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _execution(row: dict[str, object]) -> Execution:
    return {name: _spelt(value) for name, value in row.items() if value is not None}


def _spelt(value: object) -> object:
    """As on the topic: instants as text with milliseconds, documents as JSON in a string."""
    if isinstance(value, datetime):
        return format_instant(round(value.timestamp() * 1000))
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else value
