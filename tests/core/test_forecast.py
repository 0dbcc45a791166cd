"""A forecast is what one gets by walking each schedule on its own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noontide.core.forecast import OTHERS, Coming, ForecastBook
from noontide.core.occurrence import RELAXED, spread_offset
from noontide.core.schedule import ScheduleContext, parse_schedule, schedule_from_key

START_MS = 1_772_323_200_000  # 2026-03-01T00:00:00Z
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
GROUP = ("billing", "default", "handler:x")
SCHEDULES: list[object] = [
    "0 * * * *",
    "*/5 * * * *",
    "* * * * *",
    "30 1 * * *",
    {"cron": ["0 2 * * *", "15 * * * *"]},
    {"cron": "0,30 * * * * *", "seconds": True},
    {"every": "PT1S"},
    {"every": "PT7S"},
    {"every": "PT90S"},
    {"every": "PT17M", "anchor": "2026-02-28T23:50:30Z"},
    {"every": "PT3H"},
    {"after_completion": "PT10M"},
    {"at": "2026-03-01T02:30:10Z"},
]


def coming(job_id: str, schedule: object, **fields: object) -> Coming:
    context = ScheduleContext(timezone="UTC", job_id=job_id, created_ms=START_MS - 30_500)
    parsed = parse_schedule(schedule, context=context)
    due_ms = parsed.next_after(START_MS - 1)
    assert due_ms is not None
    spread_ms = spread_offset(job_id, timing=RELAXED, period_ms=parsed.period_ms()) if fields.pop("relaxed", 0) else 0
    start_ms = due_ms + spread_ms
    return Coming(job_id, GROUP, parsed.key, due_ms, start_ms, spread_ms)._replace(**fields)  # type: ignore[arg-type]


def book_of(*jobs: Coming, minutes: int = 240, groups_max: int = 100) -> ForecastBook:
    book = ForecastBook(START_MS, minutes=minutes, groups_max=groups_max)
    for each in jobs:
        book.add(each)
    for _ in book.expand():
        pass
    return book


def one_by_one(job: Coming, minutes: int) -> Counter[int]:
    """Each occurrence on its own."""
    counts: Counter[int] = Counter()
    schedule, runs = schedule_from_key(job.schedule_key), 0
    due_ms: int | None = job.due_ms
    while due_ms is not None and due_ms <= job.ends_at_ms and (not job.left or runs < job.left):
        minute = (due_ms + job.spread_ms - START_MS) // MINUTE_MS
        if minute >= minutes:
            break
        counts[minute] += 1
        runs += 1
        due_ms = schedule.next_after(due_ms)
    return counts


@given(
    st.lists(
        st.tuples(
            st.sampled_from([each for each in SCHEDULES if each != {"cron": "0,30 * * * * *", "seconds": True}]),
            st.booleans(),
            st.sampled_from([0, 1, 3]),
            st.sampled_from([1 << 62, START_MS + HOUR_MS, START_MS + 90 * MINUTE_MS - 1]),
        ),
        max_size=8,
    )
)
@settings(deadline=None, max_examples=60)
def test_jobs_counted_together_are_those_counted_one_by_one(
    drawn: list[tuple[object, bool, int, int]],
) -> None:
    jobs = [
        coming(f"job-{number}", schedule, relaxed=relaxed, left=left, ends_at_ms=ends_at_ms)
        for number, (schedule, relaxed, left, ends_at_ms) in enumerate(drawn)
    ]
    expected: Counter[int] = Counter()
    for job in jobs:
        expected.update(one_by_one(job, 240))
    found = book_of(*jobs).groups.get(GROUP)
    counts = {} if found is None else {minute: count for minute, count in enumerate(found.runs) if count}
    # To the minute: fractions of a second of a phase are cut, so a run at the very end of one may count to the other.
    assert abs(sum(counts.values()) - sum(expected.values())) <= len(jobs)
    for minute in range(240):
        assert abs(sum(counts.get(each, 0) for each in range(minute)) - sum(expected[each] for each in range(minute))) \
            <= len(jobs)  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_job_that_insists_on_its_minute_is_counted_exactly(schedule: object) -> None:
    job = coming("a", schedule)
    found = book_of(job).groups[GROUP]
    expected = one_by_one(job, 240)
    assert {minute: count for minute, count in enumerate(found.runs) if count} == dict(expected)


def test_exact_jobs_are_told_apart_and_spread_as_relaxed_ones_would_be() -> None:
    names = [f"job-{number}" for number in range(200)]
    exact = book_of(*(coming(name, "0 * * * *") for name in names)).groups[GROUP]
    relaxed = book_of(*(coming(name, "0 * * * *", relaxed=1) for name in names)).groups[GROUP]
    assert exact.runs[0] == exact.runs[60] == 200
    assert exact.exact == exact.runs
    assert exact.spread == relaxed.runs
    assert relaxed.exact is None
    assert max(relaxed.runs) < 80
    assert sum(relaxed.runs[:6]) == 200


def test_what_is_overdue_starts_at_once_and_what_is_beyond_the_end_does_not_count() -> None:
    late = coming("late", {"at": "2026-03-01T00:00:00Z"})._replace(start_ms=START_MS - HOUR_MS)
    edge = coming("edge", {"at": "2026-03-01T03:59:59.999Z"})
    beyond = coming("beyond", {"at": "2026-03-01T04:00:00Z"})
    book = book_of(late, edge, beyond)
    assert book.jobs == 2
    assert {minute: count for minute, count in enumerate(book.groups[GROUP].runs) if count} == {0: 1, 239: 1}


def test_too_many_groups_lose_their_targets_first_and_then_their_tenants() -> None:
    jobs = [
        coming(f"{tenant}-{target}", {"at": "2026-03-01T01:00:00Z"}, group=(tenant, "default", target))
        for tenant in ("a", "b", "c", "d", "e")
        for target in ("x", "y")
    ]
    book = book_of(*jobs, groups_max=4)
    assert book.merged
    assert len(book.groups) <= 5
    assert sum(series.runs[60] for series in book.groups.values()) == 10
    assert (OTHERS, "default", OTHERS) in book.groups


def test_calendars_are_asked() -> None:
    from noontide.core.occurrence import Occurrence

    def following(after_ms: int) -> Occurrence | None:
        at_ms = after_ms + 2 * HOUR_MS
        return Occurrence(at_ms, at_ms)

    job = coming("a", "0 * * * *", calendars="every other hour", following=following)
    assert [minute for minute, count in enumerate(book_of(job).groups[GROUP].runs) if count] == [0, 120]
