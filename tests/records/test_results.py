"""Results for other services."""

from __future__ import annotations

import orjson
import pytest

from noontide.core.run import Run, RunState
from noontide.records.results import encode_result

RUN = Run(
    "a:m1", "a", "acme", RunState.RUNNING, 1_772_323_200_000, 1_772_323_200_000, 0, "handler:x", attempt=2, token=7
)


def test_a_success() -> None:
    value = encode_result(RUN, state=RunState.SUCCEEDED, ended_ms=1_772_323_205_001, result=b'{"n":1.50}')
    assert value.endswith(b'"result":{"n":1.50}}')
    assert orjson.loads(value) == {
        "run_id": "a:m1", "job_id": "a", "tenant": "acme", "due": "2026-03-01T00:00:00.000Z", "state": "succeeded",
        "attempt": 2, "token": 7, "ended_at": "2026-03-01T00:00:05.001Z", "result": {"n": 1.5},
    }  # fmt: skip


@pytest.mark.parametrize("state", [RunState.DEAD, RunState.CANCELLED])
def test_an_end_without_a_result(state: RunState) -> None:
    found = orjson.loads(encode_result(RUN, state=state, ended_ms=0, error="boom", truncated=True))
    assert (found["state"], found["error"], found["truncated"]) == (state, "boom", True)
    assert "result" not in found


def test_nothing_returned_and_null_returned_are_different() -> None:
    assert b"result" not in encode_result(RUN, state=RunState.SUCCEEDED, ended_ms=0)
    assert b'"result":null' in encode_result(RUN, state=RunState.SUCCEEDED, ended_ms=0, result=b"null")
