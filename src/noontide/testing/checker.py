"""Did every job run when it should have, once? Answered from the topics alone, by other code than the scheduler's.

For each job the occurrences between its acceptance and an end are worked out anew (`checker_schedules`) and compared
with what arrived at the target topics and what `executions` says. Runs that workers carry out (handlers, HTTP) leave
their proof on `executions` alone: closed exactly once, except that a dead one may be redriven. Jobs that are not judged
are named with the reason.

    python -m noontide.testing.checker --bootstrap 127.0.0.1:9092
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from noontide.adapters.kafka.connection import KafkaConnection
from noontide.records.topics import Layout
from noontide.testing.checker_evidence import (
    Closing,
    Delivery,
    Evidence,
    LiveRun,
    Version,
    gather,
    is_for_workers,
    target_of,
)
from noontide.testing.checker_schedules import NotJudged, Plan, Planner

SETTLE_MS: Final = 2_000
"""How long after its start a run may take to arrive before it counts as missing."""
RACE_MS: Final = 5_000
"""How long after an update was appended the old definition may still be in force, until the owner has read it."""
_OCCURRENCE_RUN = re.compile(r":\d{8}T\d{6}(?:\.\d{3})?Z(?:~(\d+))?\Z", re.ASCII)


class Finding(NamedTuple):
    """One thing that is not as it should be. due_ms: nominal time of the occurrence."""

    job_id: str
    due_ms: int
    run_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The judgement up to `until_ms`.

    jobs: ever accepted; runs: that arrived at a topic or that a worker finished, each counted once, of unjudged jobs
    too. by_workers: those of them that workers finished.
    expected: occurrences that had to happen = delivered + decided + missing. unfinished: that workers still had to do.
    decided: recorded on `executions` as not run (skipped, missed, coalesced, dropped) or ended otherwise.
    missing: no record and no decision; duplicates: a run more than once on a topic, or closed more than once;
    unexpected: at no planned time; early: before its start. manual: runs by hand, judged for duplicates only.
    unjudged: job id to the reason.
    late_ms_*: timestamp of the delivered record, or the first start by a worker, minus the planned start; None without.
    """

    until_ms: int
    jobs: int = 0
    runs: int = 0
    expected: int = 0
    delivered: int = 0
    decided: int = 0
    manual: int = 0
    by_workers: int = 0
    unfinished: int = 0
    missing: tuple[Finding, ...] = ()
    duplicates: tuple[Finding, ...] = ()
    unexpected: tuple[Finding, ...] = ()
    early: tuple[Finding, ...] = ()
    late_ms_p50: int | None = None
    late_ms_p99: int | None = None
    late_ms_max: int | None = None
    unjudged: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, double, unexpected or early among the judged."""
        return not (self.missing or self.duplicates or self.unexpected or self.early)

    def as_json(self) -> dict[str, object]:
        """For programs; findings as objects, at most 100 of each kind."""
        lists = {
            name: [found._asdict() for found in getattr(self, name)[:100]]
            for name in ("missing", "duplicates", "unexpected", "early")
        }
        plain = ("until_ms", "jobs", "runs", "by_workers", "expected", "delivered", "decided", "unfinished", "manual")
        late = ("late_ms_p50", "late_ms_p99", "late_ms_max")
        return {name: getattr(self, name) for name in (*plain, *late)} | lists | {"unjudged": dict(self.unjudged)}


def check(connection: KafkaConnection, layout: Layout, *, until_ms: int, settle_ms: int = SETTLE_MS) -> Report:
    """Read the topics and judge. until_ms: the last start that is asked for, in broker time.

    Raises Doubt or Unreachable when the brokers do not answer.
    """
    return judge(gather(connection, layout), until_ms=until_ms, settle_ms=settle_ms)


def judge(evidence: Evidence, *, until_ms: int, settle_ms: int = SETTLE_MS, race_ms: int = RACE_MS) -> Report:
    """The judgement of some evidence; see `check`. race_ms: see RACE_MS; more where reading is slowed down."""
    accepted = [version.accepted_ms for history in evidence.versions.values() for version in history]
    planner = Planner(from_ms=min(accepted, default=until_ms), until_ms=until_ms)
    finished = {closing.run_id: _finished(closing) for closing in reversed(evidence.closings) if closing.by_worker}
    deliveries, closings = _by_job([*evidence.deliveries, *finished.values()]), _by_job(evidence.closings)
    live, findings = _by_job(evidence.live), _Findings()
    findings.by_workers = len(finished)
    for job_id, history in evidence.versions.items():
        trial = _Trial(job_id, history, deliveries.pop(job_id, []), closings.get(job_id, []), live.get(job_id, []))
        trial.race_ms = race_ms
        try:
            trial.judge(planner, findings, settle_ms)
        except NotJudged as reason:
            findings.unjudged[job_id] = str(reason)
        trial.count(findings)
    for strangers in deliveries.values():
        findings.unexpected.extend(_finding(each, "no such job was ever accepted") for each in strangers)
    return findings.report(until_ms, jobs=len(evidence.versions))


class _Findings:
    """What was found so far."""

    def __init__(self) -> None:
        self.expected = self.delivered = self.decided = self.manual = self.by_workers = self.unfinished = 0
        self.missing: list[Finding] = []
        self.duplicates: list[Finding] = []
        self.unexpected: list[Finding] = []
        self.early: list[Finding] = []
        self.late_ms: list[int] = []
        self.unjudged: dict[str, str] = {}

    def report(self, until_ms: int, *, jobs: int) -> Report:
        late = sorted(self.late_ms)
        return Report(
            until_ms=until_ms,
            jobs=jobs,
            runs=len(late),
            expected=self.expected,
            delivered=self.delivered,
            decided=self.decided,
            manual=self.manual,
            by_workers=self.by_workers,
            unfinished=self.unfinished,
            missing=tuple(self.missing),
            duplicates=tuple(self.duplicates),
            unexpected=tuple(self.unexpected),
            early=tuple(self.early),
            late_ms_p50=_quantile(late, 0.5),
            late_ms_p99=_quantile(late, 0.99),
            late_ms_max=late[-1] if late else None,
            unjudged=self.unjudged,
        )


class _Force(NamedTuple):
    """A definition and the time it was in force: from_ms < due <= to_ms (None = until the end)."""

    plan: Plan
    generation: int
    from_ms: int
    to_ms: int | None
    max_runs: int | None
    inherits: bool  # the definition before it in this generation planned the same
    since_ms: int  # not before the acceptance of those before it: one in the wrong partition may overtake an older one


class _Trial:
    """One job: what had to happen and what did."""

    def __init__(
        self,
        job_id: str,
        history: Sequence[Version],
        deliveries: Sequence[Delivery],
        closings: Sequence[Closing],
        live: Sequence[LiveRun],
    ) -> None:
        self.race_ms = RACE_MS
        self._job_id = job_id
        self._history = history
        self._deliveries = deliveries
        self._closings = closings
        self._live = {(_generation(each.run_id), each.due_ms) for each in live}
        self._starts = {closing.run_id: closing.start_ms for closing in closings}
        self._closed = {(_generation(each.run_id), each.due_ms): each for each in closings if _generation(each.run_id)}
        self._ranges = [each for each in closings if each.until_ms is not None]
        self._delivered = {(_generation(each.run_id), each.due_ms) for each in deliveries}

    def count(self, findings: _Findings) -> None:
        """What is judged of every job: duplicates, early records, lateness."""
        seen: set[tuple[str, str]] = set()
        for each in self._deliveries:
            if (each.topic, each.run_id) in seen:
                findings.duplicates.append(_finding(each, f"again on {each.topic}"))
                continue
            seen.add((each.topic, each.run_id))
            findings.manual += _generation(each.run_id) is None
            late_ms = each.appended_ms - self._starts.get(each.run_id, each.due_ms)
            if late_ms < 0:
                findings.early.append(_finding(each, f"{-late_ms} ms before its start"))
            findings.late_ms.append(late_ms)
        findings.duplicates.extend(self._closed_again())

    def _closed_again(self) -> Iterator[Finding]:
        """A run is closed once. One that is dead may be redriven; it starts with a greater token."""
        closed: dict[str, Closing] = {}
        for each in self._closings:
            before = closed.get(each.run_id)
            if before is not None and not _may_follow(each, before):
                reason = f"closed again: {each.state} after {before.state}"
                yield Finding(self._job_id, each.due_ms, each.run_id, reason)
            closed[each.run_id] = each

    def judge(self, planner: Planner, findings: _Findings, settle_ms: int) -> None:
        """Compare with the plan. Raises NotJudged, having found nothing."""
        forces = list(self._forces(planner))
        runs: dict[int, int] = defaultdict(int)
        wanted: set[tuple[int, int]] = set()
        for before, force in zip([None, *forces], forces, strict=False):
            overtaken_ms = max(self._overtaken_ms(before, force), 0 if force.plan.one_off else force.since_ms)
            for due_ms in self._dues(force, planner.until_ms):
                occurrence = (force.generation, due_ms)
                if due_ms <= overtaken_ms and not self._happened(occurrence):
                    continue
                if occurrence in wanted or runs[force.generation] >= (force.max_runs or 1 << 62):
                    continue
                wanted.add(occurrence)
                latest_ms = due_ms + force.plan.slack_ms + settle_ms
                runs[force.generation] += self._settle(occurrence, findings, too_soon=latest_ms > planner.until_ms)
        allowed = self._allowed(forces, planner.until_ms)
        self._find_unexpected(allowed, planner.until_ms, findings)
        self._check_ranges([sorted(due_ms for _, due_ms in wanted), *(dues for _, dues in allowed)], findings)

    def _forces(self, planner: Planner) -> Iterator[_Force]:
        generation, before, since_ms = 1, None, 0
        ends = [version.accepted_ms for version in self._history[1:]] + [None]
        for number, (version, end_ms) in enumerate(zip(self._history, ends, strict=True)):
            since_ms = max(since_ms, version.accepted_ms)
            if version.incomplete is not None:
                raise NotJudged(version.incomplete)
            if version.document is None:
                before = None
                continue
            if number and self._history[number - 1].document is None:
                generation += 1
            if target_of(version) is None and not is_for_workers(version):
                raise NotJudged("its target is of a kind that is not looked at")
            plan = planner.plan(version.document)
            if not version.document.get("paused"):
                max_runs = version.document.get("max_runs")
                limit = max_runs if isinstance(max_runs, int) else None
                same = before == plan.signature
                yield _Force(plan, generation, version.accepted_ms, end_ms, limit, same, since_ms)
            before = plan.signature

    def _overtaken_ms(self, before: _Force | None, force: _Force) -> int:
        """The last due of the definition before that was decided although the request for this one was there already.

        Up to then the older one was in force: the owner had not read the request yet. And a one-off that replaces
        another schedule does not go back behind what that one did.
        """
        if before is None or before.generation != force.generation:
            return 0
        raced = before.plan.between(0 if force.plan.one_off else force.from_ms, force.from_ms + self.race_ms)
        return max((due_ms for due_ms in raced if self._happened((force.generation, due_ms))), default=0)

    def _happened(self, occurrence: tuple[int, int]) -> bool:
        found = occurrence in self._delivered or occurrence in self._closed or occurrence in self._live
        return found or self._covered(occurrence[1])

    @staticmethod
    def _dues(force: _Force, until_ms: int) -> Sequence[int]:
        """Due times of a definition in force; a one-off that is past when it is defined is due at once."""
        if force.plan.one_off and not force.inherits:
            return tuple(due for due in force.plan.dues if force.to_ms is None or due <= force.to_ms)
        return force.plan.between(force.from_ms, until_ms if force.to_ms is None else min(force.to_ms, until_ms))

    def _settle(self, occurrence: tuple[int, int], findings: _Findings, *, too_soon: bool) -> bool:
        """Find out what became of an occurrence; whether it counts as a run of the job."""
        _, due_ms = occurrence
        closing = self._closed.get(occurrence)
        if occurrence in self._delivered:
            findings.delivered += 1
        elif (closing is not None and closing.state != "succeeded") or self._covered(due_ms):
            findings.decided += 1
        elif occurrence in self._live:
            findings.unfinished += 1
            return True
        elif too_soon:
            return True
        else:
            why = "closed as succeeded, but there is no record" if closing else "no record and no decision"
            findings.missing.append(Finding(self._job_id, due_ms, closing.run_id if closing else "", why))
        findings.expected += 1
        return occurrence in self._delivered or closing is None or closing.state in ("dead", "cancelled")

    def _covered(self, due_ms: int) -> bool:
        return any(each.due_ms <= due_ms <= (each.until_ms or 0) for each in self._ranges)

    def _check_ranges(self, plans: Sequence[Sequence[int]], findings: _Findings) -> None:
        """A decision about several occurrences says how many there were, by all definitions together or by one."""
        for each in self._ranges:
            counts = [_between(plan, each) for plan in plans]
            if each.occurrences not in counts:
                reason = f"{each.state} covers {each.occurrences}, its definition names {counts[0]} in that time"
                findings.unexpected.append(Finding(self._job_id, each.due_ms, each.run_id, reason))

    def _allowed(self, forces: Sequence[_Force], until_ms: int) -> list[tuple[int, Sequence[int]]]:
        """Generation and dues of each definition for as long as an owner may act by it, until it has read the next."""
        late = [each._replace(to_ms=None if each.to_ms is None else each.to_ms + self.race_ms) for each in forces]
        return [(force.generation, self._dues(force, until_ms)) for force in late]

    def _find_unexpected(
        self, allowed: Sequence[tuple[int, Sequence[int]]], until_ms: int, findings: _Findings
    ) -> None:
        known = {(generation, due_ms) for generation, dues in allowed for due_ms in dues}
        for each in self._deliveries:
            generation = _generation(each.run_id)
            if generation is not None and each.due_ms <= until_ms and (generation, each.due_ms) not in known:
                findings.unexpected.append(_finding(each, "at no time its definition names"))


def _between(dues: Sequence[int], closing: Closing) -> int:
    return bisect_right(dues, closing.until_ms or 0) - bisect_left(dues, closing.due_ms)


def _by_job(records: Sequence[Delivery] | Sequence[Closing] | Sequence[LiveRun]) -> dict[str, list]:  # type: ignore[type-arg]
    grouped = defaultdict(list)
    for record in records:
        grouped[record.job_id].append(record)
    return grouped


def _generation(run_id: str) -> int | None:
    """Which life of the job id the run belongs to; None for runs by hand."""
    found = _OCCURRENCE_RUN.search(run_id)
    return None if found is None else int(found[1] or 1)


def _finished(closing: Closing) -> Delivery:
    """A run that a worker finished, as if its first start were a record."""
    begun_ms = closing.start_ms if closing.begun_ms is None else closing.begun_ms
    return Delivery(closing.target, closing.job_id, closing.run_id, closing.due_ms, begun_ms)


def _may_follow(closing: Closing, before: Closing) -> bool:
    if before.state == "dead":
        return closing.state != "dead" or closing.token > before.token
    return before.state not in ("succeeded", "cancelled")


def _finding(delivery: Delivery, reason: str) -> Finding:
    return Finding(delivery.job_id, delivery.due_ms, delivery.run_id, reason)


def _quantile(ordered: Sequence[int], share: float) -> int | None:
    """The nearest rank."""
    if not ordered:
        return None
    return ordered[max(0, ceil(len(ordered) * share) - 1)]


def main() -> int:
    """Judge an installation up to a moment ago and print the report as JSON; exit code 1 when something is wrong."""
    from argparse import ArgumentParser

    from noontide.adapters.kafka.topics import read_meta
    from noontide.adapters.system_clock import wall_now_ms

    parser = ArgumentParser(description=main.__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--prefix", default="noontide.")
    parser.add_argument("--until-ms", type=int, default=wall_now_ms() - SETTLE_MS)
    given = parser.parse_args()
    connection = KafkaConnection(given.bootstrap)
    meta = read_meta(connection, Layout(prefix=given.prefix))
    if meta is None:
        parser.error(f"there are no topics with the prefix {given.prefix!r}")
    layout = meta.layout(given.prefix)
    report = check(connection, layout, until_ms=given.until_ms)
    print(json.dumps(report.as_json(), indent=2))
    return 0 if report.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
