"""The checker finds what is missing, double, early or unasked for, and says what it did not judge."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from noontide.testing import checker, checker_evidence, checker_schedules
from noontide.testing.checker import Report, judge
from noontide.testing.checker_evidence import Closing, Delivery, Evidence, LiveRun, Version

T0 = 1_798_135_200_000  # 2026-12-24T18:00:00Z, a Thursday
TARGET = {"topic": {"name": "orders"}}
TOPIC = "orders"


def basic(due_ms: int) -> str:
    text = datetime.fromtimestamp(due_ms // 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{text}.{due_ms % 1000:03}Z" if due_ms % 1000 else f"{text}Z"


def iso(due_ms: int) -> str:
    return datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds")


def every(seconds: int, **fields: object) -> dict[str, object]:
    """A job of every so many seconds, counted from T0, not spread."""
    schedule = {"every": f"PT{seconds}S", "anchor": iso(T0)}
    return {"id": "j", "schedule": schedule, "timing": "exact", "target": TARGET, **fields}


def delivery(due_ms: int, *, late_ms: int = 5, generation: int = 1, job_id: str = "j") -> Delivery:
    suffix = f"~{generation}" if generation > 1 else ""
    return Delivery(TOPIC, job_id, f"{job_id}:{basic(due_ms)}{suffix}", due_ms, due_ms + late_ms)


def closing(
    due_ms: int, state: str, *, start_ms: int | None = None, until_ms: int | None = None, n: int = 1
) -> Closing:
    start = due_ms if start_ms is None else start_ms
    return Closing("j", f"j:{basic(due_ms)}", state, due_ms, start, until_ms, n)


def judged(
    *versions: Version,
    deliveries: Sequence[Delivery] = (),
    closings: Sequence[Closing] = (),
    until_ms: int = T0 + 30_000,
    settle_ms: int = 0,
) -> Report:
    histories: Mapping[str, Sequence[Version]] = {"j": versions}
    evidence = Evidence(versions=histories, deliveries=deliveries, closings=closings)
    return judge(evidence, until_ms=until_ms, settle_ms=settle_ms)


def test_all_is_well() -> None:
    report = judged(Version(T0, every(10)), deliveries=[delivery(T0 + at) for at in (10_000, 20_000, 30_000)])
    assert report.ok
    assert (report.jobs, report.runs, report.expected, report.delivered, report.decided) == (1, 3, 3, 3, 0)
    assert (report.late_ms_p50, report.late_ms_p99, report.late_ms_max) == (5, 5, 5)
    assert report.unjudged == {}


def test_a_missing_one_is_named() -> None:
    report = judged(Version(T0, every(10)), deliveries=[delivery(T0 + 10_000), delivery(T0 + 30_000)])
    assert [found[:2] for found in report.missing] == [("j", T0 + 20_000)]
    assert report.missing[0].reason == "no record and no decision"
    assert (report.expected, report.delivered, report.ok) == (3, 2, False)


def test_the_occurrence_at_the_acceptance_is_not_expected_and_the_one_at_the_end_is() -> None:
    report = judged(Version(T0, every(30)))
    assert [found.due_ms for found in report.missing] == [T0 + 30_000]
    assert judged(Version(T0, every(30)), until_ms=T0 + 29_999).missing == ()
    assert [found.due_ms for found in judged(Version(T0 - 1, every(30))).missing] == [T0, T0 + 30_000]


def test_what_may_still_come_is_not_missing() -> None:
    assert judged(Version(T0, every(30)), settle_ms=1).missing == ()
    assert len(judged(Version(T0, every(30)), until_ms=T0 + 30_001, settle_ms=1).missing) == 1


def test_a_spread_job_has_its_window_to_start_in() -> None:
    relaxed = every(10, timing="relaxed")
    assert judged(Version(T0, relaxed), until_ms=T0 + 10_999).missing == ()
    assert len(judged(Version(T0, relaxed), until_ms=T0 + 11_000).missing) == 1
    window = every(10, timing={"window": "PT4S"})
    assert judged(Version(T0, window), until_ms=T0 + 13_999).missing == ()
    assert len(judged(Version(T0, window), until_ms=T0 + 14_000).missing) == 1


def test_a_duplicate_is_named_and_counted_once() -> None:
    twice = [delivery(T0 + 30_000), delivery(T0 + 30_000, late_ms=900)]
    report = judged(Version(T0, every(30)), deliveries=twice)
    assert [found.run_id for found in report.duplicates] == [f"j:{basic(T0 + 30_000)}"]
    assert (report.runs, report.delivered, report.late_ms_max, report.ok) == (1, 1, 5, False)


@pytest.mark.parametrize("late_ms, early", [(-1, 1), (0, 0)])
def test_early_is_before_the_start(late_ms: int, early: int) -> None:
    report = judged(Version(T0, every(30)), deliveries=[delivery(T0 + 30_000, late_ms=late_ms)])
    assert len(report.early) == early


def test_the_start_comes_from_the_execution() -> None:
    record = delivery(T0 + 30_000, late_ms=1_000)
    closed = closing(T0 + 30_000, "succeeded", start_ms=T0 + 31_001)
    report = judged(Version(T0, every(30)), deliveries=[record], closings=[closed])
    assert report.early[0].reason == "1 ms before its start"
    assert report.late_ms_max == -1


def test_a_run_at_no_time_of_the_schedule_is_unexpected() -> None:
    report = judged(Version(T0, every(30)), deliveries=[delivery(T0 + 30_000), delivery(T0 + 15_000)])
    assert [found.due_ms for found in report.unexpected] == [T0 + 15_000]


def test_a_run_of_nobody_is_unexpected() -> None:
    report = judged(Version(T0, every(60)), deliveries=[delivery(T0 + 1, job_id="stranger")])
    assert [(found.job_id, found.reason) for found in report.unexpected] == [
        ("stranger", "no such job was ever accepted")
    ]


def test_runs_by_hand_are_judged_for_duplicates_only() -> None:
    by_hand = Delivery(TOPIC, "j", "j:m7", T0 + 3, T0 + 4)
    report = judged(Version(T0, every(60)), deliveries=[by_hand])
    assert (report.manual, report.ok) == (1, True)
    assert len(judged(Version(T0, every(60)), deliveries=[by_hand, by_hand]).duplicates) == 1


@pytest.mark.parametrize("state", ["skipped", "missed", "cancelled", "dead"])
def test_a_decision_is_not_missing(state: str) -> None:
    report = judged(Version(T0, every(30)), closings=[closing(T0 + 30_000, state)])
    assert (report.decided, report.missing, report.expected) == (1, (), 1)


def test_a_success_without_a_record_is_missing() -> None:
    report = judged(Version(T0, every(30)), closings=[closing(T0 + 30_000, "succeeded")])
    assert report.missing[0].reason == "closed as succeeded, but there is no record"


def test_a_range_covers_what_lies_in_it_and_nothing_else() -> None:
    coalesced = closing(T0 + 5_000, "coalesced", until_ms=T0 + 20_000, n=4)
    report = judged(Version(T0, every(5)), deliveries=[delivery(T0 + 25_000)], closings=[coalesced])
    assert [found.due_ms for found in report.missing] == [T0 + 30_000]
    assert (report.decided, report.delivered, report.unexpected) == (4, 1, ())


def test_a_range_that_counts_wrongly_is_named() -> None:
    coalesced = closing(T0 + 5_000, "coalesced", until_ms=T0 + 20_000, n=5)
    report = judged(Version(T0, every(5)), closings=[coalesced])
    assert report.unexpected[0].reason == "coalesced covers 5, its definition names 4 in that time"


def test_pausing_ends_and_resuming_begins_without_catching_up() -> None:
    versions = (
        Version(T0, every(10)),
        Version(T0 + 12_000, every(10, paused=True)),
        Version(T0 + 25_000, every(10)),
    )
    report = judged(*versions, deliveries=[delivery(T0 + 10_000), delivery(T0 + 30_000)])
    assert (report.ok, report.expected) == (True, 2)


def test_a_run_while_paused_is_unexpected_except_in_the_moment_of_the_update() -> None:
    versions = (Version(T0, every(10)), Version(T0 + 9_999, every(10, paused=True)))
    assert judged(*versions, deliveries=[delivery(T0 + 10_000)]).unexpected == ()
    assert len(judged(*versions, deliveries=[delivery(T0 + 20_000)]).unexpected) == 1


def test_an_update_changes_what_is_expected_from_then_on() -> None:
    versions = (Version(T0, every(10)), Version(T0 + 15_000, every(7)))
    report = judged(*versions, deliveries=[delivery(T0 + 10_000), delivery(T0 + 21_000)])
    assert [found.due_ms for found in report.missing] == [T0 + 28_000]
    assert report.unexpected == ()


def test_a_definition_that_another_one_overtook_was_never_in_force_before_that() -> None:
    """A request in the wrong partition is forwarded; the owner may decide an older one of the same job after it."""
    overtaken, paused = Version(T0, every(10)), Version(T0 + 15_000, every(10, paused=True))
    assert judged(Version(T0 + 25_000, every(10)), overtaken, paused, until_ms=T0 + 60_000).expected == 0
    assert judged(overtaken, paused, until_ms=T0 + 60_000).expected == 1


def test_a_deleted_job_expects_nothing_and_a_new_one_is_another_generation() -> None:
    versions = (Version(T0, every(10)), Version(T0 + 11_000, None), Version(T0 + 21_000, every(10)))
    again = delivery(T0 + 30_000, generation=2)
    assert judged(*versions, deliveries=[delivery(T0 + 10_000), again]).ok
    wrong = judged(*versions, deliveries=[delivery(T0 + 10_000), delivery(T0 + 30_000)])
    assert [found.due_ms for found in wrong.missing] == [T0 + 30_000]
    assert [found.due_ms for found in wrong.unexpected] == [T0 + 30_000]


def test_max_runs_ends_a_job_and_decisions_do_not_count() -> None:
    limited = every(10, max_runs=2)
    assert judged(Version(T0, limited), deliveries=[delivery(T0 + 10_000), delivery(T0 + 20_000)]).ok
    skipped = closing(T0 + 10_000, "skipped")
    report = judged(Version(T0, limited), deliveries=[delivery(T0 + 20_000)], closings=[skipped])
    assert [found.due_ms for found in report.missing] == [T0 + 30_000]


def test_a_one_off_runs_once_even_when_it_is_past() -> None:
    past = {"id": "j", "schedule": {"at": iso(T0 - 60_000)}, "target": TARGET}
    assert [found.due_ms for found in judged(Version(T0, past)).missing] == [T0 - 60_000]
    again = (Version(T0, past), Version(T0 + 1_000, {**past, "note": "the same"}))
    report = judged(*again, deliveries=[delivery(T0 - 60_000, late_ms=60_001)])
    assert (report.ok, report.expected) == (True, 1)


def test_a_one_off_that_is_moved_runs_at_the_new_time_only() -> None:
    first = {"id": "j", "schedule": {"at": iso(T0 + 20_000)}, "target": TARGET}
    second = {"id": "j", "schedule": {"at": iso(T0 + 25_000)}, "target": TARGET}
    report = judged(Version(T0, first), Version(T0 + 5_000, second), deliveries=[delivery(T0 + 25_000)])
    assert (report.ok, report.expected) == (True, 1)


BY_HANDLER = every(30, target={"handler": "resize"})
RUN_AT_30 = f"j:{basic(T0 + 30_000)}"


def closed_by_worker(state: str = "succeeded", *, begun_ms: int | None = T0 + 30_040, token: int = 1) -> Closing:
    """The end of the run at T0 + 30 s."""
    return Closing(
        "j", RUN_AT_30, state, T0 + 30_000, T0 + 30_000, target="handler:resize", token=token, begun_ms=begun_ms
    )


@pytest.mark.parametrize("target", [{"handler": "resize"}, {"http": {"url": "https://example.com"}}])
def test_what_a_worker_finished_is_proved_by_its_closing(target: Mapping[str, object]) -> None:
    report = judged(Version(T0, every(30, target=target)), closings=[closed_by_worker()])
    assert (report.runs, report.by_workers, report.expected, report.delivered) == (1, 1, 1, 1)
    assert (report.ok, report.late_ms_max, report.unjudged) == (True, 40, {})


def test_a_run_for_workers_that_left_no_trace_is_missing_and_one_that_is_live_is_unfinished() -> None:
    report = judged(Version(T0, BY_HANDLER))
    assert [found.reason for found in report.missing] == ["no record and no decision"]
    evidence = Evidence(versions={"j": [Version(T0, BY_HANDLER)]}, live=[LiveRun("j", RUN_AT_30, T0 + 30_000)])
    report = judge(evidence, until_ms=T0 + 30_000, settle_ms=0)
    assert (report.missing, report.unfinished, report.expected) == ((), 1, 0)
    other = Evidence(versions={"j": [Version(T0, BY_HANDLER)]}, live=[LiveRun("j", f"{RUN_AT_30}~2", T0 + 30_000)])
    assert len(judge(other, until_ms=T0 + 30_000, settle_ms=0).missing) == 1


@pytest.mark.parametrize(
    "first, second, again",
    [
        (("succeeded", 1), ("succeeded", 1), 1),
        (("succeeded", 1), ("dead", 2), 1),
        (("cancelled", 1), ("succeeded", 2), 1),
        (("dead", 1), ("dead", 1), 1),
        (("dead", 1), ("dead", 2), 0),
        (("dead", 1), ("succeeded", 2), 0),
        (("dead", 1), ("cancelled", 1), 0),
    ],
)
def test_a_run_is_closed_once_unless_it_was_dead_and_redriven(
    first: tuple[str, int], second: tuple[str, int], again: int
) -> None:
    closings = [closed_by_worker(state, token=token) for state, token in (first, second)]
    report = judged(Version(T0, BY_HANDLER), closings=closings)
    assert [found.run_id for found in report.duplicates] == [RUN_AT_30] * again
    assert (report.expected, report.missing) == (1, ())


def test_a_worker_that_starts_before_the_time_is_early() -> None:
    report = judged(Version(T0, BY_HANDLER), closings=[closed_by_worker(begun_ms=T0 + 29_999)])
    assert [found.reason for found in report.early] == ["1 ms before its start"]


def test_a_run_of_a_worker_at_no_time_of_the_schedule_is_unexpected() -> None:
    stray = Closing("j", f"j:{basic(T0 + 7_000)}", "succeeded", T0 + 7_000, T0 + 7_000, target="handler:resize")
    report = judged(Version(T0, BY_HANDLER), closings=[stray, closed_by_worker()])
    assert [found.due_ms for found in report.unexpected] == [T0 + 7_000]


@pytest.mark.parametrize(
    "fields, why",
    [
        ({"calendar": {"exclude": ["x"]}}, "`calendar` is not looked at"),
        ({"after": ["a"]}, "`after` is not looked at"),
        ({"dst": {"gap": "skip"}}, "`dst` is not looked at"),
        ({"schedule": {"after_completion": "PT5M"}}, "its kind of schedule is not judged"),
        ({"schedule": {"cron": "H * * * *"}}, "H depends on the id"),
        ({"schedule": {"cron": "0 0 LW * *"}}, "croniter reads"),
        ({"target": {"fax": "x"}}, "its target is of a kind that is not looked at"),
    ],
)
def test_what_is_not_judged_is_said(fields: dict[str, object], why: str) -> None:
    report = judged(Version(T0, every(10, **fields)), deliveries=[delivery(T0 + 1), delivery(T0 + 1)])
    assert report.unjudged["j"].startswith(why)
    assert (report.expected, report.missing, report.unexpected) == (0, (), ())
    assert len(report.duplicates) == 1


def test_a_history_with_a_hole_is_not_judged() -> None:
    report = judged(Version(T0, every(10), "older versions are gone from `jobs`"))
    assert report.unjudged == {"j": "older versions are gone from `jobs`"}


def test_quantiles_are_nearest_ranks() -> None:
    lates = [delivery(T0 + 10 * at * 1000, late_ms=at) for at in range(1, 201)]
    report = judged(Version(T0, every(10)), deliveries=lates, until_ms=T0 + 2_000_000)
    assert (report.late_ms_p50, report.late_ms_p99, report.late_ms_max) == (100, 198, 200)


def test_it_shares_no_code_with_what_it_judges() -> None:
    allowed = {"noontide.adapters", "noontide.ports.record_log", "noontide.records.topics", "noontide.testing"}
    for module in (checker, checker_evidence, checker_schedules):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            name = node.module if isinstance(node, ast.ImportFrom) else None
            if name is not None and name.startswith("noontide"):
                assert any(name.startswith(each) for each in allowed), f"{module.__name__} imports {name}"


def test_the_report_is_json_that_can_be_read() -> None:
    shown = judged(Version(T0, every(30))).as_json()
    assert shown["missing"] == [
        {"job_id": "j", "due_ms": T0 + 30_000, "run_id": "", "reason": "no record and no decision"}
    ]
    assert (shown["expected"], shown["late_ms_p50"]) == (1, None)


@pytest.mark.parametrize(
    "fields, begun_ms",
    [
        ({}, None),
        ({"started_at": iso(T0 + 40)}, T0 + 40),
        ({"started_at": iso(T0 + 9_000), "attempts": f'[{{"granted":{T0 + 40}}},{{"granted":{T0 + 4_000}}}]'}, T0 + 40),
        ({"started_at": iso(T0 + 9_000), "attempts": '[{"granted":0}]'}, T0 + 9_000),
    ],
)
def test_a_worker_began_a_run_at_its_first_start(fields: Mapping[str, object], begun_ms: int | None) -> None:
    assert checker_evidence._begun_ms(fields) == begun_ms
