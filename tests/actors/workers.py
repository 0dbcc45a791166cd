"""Jobs that workers take, and what is said about their runs, in few words."""

from __future__ import annotations

from noontide.core.run import Run
from noontide.records.worker_events import End, Frame, Outcome
from noontide.testing.builders import Document, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

W1, W2 = "w-1", "w-2"


def handler(job_id: str, schedule: dict[str, object] | None, **fields: object) -> Document:
    """A job whose runs workers take."""
    return {**job(job_id, schedule), "target": {"handler": "work"}, "lane": "default", **fields}


def now(job_id: str = "a", **fields: object) -> Document:
    """The same, to be run once and at once."""
    return handler(job_id, once(START_MS), **fields)


def claims(*runs: tuple[str, int], worker: str = W1) -> Frame:
    """A worker asks for runs: (run id, attempt)."""
    return Frame(worker=worker, claims=list(runs))


def beats(*runs: tuple[str, int], worker: str = W1) -> Frame:
    """A worker reports what it holds: (run id, token)."""
    return Frame(worker=worker, beats=list(runs))


def end(run_id: str, token: int, outcome: Outcome = Outcome.SUCCEEDED, *, worker: str = W1, **more: object) -> Frame:
    """A worker ends an attempt."""
    return Frame(worker=worker, ends=[End(run_id=run_id, token=token, outcome=outcome, **more)])  # type: ignore[arg-type]


async def say(stage: MemoryStage, *frames: Frame | bytes) -> None:
    """Say it, and let the owner decide."""
    for frame in frames:
        stage.say(frame)
    await stage.run_until_idle()


async def begin(stage: MemoryStage, **fields: object) -> Run:
    """A run of job `a` that w-1 holds."""
    stage.put(now("a", **fields))
    await stage.run_until_idle()
    (run_id,) = stage.leases()
    await say(stage, claims((run_id, 1)))
    return stage.leases()[run_id]


def only(stage: MemoryStage) -> Run:
    """The one live run."""
    (run,) = stage.leases().values()
    return run


def grants(stage: MemoryStage, worker: str = W1) -> list[tuple[str, int, int, int]]:
    """(run id, attempt, token, lease_ms) that a worker was granted so far."""
    return [grant for answer in stage.answers(worker) for grant in answer.grants]


def denials(stage: MemoryStage, worker: str = W1) -> list[tuple[str, int, str]]:
    """(run id, attempt, reason) that a worker was denied so far."""
    return [denied for answer in stage.answers(worker) for denied in answer.denied]


def cancels(stage: MemoryStage, worker: str = W1) -> list[tuple[str, int, str]]:
    """(run id, token, reason) that a worker was told to stop so far."""
    return [cancel for answer in stage.answers(worker) for cancel in answer.cancels]


def lost(stage: MemoryStage, worker: str = W1) -> list[tuple[str, int]]:
    """(run id, token) that a worker was told it has lost so far."""
    return [each for answer in stage.answers(worker) for each in answer.lost]
