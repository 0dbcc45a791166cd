"""Which rows a search decodes: never one less than those that are wanted."""

from __future__ import annotations

import orjson
import pytest

from noontide.apps.port import wire
from noontide.apps.port.job_pages import _suspected
from noontide.apps.port.matching import job_matches
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.records.job_row import decode_job_row, encode_job_row

TARGETS = ("kafka://orders.reminders", "handler:send_report", "https://svc.example/report?x=1")
FIELDS: dict[str, object] = {"note": "Grüße für Ada/Bob: heute", "labels": {"team": "finance", "size": "Größe"}}


def row_of(target: str, **fields: object) -> bytes:
    raw = orjson.dumps({"id": "Job-A", "schedule": "0 6 * * *", "target": target, **fields})
    definition = parse_definition(raw, context=DefinitionContext(key=None, tenant=None, created_ms=0))
    return encode_job_row(definition.job, definition.document, etag="e", created_ms=0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text",
    [
        "kafka://orders",
        "KAFKA",
        "afka:/",
        "orders.rem",
        "handler:",
        "handler:send",
        "andler:S",
        ":send_",
        "://",
        "/",
        "e",
        "https://svc.example",
        "svc.example/rep",
        "job-a",
        "JOB",
        "grüße",
        "Ada/Bob",
        "bob: heute",
        "FINANCE",
        "a/b",
        "größe",
    ],
)
def test_what_matches_is_suspected(target: str, text: str) -> None:
    for fields in ({}, FIELDS):
        value = row_of(target, **fields)
        for wanted in (wire.JobFilter(text=text), wire.JobFilter(target=text), wire.JobFilter(labels=((text, None),))):
            if job_matches("Job-A", decode_job_row(value), None, wanted):
                assert _suspected(wanted)(b"Job-A", value)


def test_what_cannot_match_is_told_by_its_bytes() -> None:
    value = row_of(TARGETS[0], **FIELDS)
    for wanted in (wire.JobFilter(text="elsewhere"), wire.JobFilter(target="kafka://payments")):
        assert not _suspected(wanted)(b"Job-A", value)
    assert _suspected(wire.JobFilter(text="elsewhere"))(b"Job-A", value + b"\\")
