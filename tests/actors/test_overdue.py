"""Runs that are not closed by their time are said to be overdue, once, whatever keeps them."""

from __future__ import annotations

import orjson
import pytest
from tests.actors.lines import HOUR_MS, SECOND_MS
from tests.actors.workers import handler

from noontide.testing.builders import every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS


def alerts(stage: MemoryStage) -> list[dict[str, object]]:
    return [orjson.loads(record.value or b"") for record in stage.records(stage.layout.name("alerts"))]


async def test_a_run_that_takes_too_long(stage: MemoryStage) -> None:
    Crew(stage).hire(does=lambda _run: Work(60_000))
    stage.put(handler("a", once(START_MS + 1_000), complete_by="PT30S", notify={"on": ["overdue"], "to": ["oncall"]}))
    await stage.advance(30 * SECOND_MS)
    assert alerts(stage) == []
    await stage.advance(2 * SECOND_MS)
    (alert,) = alerts(stage)
    assert alert["alert_id"] == "overdue:a:20260301T000001Z"
    assert (alert["at"], alert["reason"], alert["to"]) == (START_MS + 31_000, "still running", ["oncall"])
    await stage.advance(90 * SECOND_MS)
    assert len(alerts(stage)) == 1
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]


async def test_a_run_that_ends_in_time(stage: MemoryStage) -> None:
    Crew(stage).hire()
    stage.put(handler("a", every("PT10S"), complete_by="PT5S"))
    await stage.advance(60 * SECOND_MS)
    assert alerts(stage) == []


async def test_nothing_ever_started(stage: MemoryStage) -> None:
    stage.put(handler("a", once(START_MS + 1_000), complete_by="PT1M"))
    await stage.advance(65 * SECOND_MS)
    assert [alert["reason"] for alert in alerts(stage)] == ["still queued"]


async def test_the_scheduler_was_away(stage: MemoryStage) -> None:
    stage.put(handler("a", once(START_MS + 1_000), complete_by="PT1M"))
    stage.put(job("b", once(START_MS + 1_000), complete_by="PT1M"))
    await stage.run_until_idle()
    await stage.jump(HOUR_MS)
    assert sorted(str(alert["run_id"])[0] for alert in alerts(stage)) == ["a", "b"]
    await stage.advance(HOUR_MS)
    assert len(alerts(stage)) == 2


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_a_crash_says_nothing_twice_and_forgets_nothing(stage: MemoryStage, from_log_alone: bool) -> None:
    for number in range(3):
        stage.put(handler(f"a{number}", once(START_MS + 1_000 + number), complete_by="PT30S"))
    await stage.advance(20 * SECOND_MS)
    await stage.crash(from_log_alone=from_log_alone)
    stage.fail_next_commit(took_effect=True)
    await stage.advance(20 * SECOND_MS)
    await stage.crash(from_log_alone=from_log_alone)
    await stage.advance(HOUR_MS)
    assert len(alerts(stage)) == 3
