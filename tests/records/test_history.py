"""Columns and sink are made from the topic's schema; the shipped files are what the code makes now."""

from __future__ import annotations

import json

import orjson
import pytest

from noontide.apps.sinks import sink_files
from noontide.core.dst import LAST_MS
from noontide.core.instants import FIRST_MS, format_instant
from noontide.records.history import columns, connector_config, row_of
from noontide.records.topics import load_catalogue, topics_folder


def test_every_field_of_an_execution_is_a_column() -> None:
    properties = load_catalogue()["executions"].value["properties"]
    assert isinstance(properties, dict)
    assert [column.name for column in columns()] == list(properties)
    types = {column.name: column.sql_type for column in columns()}
    instants = {name for name, kind in types.items() if kind == "timestamptz"}
    assert instants == {"due", "start_after", "queued_at", "started_at", "claimed_at", "ended_at", "until"}
    assert types["attempts"] == "jsonb"
    assert types["late_ms"] == types["token"] == "bigint"
    assert {column.name for column in columns() if column.required} == {"run_id", "job_id", "tenant", "due", "state"}


def test_the_sink_reads_committed_records_and_sets_bad_ones_aside() -> None:
    config = connector_config("x.")
    assert config["topics"] == "x.executions"
    assert config["consumer.override.isolation.level"] == "read_committed"
    assert config["errors.deadletterqueue.topic.name"] == "x.sink-errors"
    schema = json.loads(config["value.converter.schema.content"])
    assert {field["field"]: field["optional"] for field in schema["fields"]} == {
        column.name: not column.required for column in columns()
    }


def test_the_shipped_files_are_current() -> None:
    folder = topics_folder().joinpath("sinks")
    assert {entry.name: entry.read_text("utf-8") for entry in folder.iterdir()} == sink_files()


GOOD = {"run_id": "a:1", "job_id": "a", "tenant": "t", "due": "2026-03-02T01:30:00.000Z", "state": "dead"}


@pytest.mark.parametrize(
    "fields, reason",
    [
        ({"due": None}, "due is missing"),
        ({"due": "2026-02-30T00:00:00.000Z"}, "due is no instant"),
        ({"ended_at": "soon"}, "ended_at is no instant"),
        ({"ended_at": 17}, "ended_at is no text"),
        ({"reason": "a\0b"}, "reason is no text without NUL"),
        ({"attempts": "{"}, "attempts is no JSON"),
        ({"attempts": '["\\u0000"]'}, "attempts has a NUL"),
        ({"attempt": "one"}, "attempt is no whole number"),
        ({"token": 2**63}, "token is no whole number"),
        ({"token": True}, "token is no whole number"),
    ],
)
def test_what_the_database_would_refuse(fields: dict[str, object], reason: str) -> None:
    found = row_of(orjson.dumps({**GOOD, **fields}))
    assert isinstance(found, str)
    assert found.startswith(reason)


@pytest.mark.parametrize("instant_ms", [FIRST_MS, 0, LAST_MS])
def test_every_instant_of_a_job_is_a_row(instant_ms: int) -> None:
    whole = {**GOOD, "due": format_instant(instant_ms), "attempts": "[]", "late_ms": -5, "reason": None}
    assert row_of(orjson.dumps(whole)) == whole
    assert row_of(b"[]") == "not an object"
    assert str(row_of(b"{")).startswith("not JSON")
