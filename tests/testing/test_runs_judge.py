"""The judge of leases finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noontide.core.run import RunState
from noontide.testing.runs_judge import Closed, Held, RunEvidence, RunReport, Start, judge_runs

RUN = "a:20260101T000000Z"
SOUND = RunEvidence(
    held=[
        Held(RUN, RunState.QUEUED),
        Held(RUN, RunState.RUNNING, 1, "w-1"),
        Held(RUN, RunState.RETRY_WAIT, 1),
        Held(RUN, RunState.RUNNING, 2, "w-2"),
        Held(RUN, None),
    ],
    closings=[Closed(RUN, "succeeded", 2, by_worker=True), Closed("b:1", "succeeded", 0, by_worker=False)],
    results=[Closed(RUN, "succeeded", 2, by_worker=True)],
    starts=[Start(RUN, 1, 1_000), Start(RUN, 2, 4_000)],
)


def found_in(report: RunReport) -> set[str]:
    return {name for name, value in report.as_json().items() if isinstance(value, list)}


def test_what_is_sound_passes_and_is_counted() -> None:
    report = judge_runs(SOUND)
    assert report.ok
    assert (report.claims, report.grants, report.starts, report.retries, report.worst_gap_ms) == (1, 2, 2, 1, 3_000)


@pytest.mark.parametrize(
    "evidence, finding",
    [
        (replace(SOUND, held=SOUND.held[:-1]), "live"),
        (replace(SOUND, held=[]), "unclaimed"),
        (replace(SOUND, held=[*SOUND.held, Held(RUN, RunState.QUEUED), Held(RUN, None)]), "claimed_twice"),
        (replace(SOUND, held=[*SOUND.held[:3], Held(RUN, RunState.RUNNING, 1, "w-2"), Held(RUN, None)]), "tokens"),
        (replace(SOUND, held=[SOUND.held[3], SOUND.held[1], Held(RUN, None)]), "tokens"),
        (replace(SOUND, starts=[*SOUND.starts, SOUND.starts[0]]), "started_twice"),
        (replace(SOUND, starts=[*SOUND.starts, Start(RUN, 3, 5_000)]), "strange"),
        (replace(SOUND, closings=[*SOUND.closings, SOUND.closings[0]]), "closed_twice"),
        (replace(SOUND, closings=[*SOUND.closings, SOUND.closings[1]]), "closed_twice"),
        (replace(SOUND, results=[*SOUND.results, SOUND.results[0]]), "results_twice"),
        (replace(SOUND, results=[]), "without_result"),
        (replace(SOUND, results=[SOUND.results[0]._replace(token=1)]), "stale"),
        (replace(SOUND, closings=[SOUND.closings[0]._replace(token=1)]), "stale"),
        (replace(SOUND, starts=[]), "unstarted"),
        (replace(SOUND, starts=[each._replace(once=True) for each in SOUND.starts]), "once_again"),
    ],
)
def test_what_is_wrong_is_found(evidence: RunEvidence, finding: str) -> None:
    report = judge_runs(evidence)
    assert not report.ok
    assert f"{finding}_examples" in found_in(report)
    assert report.as_json()[finding] == len(getattr(report, finding)) > 0
