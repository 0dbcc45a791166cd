"""Where a job goes on once another definition is in force."""

from __future__ import annotations

import orjson

from noontide.actors.next_cursor import Terms, cursor_after
from noontide.core.cursor import Cursor, JobState
from noontide.core.definition import load_definition
from noontide.core.job import Job
from noontide.records.config import ConfigView
from noontide.testing.builders import every, job
from noontide.testing.virtual_clock import START_MS

TERMS = Terms(ConfigView(), completed_retention_ms=1_000)


def _job(interval: str) -> Job:
    return load_definition(orjson.dumps(job("a", every(interval, anchor_ms=START_MS), tenant="acme")))


def _after(last_due_ms: int | None, *, at_ms: int) -> Cursor:
    old = Cursor(JobState.ACTIVE, START_MS + 8_000, START_MS + 8_000, runs=3, last_due_ms=last_due_ms)
    return cursor_after(_job("PT3S"), _job("PT2S"), old, at_ms=at_ms, terms=TERMS)


def test_another_schedule_begins_after_the_request() -> None:
    assert _after(START_MS + 4_000, at_ms=START_MS + 5_000).due_ms == START_MS + 6_000
    assert _after(None, at_ms=START_MS + 6_000).due_ms == START_MS + 9_000


def test_what_was_claimed_before_the_request_was_read_is_not_claimed_again() -> None:
    """The owner acted by the old definition until then: 6 s belongs to both, and is one occurrence."""
    moved = _after(START_MS + 6_000, at_ms=START_MS + 5_000)
    assert (moved.due_ms, moved.last_due_ms, moved.runs) == (START_MS + 9_000, START_MS + 6_000, 3)
