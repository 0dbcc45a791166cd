"""What owners and workers write for each other is what the topic files say, field for field."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import cast

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.actors.workers import beats, claims, end, now, say
from tests.topics.test_records_match import undeclared

from noontide.records.leases import decode_lease
from noontide.records.runs import decode_invitation
from noontide.records.topic_file import Example
from noontide.records.topics import load_catalogue
from noontide.records.worker_events import Outcome, decode_frame, encode_frame
from noontide.records.worker_inbox import decode_answer, encode_answer
from noontide.testing.memory_stage import MemoryStage


@pytest.fixture
async def stage() -> AsyncIterator[MemoryStage]:
    async with MemoryStage() as stage:
        await _play(stage)
        yield stage


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TOPICS = ("runs", "worker-events", "worker-inbox", "results", "leases", "executions", "dead-letters")


async def _play(stage: MemoryStage) -> None:
    """A little of everything that can happen to runs."""
    for name, more in (
        ("a", {"payload": {"n": 1}, "tenant": "acme"}),
        ("b", {"retry": {"max_attempts": 2, "backoff": ["PT1S"]}}),
        ("c", {"guarantee": "at_most_once"}),
        ("d", {}),
        ("e", {"timeout": "PT10S", "retry": {"max_attempts": 1}}),
    ):
        stage.put(now(name, **more), **({"traceparent": TRACE} if name == "b" else {}))
    await stage.run_until_idle()
    runs = {run_id[0]: run_id for run_id in stage.leases()}
    await say(stage, claims(*((run_id, 1) for run_id in runs.values())), claims((runs["a"], 1), worker="w-2"))
    stage.cancel("d", reason="wrong data")
    await stage.run_until_idle()
    await say(stage, beats(*((run_id, 1) for run_id in runs.values()), ("x:m1", 1)))
    await say(stage, end(runs["a"], 1, result=msgspec.Raw(b'{"rows":1}')), end(runs["d"], 1, Outcome.CANCELLED))
    await say(stage, end(runs["b"], 1, Outcome.FAILED, error="boom", status=503, retry_after_ms=5, duration_ms=9))
    await say(stage, end(runs["e"], 1, Outcome.OPEN))
    await stage.advance(2_000)
    await say(stage, claims((runs["b"], 2)), end(runs["b"], 2, Outcome.FAILED, error="boom", permanent=True))
    await stage.advance(60_000)
    assert stage.leases() == {}


def _values(stage: MemoryStage, topic: str) -> Iterator[object]:
    parameters = {"lane": "default"} if topic in ("runs", "worker-events") else {}
    for record in stage.records(stage.layout.name(topic, **parameters)):
        if record.value is not None:
            yield json.loads(record.value)


@pytest.mark.parametrize("topic", TOPICS)
async def test_what_is_written_is_what_the_file_says(stage: MemoryStage, topic: str) -> None:
    schema = cast("dict[str, object]", load_catalogue()[topic].value)
    values = list(_values(stage, topic))
    assert len(values) >= 3
    for value in values:
        Draft202012Validator(schema).validate(value)
        assert list(undeclared({**schema, "anyOf": []}, value)) == []


@pytest.mark.parametrize("topic", TOPICS)
async def test_every_field_is_written_by_somebody(stage: MemoryStage, topic: str) -> None:
    """A field that nothing writes is a promise that nobody keeps."""
    properties = cast("dict[str, object]", load_catalogue()[topic].value["properties"])
    seen = {name for value in _values(stage, topic) for name in cast("dict[str, object]", value)}
    elsewhere = {
        "runs": {"start_after"},
        "worker-events": {"inbox", "progress"},
        "results": {"truncated"},
        "leases": {"waits_for", "permits", "awaits", "complete_by"},
        "executions": {"start_after", "count", "until"},
    }
    assert set(properties) - seen == elsewhere.get(topic, set())


def _examples(topic: str) -> list[Example]:
    return [example for example in load_catalogue()[topic].examples if example.value is not None]


@pytest.mark.parametrize("example", _examples("worker-events"), ids=lambda example: str(example.about))
def test_examples_of_frames_are_read_and_written_alike(example: Example) -> None:
    assert json.loads(encode_frame(decode_frame(json.dumps(example.value).encode()))) == example.value


@pytest.mark.parametrize("example", _examples("worker-inbox"), ids=lambda example: str(example.about))
def test_examples_of_answers_are_read_and_written_alike(example: Example) -> None:
    assert json.loads(encode_answer(decode_answer(json.dumps(example.value).encode()))) == example.value


@pytest.mark.parametrize("example", _examples("runs"), ids=lambda example: str(example.about))
def test_examples_of_invitations_are_read(example: Example) -> None:
    value = cast("dict[str, object]", example.value)
    offer = decode_invitation(json.dumps(value).encode())
    assert (offer.run_id, offer.attempt, offer.target) == (value["run_id"], value["attempt"], value["target"])


@pytest.mark.parametrize("example", _examples("leases"), ids=lambda example: str(example.about))
def test_examples_of_leases_are_read_with_their_lane(example: Example) -> None:
    run = decode_lease(str(example.key).encode(), json.dumps(example.value).encode())
    assert (run.lane, run.priority) == ("default", 5)
