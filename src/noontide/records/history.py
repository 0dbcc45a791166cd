"""The history outside of Kafka: the columns that records of `executions` become, made from the topic's schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson

from noontide.core.errors import InvalidDefinition
from noontide.core.instants import parse_instant
from noontide.records.topics import load_catalogue

KEY: Final = ("run_id", "due")
"""What a row is found by. `due` never changes for a run id; a table that is cut by date needs it in its key."""

CONNECTOR_NAME: Final = "noontide-executions-postgres"
_TYPES: Final = {  # kind -> type and name in Kafka Connect, type in SQL
    "instant": ("string", "io.debezium.time.ZonedTimestamp", "timestamptz"),
    "document": ("string", "io.debezium.data.Json", "jsonb"),
    "number": ("int64", None, "bigint"),
    "text": ("string", None, "text"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A field of an execution as a column; `connect_name` None where Connect's own type says it all."""

    name: str
    sql_type: str
    connect_type: str
    connect_name: str | None
    required: bool


def columns() -> tuple[Column, ...]:
    """All columns, in the order of the topic's schema."""
    schema = load_catalogue()["executions"].value
    required = cast("list[str]", schema["required"])
    fields = cast("Mapping[str, Mapping[str, object]]", schema["properties"])
    return tuple(_column(name, field, required=name in required) for name, field in fields.items())


def _column(name: str, field: Mapping[str, object], *, required: bool) -> Column:
    connect_type, connect_name, sql_type = _TYPES[_kind(field)]
    return Column(name=name, sql_type=sql_type, connect_type=connect_type, connect_name=connect_name, required=required)


def _kind(field: Mapping[str, object]) -> str:
    if field.get("type") == "integer":
        return "number"
    if field.get("contentMediaType") == "application/json":
        return "document"
    return "instant" if str(field.get("pattern", "")).endswith("Z$") else "text"


def row_of(value: bytes | None) -> dict[str, object] | str:
    """The row that a record becomes; or, as text, why the database would not take it."""
    try:
        found = orjson.loads(value or b"")
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    if not isinstance(found, dict):
        return "not an object"
    for column in columns():
        content = found.get(column.name)
        if content is None:
            if column.required:
                return f"{column.name} is missing"
            continue
        problem = _problem(column, content)
        if problem is not None:
            return f"{column.name} {problem}"
    return found


def _problem(column: Column, content: object) -> str | None:
    """Why a column does not take it."""
    if column.sql_type == "bigint":
        is_number = isinstance(content, int) and not isinstance(content, bool) and -(2**63) <= content < 2**63
        return None if is_number else "is no whole number of 64 bits"
    if not isinstance(content, str) or "\0" in content:
        return "is no text without NUL"
    try:
        if column.sql_type == "timestamptz":
            parse_instant(content, zone=None, pointer="")
        elif column.sql_type == "jsonb" and "\\u0000" in orjson.dumps(orjson.loads(content)).decode():
            return "has a NUL"
    except (InvalidDefinition, orjson.JSONDecodeError):
        return f"is no {'instant' if column.sql_type == 'timestamptz' else 'JSON'} that there is: {content[:60]}"
    return None


def connector_config(prefix: str) -> dict[str, str]:
    """The Kafka Connect configuration that copies `executions` to PostgreSQL; docs/how-to/history.md gives reasons.

    Address, user and password come from the environment of the Connect worker.
    """
    fields = [_field(column) for column in columns()]
    schema = {"type": "struct", "name": "noontide.Execution", "optional": True, "fields": fields}
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": f"{prefix}executions",
        "connection.url": "${env:NOONTIDE_HISTORY_JDBC_URL}",
        "connection.username": "${env:NOONTIDE_HISTORY_USER}",
        "connection.password": "${env:NOONTIDE_HISTORY_PASSWORD}",
        "collection.name.format": "noontide.executions",
        "schema.evolution": "none",
        "insert.mode": "upsert",
        "delete.enabled": "false",
        "primary.key.mode": "record_value",
        "primary.key.fields": ",".join(KEY),
        "use.time.zone": "UTC",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": orjson.dumps(schema).decode(),
        "consumer.override.isolation.level": "read_committed",
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.max.poll.records": "2000",
        "batch.size": "2000",
        "use.reduction.buffer": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{prefix}sink-errors",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def _field(column: Column) -> dict[str, object]:
    named = {} if column.connect_name is None else {"name": column.connect_name}
    return {"field": column.name, "type": column.connect_type, "optional": not column.required, **named}
