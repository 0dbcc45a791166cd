"""Columns and sink are made from the topic's schema; the shipped files are what the code makes now."""

from __future__ import annotations

import json

from noontide.apps.sinks import sink_files
from noontide.records.history import columns, connector_config
from noontide.records.topics import load_catalogue, topics_folder


def test_every_field_of_an_execution_is_a_column() -> None:
    properties = load_catalogue()["executions"].value["properties"]
    assert isinstance(properties, dict)
    assert [column.name for column in columns()] == list(properties)
    types = {column.name: column.sql_type for column in columns()}
    instants = {name for name, kind in types.items() if kind == "timestamptz"}
    assert instants == {"due", "start_after", "started_at", "claimed_at", "ended_at", "until"}
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
