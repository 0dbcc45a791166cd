"""The history outside of Kafka: the columns that records of `executions` become, made from the topic's schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson

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
