"""How the demo went, as the independent checker sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noontide.apps.cli.spans import words
from noontide.testing.checker import Finding, Report

FINDINGS_SHOWN = 10


def as_json(report: Report, killed: Sequence[str]) -> dict[str, object]:
    """The line that programs read. killed: names of processes, when there was killing."""
    return {
        "jobs": report.jobs,
        "runs": report.runs,
        "late_ms_p50": report.late_ms_p50,
        "late_ms_p99": report.late_ms_p99,
        "duplicates": len(report.duplicates),
        "missing": len(report.missing),
        "by_workers": report.by_workers,
        **({"killed": list(killed)} if killed else {}),
    }


def as_text(report: Report, killed: Sequence[str]) -> Iterator[str]:
    """The summary for people."""
    yield ""
    yield f"{report.runs} runs of {report.jobs} jobs, compared with what their schedules say:"
    on_topics = report.runs - report.by_workers
    yield f"  done      {report.runs:>6}   records on topics {on_topics}, finished by workers {report.by_workers}"
    yield f"  expected  {report.expected:>6}   done {report.delivered}, recorded as not run {report.decided}"
    if report.unfinished:
        yield f"  unfinished{report.unfinished:>6}   kept for the next worker when everything was stopped"
    for name, found in _kinds(report):
        yield f"  {name:<10}{len(found):>6}"
        for each in found[:FINDINGS_SHOWN]:
            yield f"      {each.run_id or each.job_id}: {each.reason}"
    if report.late_ms_p50 is not None and report.late_ms_p99 is not None and report.late_ms_max is not None:
        p50, p99, most = map(words, (report.late_ms_p50, report.late_ms_p99, report.late_ms_max))
        yield f"  late      p50 {p50}, p99 {p99}, at most {most} (from the start on)"
    for job_id, why in report.unjudged.items():
        yield f"  not judged  {job_id}: {why}"
    if killed:
        lost = "nothing was lost" if report.ok else "see above for what went wrong"
        yield f"  killed with kill -9: {', '.join(killed)}; {lost}"


def _kinds(report: Report) -> tuple[tuple[str, tuple[Finding, ...]], ...]:
    return (
        ("missing", report.missing),
        ("duplicate", report.duplicates),
        ("unexpected", report.unexpected),
        ("early", report.early),
    )
