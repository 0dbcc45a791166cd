"""Reading the lines of history in few words."""

from __future__ import annotations

from noontide.core.instants import parse_instant
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.virtual_clock import START_MS

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


def after_start_s(instant: object) -> float:
    """Seconds between the start of virtual time and an RFC 3339 instant."""
    return (parse_instant(instant, zone=None, pointer="") - START_MS) / 1_000


def history(stage: MemoryStage, job_id: str) -> list[tuple[float, str]]:
    """(due in seconds after the start, state) of each line of a job, in the order in which they were written."""
    return [(after_start_s(line["due"]), str(line["state"])) for line in stage.executions(job_id)]


def dues_s(stage: MemoryStage, topic: str = "orders") -> list[float]:
    """Due times of what a topic received, in seconds after the start."""
    found = [dict(record.headers)["noontide-due"].decode() for record in stage.delivered(topic)]
    return [after_start_s(due) for due in found]


def reasons(stage: MemoryStage) -> list[str]:
    """Why requests were refused."""
    return [str(line["reason"]) for line in stage.rejected()]
