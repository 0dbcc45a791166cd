"""When everything is at rest: is everything there that had to happen, and nothing else?

What had to happen is worked out by `testing.checker`, from the requests alone and with schedule code of its own.
"""

from __future__ import annotations

from typing import Final

import orjson

from noontide.ports.record_log import Incoming
from noontide.records.topics import Layout
from noontide.testing.checker import Finding, judge
from noontide.testing.checker_evidence import Closing, Evidence, closings_in, deliveries_in, live_in, versions_in
from noontide.testing.permits_judge import standing
from noontide.testing.simulation.people import FOLLOWERS, HEIR, REGISTERED, SICKLY, UNREGISTERED, UPSTREAM, People
from noontide.testing.simulation.witness import CLOSED, Violation, Witness

RACE_MS: Final = 400_000
"""How long an owner that cannot read may still act by an old definition."""
SETTLE_MS: Final = 8_000


def unfinished(witness: Witness, people: People) -> list[str]:
    """What still has to be decided or done."""
    undecided = [origin for origin in people.asked if origin not in witness.fates]
    lost = [run_id for origin, run_id in people.triggers if origin not in witness.fates and not _began(witness, run_id)]
    live = [run_id for run_id, life in witness.lives.items() if life.live]
    return [*undecided, *lost, *live]


def judge_permits(witness: Witness) -> None:
    """Raises Violation when permits are out although no run is live; only when nothing else is unfinished."""
    left = standing(witness)
    if left:
        raise Violation("permits", f"all runs are closed, and yet: {left}")


def judge_rest(witness: Witness, people: People, layout: Layout, now_ms: int) -> None:
    """Raises Violation for the first thing that is not as it should be."""
    seen = witness.seen
    requests = [record for topic, records in seen.items() if topic.startswith("requests.") for record in records]
    accepted = {_origin(record, layout): record.appended_ms for record in requests}
    closings = closings_in(seen["executions"])
    evidence = Evidence(
        versions={name: each for name, each in versions_in(seen["jobs"], accepted).items() if name not in FOLLOWERS},
        deliveries=deliveries_in(record for topic in (REGISTERED, SICKLY, UNREGISTERED) for record in seen[topic]),
        live=[each for each in live_in(seen["leases"]) if each.job_id not in FOLLOWERS],
        closings=[each for each in closings if each.job_id not in FOLLOWERS],
    )
    report = judge(evidence, until_ms=now_ms, settle_ms=SETTLE_MS, race_ms=RACE_MS)
    if report.unjudged.keys() - {HEIR}:
        raise Violation("occurrences", f"not judged: {dict(report.unjudged)}")
    _judge_heir(seen["executions"])
    duplicates = [each for each in report.duplicates if UNREGISTERED not in each.reason]
    for name, findings in (
        ("missing", report.missing), ("unexpected", report.unexpected), ("early", report.early),
        ("duplicates", duplicates),
    ):  # fmt: skip
        if findings:
            raise Violation("occurrences", f"{len(findings)} {name}: {_shown(findings)}")
    _judge_runs(witness)
    _judge_followers(seen["executions"], closings)


def _judge_followers(records: list[Incoming], closings: list[Closing]) -> None:
    """A job that waits for another has a line for each occurrence of it that ended, and none for anything else.

    The edge is there from its first line on.
    """
    ended = [(record.appended_ms, each) for record, each in zip(records, closings, strict=True)]
    for job_id, upstream in FOLLOWERS.items():
        mine = [(at_ms, each) for at_ms, each in ended if each.job_id == job_id]
        theirs = [(at_ms, each) for at_ms, each in ended if each.job_id == upstream and ":m" not in each.run_id]
        since_ms = min((at_ms for at_ms, _ in mine), default=1 << 62)
        for at_ms, each in theirs:
            if at_ms > since_ms and not any(_covers(line, each.due_ms) for _, line in mine):
                raise Violation("dependencies", f"{each.run_id} ended as {each.state}, and {job_id} has no line for it")
        for _, line in mine:
            if not any(_covers(each, line.due_ms) for _, each in theirs):
                raise Violation("dependencies", f"{line.run_id} is {line.state}, and {upstream} has nothing then")


def _covers(line: Closing, due_ms: int) -> bool:
    return line.due_ms <= due_ms <= (line.due_ms if line.until_ms is None else line.until_ms)


def _shown(findings: list[Finding] | tuple[Finding, ...]) -> str:
    return "; ".join(f"{each.job_id} {each.due_ms} {each.run_id} {each.reason}" for each in findings[:3])


def _judge_runs(witness: Witness) -> None:
    """Runs that are not live are closed; what was delivered for ever is said to be; results are those of workers."""
    for run_id, life in witness.lives.items():
        if life.state and not life.live and not life.closed:
            raise Violation("history", f"{run_id} is not live any more, and no line says what became of it")
        closed = [state for state in life.closed if state in CLOSED]
        if life.delivered and not life.live and closed[-1:] != ["succeeded"]:
            raise Violation("history", f"{run_id} was delivered to {dict(life.delivered)} and is {life.closed}")
        if sum(life.results.values()) > len(closed):
            raise Violation("results", f"{run_id} has {dict(life.results)} results and ended {closed}")
        if life.grants and closed and not life.results:
            raise Violation("results", f"{run_id} was granted and is {closed}, without a result")


def _judge_heir(history: list[Incoming]) -> None:
    """A job that waits for another runs where that one succeeded, and nowhere else."""
    lines = [orjson.loads(record.value or b"{}") for record in history]
    well = {line["due"] for line in lines if line["job_id"] == UPSTREAM and line["state"] == "succeeded"}
    for line in lines:
        if line["job_id"] == HEIR and line["state"] == "succeeded" and line["due"] not in well:
            raise Violation("dependencies", f"{line['run_id']} ran, and {UPSTREAM} had not succeeded")


def _began(witness: Witness, run_id: str) -> bool:
    life = witness.lives.get(run_id)
    return life is not None and (life.live or bool(life.closed))


def _origin(record: Incoming, layout: Layout) -> str:
    return f"{layout.short(record.topic)}/{record.partition}/{record.offset}"
