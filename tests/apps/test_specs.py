"""The specs are current, hang together, and a schema that breaks its readers is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import orjson
import pytest
import yaml

from noontide.apps.specs import asyncapi, breaks, schema_document, spec_files
from noontide.records.requests import Define, decode_request
from noontide.records.topics import load_catalogue

SPECS = Path(__file__).parents[2] / "specs"
RELEASED = SPECS / "released"
"""A folder per release with its schemas; the first release makes the first one."""


def references(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for name, value in document.items():
            if name == "$ref":
                yield str(value)
            yield from references(value)
    if isinstance(document, list):
        for item in document:
            yield from references(item)


def test_the_files_are_current() -> None:
    assert {name: (SPECS / name).read_text("utf-8") for name in spec_files()} == spec_files()


def test_every_reference_leads_somewhere() -> None:
    document = asyncapi(load_catalogue())
    for reference in references(document):
        if reference.startswith("./"):
            assert (SPECS / reference).exists(), reference
            continue
        found: object = document
        for part in reference.removeprefix("#/").split("/"):
            assert isinstance(found, dict)
            found = found[part]


def test_every_topic_is_a_channel_with_its_parameters() -> None:
    document = yaml.safe_load((SPECS / "asyncapi.yaml").read_text("utf-8"))
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert {"noontide.requests.{domain}", "noontide.executions", "noontide.runs.{lane}"} <= addresses
    assert len(addresses) == len(list(load_catalogue()))
    assert document["operations"]["send_requests"]["channel"] == {"$ref": "#/channels/requests"}


OLD: dict[str, object] = {
    "required": ["a"],
    "properties": {"a": {"type": ["string", "null"]}, "b": {"enum": ["x", "y"]}, "c": {"properties": {"d": {}}}},
    "$defs": {"e": {"properties": {"f": {}}}},
}


@pytest.mark.parametrize(
    "change, found",
    [
        ({}, []),
        ({"properties": {**cast("dict[str, object]", OLD["properties"]), "new": {}}}, []),
        ({"required": ["a", "b"]}, ["/b is required now"]),
        (
            {"properties": {"a": {"type": "string"}, "b": {"enum": ["x", "y", "z"]}, "c": {"properties": {"d": {}}}}},
            ["/a may not be null any more"],
        ),
        (
            {"properties": {"a": {"type": ["string", "null"]}, "b": {"enum": ["x"]}, "c": {}}},
            ["/b lost y", "/c/d is gone"],
        ),
        ({"$defs": {}}, ["#e is gone"]),
    ],
)
def test_what_breaks_readers_is_found(change: dict[str, object], found: list[str]) -> None:
    assert list(breaks(OLD, {**OLD, **change})) == found


def test_nothing_breaks_the_last_release() -> None:
    releases = sorted(RELEASED.iterdir()) if RELEASED.exists() else []
    current = {file.topic: schema_document(file) for file in load_catalogue()}
    for path in releases[-1].glob("*.json") if releases else ():
        assert path.stem in current, f"{path.stem} is gone"
        assert list(breaks(orjson.loads(path.read_bytes()), current[path.stem])) == [], path.stem


def test_a_cloud_event_is_accepted_in_both_modes() -> None:
    job = b'{"schedule": {"every": "PT1H"}, "target": "handler:x"}'
    structured = (
        b'{"specversion": "1.0", "id": "1", "source": "/orders", "type": "noontide.job.defined", '
        b'"datacontenttype": "application/json", "data": ' + job + b"}"
    )
    binary = [
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/orders"),
        ("ce_type", b"noontide.job.defined"),
    ]
    for value, headers in (
        (structured, [("content-type", b"application/cloudevents+json")]),
        (job, binary),
    ):
        request = decode_request(key=b"a", value=value, headers=headers)
        assert isinstance(request, Define)
        assert orjson.loads(request.document) == orjson.loads(job)
