"""What must be on a target topic, computed from the requests alone: plain arithmetic, nothing of the scheduler.

It knows interval jobs with an anchor. An occurrence is due at anchor + k x interval, strictly after the request was
appended; each must be on the topic exactly once, at or after its time, or be a decision in the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tests.integration.installation import Installation, Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a check found; times are milliseconds since the epoch, occurrences are (job, due)."""

    expected: int
    delivered: int
    decided: int
    missing: list[tuple[str, int]] = field(default_factory=list)
    doubled: list[tuple[str, int]] = field(default_factory=list)
    unexpected: list[tuple[str, int]] = field(default_factory=list)
    early: list[tuple[str, int]] = field(default_factory=list)
    history_only: list[str] = field(default_factory=list)
    latest_ms: int = 0

    @property
    def is_clean(self) -> bool:
        """Nothing missing, double, early or invented, and the history agrees."""
        return not (self.missing or self.doubled or self.unexpected or self.early or self.history_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalJob:
    """An interval job of a test."""

    job_id: str
    every_ms: int
    anchor_ms: int

    def due_times(self, after_ms: int, until_ms: int) -> Iterable[int]:
        """Occurrences with after < due <= until."""
        first = self.anchor_ms + ((after_ms - self.anchor_ms) // self.every_ms + 1) * self.every_ms
        return range(max(first, self.anchor_ms), until_ms + 1, self.every_ms)


def instant_ms(text: object) -> int:
    """RFC 3339 to milliseconds."""
    return round(datetime.fromisoformat(str(text)).timestamp() * 1000)


def due_ms(record: Seen) -> int:
    """The nominal time that a delivered record names."""
    return instant_ms((record.headers["noontide-due"] or b"").decode())


def judge(installation: Installation, topic: str, jobs: Iterable[IntervalJob], *, until_ms: int) -> Judgement:
    """Compare a target topic and the history with what the jobs' requests ask for, up to a time."""
    by_id = {job.job_id: job for job in jobs}
    accepted: dict[str, int] = {}
    wanted = {job_id.encode() for job_id in by_id}
    for request in installation.log("requests.public").until(lambda found: wanted <= {each.key for each in found}):
        accepted.setdefault((request.key or b"").decode(), request.at_ms)
    expected = {(job_id, due) for job_id, job in by_id.items() for due in job.due_times(accepted[job_id], until_ms)}
    records = [
        each for each in installation.log(topic).look() if (each.headers["noontide-job"] or b"").decode() in by_id
    ]
    seen = Counter(((each.headers["noontide-job"] or b"").decode(), due_ms(each)) for each in records)
    relevant = {each for each in seen if each[1] <= until_ms}
    history, decided = _history(installation, by_id, until_ms)
    runs = {each.run_id for each in records}
    return Judgement(
        expected=len(expected),
        delivered=len(relevant),
        decided=len(decided),
        missing=sorted(expected - relevant - decided),
        doubled=sorted(each for each, count in seen.items() if count > 1) + sorted(relevant & decided),
        unexpected=sorted(relevant - expected),
        early=sorted(
            ((each.headers["noontide-job"] or b"").decode(), due_ms(each))
            for each in records
            if each.at_ms < due_ms(each)
        ),
        history_only=sorted(run for run, count in history.items() if count != 1 or run not in runs),
        latest_ms=max((each.at_ms - due_ms(each) for each in records), default=0),
    )


def _history(
    installation: Installation, jobs: dict[str, IntervalJob], until_ms: int
) -> tuple[Counter[str], set[tuple[str, int]]]:
    """Runs that succeeded by id, and the occurrences of recorded decisions."""
    succeeded: Counter[str] = Counter()
    decided: set[tuple[str, int]] = set()
    for line in installation.log("executions").look():
        found = line.document
        job = jobs.get(str(found["job_id"]))
        if job is None or instant_ms(found["due"]) > until_ms:
            continue
        if found["state"] == "succeeded":
            succeeded[str(found["run_id"])] += 1
        else:
            first, last = instant_ms(found["due"]), instant_ms(found.get("until", found["due"]))
            decided |= {(job.job_id, due) for due in range(first, last + 1, job.every_ms)}
    return succeeded, decided
