"""A job whose runs die again and again is paused, with a note, and goes on when somebody says so."""

from __future__ import annotations

import pytest
from tests.actors.lines import SECOND_MS, history
from tests.actors.workers import handler

from noontide.core.cursor import JobState
from noontide.records.worker_events import Outcome
from noontide.testing.builders import every
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

FAILS = Work(500, Outcome.FAILED, "boom", permanent=True)
TEN_S = every("PT10S", anchor_ms=START_MS)


def state_of(stage: MemoryStage) -> JobState:
    cursor = stage.cursor("a")
    assert cursor is not None
    return cursor.state


@pytest.mark.parametrize("from_log_alone", [None, False, True])
async def test_a_job_is_paused_after_so_many_dead_runs(stage: MemoryStage, from_log_alone: bool | None) -> None:
    Crew(stage).hire(does=lambda _run: FAILS)
    stage.put(handler("a", TEN_S, pause_after_failures=3, payload={"n": 1.0}))
    await stage.advance(25 * SECOND_MS)
    if from_log_alone is not None:
        await stage.crash(from_log_alone=from_log_alone)
    assert state_of(stage) is JobState.ACTIVE
    await stage.advance(60 * SECOND_MS)
    assert history(stage, "a") == [(10.0, "dead"), (20.0, "dead"), (30.0, "dead")]
    assert state_of(stage) is JobState.PAUSED
    document = stage.jobs()["a"]
    assert document["paused"] is True
    assert document["note"] == "paused after 3 dead runs in a row: a:20260301T000030Z"
    assert document["payload"] == {"n": 1.0}
    audited = stage.records(stage.layout.name("audit"))[-1].value or b""
    assert b'"actor":"scheduler"' in audited


async def test_a_success_ends_the_streak(stage: MemoryStage) -> None:
    runs = 0

    def does(_run: object) -> Work:
        nonlocal runs
        runs += 1
        return Work(500) if runs % 3 == 0 else FAILS

    Crew(stage).hire(does=does)
    stage.put(handler("a", TEN_S, pause_after_failures=3))
    await stage.advance(125 * SECOND_MS)
    assert len(history(stage, "a")) == 12
    assert state_of(stage) is JobState.ACTIVE


async def test_a_new_definition_lets_it_go_on_with_a_new_count(stage: MemoryStage) -> None:
    Crew(stage).hire(does=lambda _run: FAILS)
    stage.put(handler("a", TEN_S, pause_after_failures=2))
    await stage.advance(45 * SECOND_MS)
    assert state_of(stage) is JobState.PAUSED
    stage.put(handler("a", TEN_S, pause_after_failures=2))
    await stage.advance(15 * SECOND_MS)
    assert state_of(stage) is JobState.ACTIVE
    await stage.advance(10 * SECOND_MS)
    assert state_of(stage) is JobState.PAUSED
    assert len(history(stage, "a")) == 4


async def test_jobs_without_the_field_are_never_paused(stage: MemoryStage) -> None:
    Crew(stage).hire(does=lambda _run: FAILS)
    stage.put(handler("a", TEN_S))
    await stage.advance(205 * SECOND_MS)
    assert len(history(stage, "a")) == 20
