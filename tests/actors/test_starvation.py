"""Nobody is starved: jobs that share too few workers."""

from __future__ import annotations

from tests.actors.lines import SECOND_MS
from tests.actors.workers import handler

from noontide.testing.builders import every
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work


async def test_a_hog_leaves_room_for_a_small_job(stage: MemoryStage) -> None:
    """cap-01: one worker, a job of 5 s each second, and one of 0.2 s every three seconds."""
    Crew(stage).hire(does=lambda run: Work(5_000 if run.job_id == "hog" else 200), capacity=1)
    stage.put(handler("hog", every("PT1S")))
    stage.put(handler("small", every("PT3S")))
    await stage.advance(60 * SECOND_MS)
    ran = [line for line in stage.executions("small") if line["state"] == "succeeded"]
    assert len(ran) >= 5


async def test_a_low_priority_is_not_left_behind_for_ever(stage: MemoryStage) -> None:
    """A stream of higher priority that fills the only place: the lower one has its turn when it has waited long."""
    stage.put(handler("low", every("PT1H", anchor_ms=stage.clock.now_ms() + 1_000), priority=2, overlap="allow"))
    for number in range(4):
        stage.put(handler(f"high-{number}", every("PT2S"), priority=4, overlap="allow"))
    worker = Crew(stage).hire(does=lambda _run: Work(1_000), capacity=1)
    await stage.advance(400 * SECOND_MS)
    assert any(start.run_id.startswith("low") for start in worker.starts)
