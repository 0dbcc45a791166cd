"""A backlog of what is due holds up nobody who comes later, and nothing of it is lost or doubled."""

from __future__ import annotations

from noontide.actors.settings import SchedulerSettings
from noontide.testing.builders import job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

FLOOD, LATER = 400, 5


async def test_later_jobs_are_claimed_beside_a_flood() -> None:
    async with MemoryStage(settings=SchedulerSettings(due_max=16)) as stage:
        stage.register("orders")
        for number in range(FLOOD):
            stage.put(job(f"flood-{number}", once(START_MS + 10_000), timing="exact"))
        for number in range(LATER):
            stage.put(job(f"later-{number}", once(START_MS + 10_300 + number), timing="exact"))
        await stage.run_until_idle()
        stage.clock.advance(11_000)
        for _ in range(8):
            await stage.slots[0].step()
        claimed = stage.run_ids("orders")
        assert len(claimed) < FLOOD
        assert sum(run.startswith("later") for run in claimed) == LATER
        stage.checkpoint()
        await stage.slots[0].step()
        await stage.crash()
        await stage.run_until_idle()
        found = [line["run_id"] for line in stage.executions()]
        assert len(found) == len(set(found)) == FLOOD + LATER
        assert stage.slots[0].index.scan(b"\x00d", b"\x04", 1) == [] or await _only_removals(stage)


async def _only_removals(stage: MemoryStage) -> bool:
    """What is left among the due rows are removals of completed jobs, a day later."""
    await stage.advance(25 * 3_600_000)
    return all(stage.cursor(f"later-{number}") is None for number in range(LATER))
