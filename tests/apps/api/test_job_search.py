"""Which rows a search decodes: never one less than those that are wanted."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.adapters.memory.index import MemoryIndex
from noontide.apps.port import wire
from noontide.apps.port.hunting import Hunt, blocks_by_id
from noontide.apps.port.matching import job_matches
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.ports.due_index import IndexBatch
from noontide.records import rows
from noontide.records.job_row import decode_job_row, encode_job_row
from noontide.records.topics import Layout

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
                hunt = Hunt(wanted)
                assert hunt.suspects(b"Job-A", value)
                assert hunt.among([(b"\0jother", b"{}"), (b"\0jJob-A", value)])


def test_what_cannot_match_is_told_by_its_bytes() -> None:
    value = row_of(TARGETS[0], **FIELDS)
    for wanted in (wire.JobFilter(text="elsewhere"), wire.JobFilter(target="kafka://payments")):
        assert not Hunt(wanted).suspects(b"Job-A", value)
        assert not Hunt(wanted).among([(b"\0jJob-A", value)] * 3)
    assert Hunt(wire.JobFilter(text="elsewhere")).suspects(b"Job-A", value + b"\\")


@settings(max_examples=60, deadline=None)
@given(
    ids=st.sets(st.text("abAB-", min_size=1, max_size=4), max_size=120),
    after=st.text("ab-", max_size=3),
    prefix=st.text("ab", max_size=2),
    text=st.sampled_from(["", "B", "bb", "A-B", "nowhere"]),
)
def test_blocks_give_each_job_once_in_order_and_never_say_more_than_they_saw(
    ids: set[str], after: str, prefix: str, text: str
) -> None:
    layout, index, batch = Layout(partitions=8, slots=2), MemoryIndex(), IndexBatch()
    for job_id in ids:
        batch.puts[rows.job_key(layout.partition_of(job_id), job_id.encode())] = b"row"
    index.write(batch)
    question = wire.JobPage(slots=[0, 1], after=after, limit=9, filter=wire.JobFilter(text=text or None), prefix=prefix)
    blocks = list(blocks_by_id(layout, {0: index, 1: index}, question, Hunt(question.filter)))
    beyond = sorted(each for each in ids if each > after and each.startswith(prefix))
    assert [each.place for block in blocks for each in block.likely] == [
        each for each in beyond if not text or text.lower() in each.lower()
    ]
    assert sum(block.scanned for block in blocks) == len(beyond)
    seen = 0
    for block in blocks[:-1]:
        seen += len(block.likely)
        assert all(each.place <= block.place for each in block.likely)
        assert all(each.place > block.place for later in blocks[blocks.index(block) + 1 :] for each in later.likely)
