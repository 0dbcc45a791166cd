"""Runs of past occurrences, made on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import orjson
import pytest
from tests.actors.lines import HOUR_MS, dues_s, history, reasons
from tests.actors.workers import handler

from noontide.actors.effects import Scene
from noontide.actors.firing import Due, Firing
from noontide.actors.settings import SchedulerSettings
from noontide.core.instants import format_instant
from noontide.records.job_row import JobRow
from noontide.testing.builders import cron, every, job, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

HOURLY = every("PT1H", anchor_ms=START_MS)


def backfill(stage: MemoryStage, job_id: str, from_h: float, to_h: float, **members: Any) -> int:
    """Ask for a range in hours after the start of the stage; returns the offset of the request."""
    bounds = {"from": _at(from_h), "to": _at(to_h)}
    headers = {"kind": "backfill", "verdict": "1"}
    key = members.pop("idempotency_key", None)
    if key is not None:
        headers["idempotency_key"] = str(key)
    return stage.request(job_id, orjson.dumps({**bounds, **members}), headers=headers)


def said(stage: MemoryStage, job_id: str, offset: int) -> dict[str, object]:
    """What the verdict on a request says of the backfill."""
    verdict = stage.verdicts()[f"requests.api/{stage.layout.partition_of(job_id)}/{offset}"]
    found = verdict["backfill"]
    assert isinstance(found, dict)
    return found


def _at(hours: float) -> str:
    return format_instant(START_MS + round(hours * HOUR_MS))


def hours(stage: MemoryStage) -> list[float]:
    """Due times of what was delivered, in hours after the start."""
    return [due_s / 3_600 for due_s in dues_s(stage)]


async def test_every_occurrence_of_the_range_runs_once_under_its_own_id(stage: MemoryStage) -> None:
    stage.put(job("a", HOURLY))
    await stage.advance(90_000)
    before = stage.cursor("a")
    offset = backfill(stage, "a", -3, 0)
    await stage.run_until_idle()
    assert stage.run_ids("orders") == ["a:20260228T210000Z", "a:20260228T220000Z", "a:20260228T230000Z"]
    assert said(stage, "a", offset) == {"from": _at(-3), "to": _at(0), "runs": 3, "skipped": 0, "dry_run": False}
    assert stage.cursor("a") == before
    await stage.advance(HOUR_MS)
    assert hours(stage) == [-3, -2, -1, 1]


async def test_what_the_schedule_or_a_backfill_has_dealt_with_is_skipped(stage: MemoryStage) -> None:
    stage.put(job("a", HOURLY))
    await stage.advance(2 * HOUR_MS)
    backfill(stage, "a", -2, 0)
    await stage.run_until_idle()
    offset = backfill(stage, "a", -4, 2)
    await stage.run_until_idle()
    assert said(stage, "a", offset)["runs"] == 3
    assert said(stage, "a", offset)["skipped"] == 3
    assert hours(stage) == [1, 2, -2, -1, -4, -3, 0]
    offset = backfill(stage, "a", -4, 2)
    await stage.run_until_idle()
    assert said(stage, "a", offset)["runs"] == 0
    assert len(hours(stage)) == 7


async def test_reprocess_runs_all_of_them_again_under_new_ids(stage: MemoryStage) -> None:
    stage.put(job("a", HOURLY))
    await stage.advance(2 * HOUR_MS)
    offset = backfill(stage, "a", 0.5, 1.5, reprocess=True)
    await stage.run_until_idle()
    assert stage.run_ids("orders")[2:] == [f"a:m{offset}-20260301t010000z"]
    assert hours(stage) == [1, 2, 1]


async def test_a_dry_run_only_says_what_would_be_made(stage: MemoryStage) -> None:
    stage.put(job("a", HOURLY))
    await stage.advance(1_000)
    offset = backfill(stage, "a", -24, 0, dry_run=True)
    await stage.run_until_idle()
    assert said(stage, "a", offset) == {"from": _at(-24), "to": _at(0), "runs": 24, "skipped": 0, "dry_run": True}
    assert stage.run_ids("orders") == []
    assert [each for each in stage.records("noontide.audit") if b"backfilled" in (each.value or b"")] == []


async def test_a_paused_job_is_filled_and_stays_paused(stage: MemoryStage) -> None:
    stage.put(job("a", HOURLY))
    await stage.advance(HOUR_MS)
    stage.put(job("a", HOURLY, paused=True))
    await stage.advance(3 * HOUR_MS)
    backfill(stage, "a", 0.5, 3.5)
    await stage.advance(HOUR_MS)
    assert hours(stage) == [1, 2, 3]
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.state == "paused"


async def test_calendars_have_their_say(stage: MemoryStage) -> None:
    stage.configure("calendar/days", {"dates": ["2026-02-26"]})
    stage.put(job("a", cron("0 6 * * *"), calendar={"exclude": ["days"]}))
    await stage.advance(1_000)
    backfill(stage, "a", -24 * 4, 0)
    await stage.run_until_idle()
    assert stage.run_ids("orders") == ["a:20260225T060000Z", "a:20260227T060000Z", "a:20260228T060000Z"]


@pytest.mark.parametrize(
    "hours_, members, reason",
    [
        ((-30, 0), {"max": 29}, "/to: the range has more than 29 occurrences; ask for less at a time"),
        ((-1, 2), {}, "/to: is in the future: it is 2026-03-01T00:00:01.000Z now"),
        (
            (-1, 0),
            {"overlap": "replace"},
            "/overlap: a backfill leaves none of its runs out: 'queue' (one after the other) or 'allow' (together)",
        ),
    ],
)
async def test_what_cannot_be_done_is_refused(
    stage: MemoryStage, hours_: tuple[int, int], members: dict[str, Any], reason: str
) -> None:
    stage.put(job("a", HOURLY))
    await stage.advance(1_000)
    backfill(stage, "a", *hours_, **members)
    await stage.run_until_idle()
    assert reasons(stage) == [reason]
    assert stage.run_ids("orders") == []


async def test_jobs_without_past_occurrences_are_refused(stage: MemoryStage) -> None:
    stage.put(job("once", once(START_MS + HOUR_MS)))
    stage.put(job("follower", HOURLY, after=["x"]))
    await stage.advance(1_000)
    for job_id in ("once", "follower", "nobody"):
        backfill(stage, job_id, -1, 0)
        await stage.run_until_idle()
    assert sorted((reason.partition(": ")[2] for reason in reasons(stage)), key=len, reverse=True) == [
        "only a job with a recurring schedule has past occurrences; trigger it instead",
        "the job waits for other jobs: trigger the first of them, with its dependants",
        "there is no job 'nobody'",
    ]


async def test_the_same_request_again_changes_nothing_and_gets_the_same_answer(stage: MemoryStage) -> None:
    stage.put(job("a", HOURLY))
    await stage.advance(1_000)
    first = backfill(stage, "a", -2, 0, idempotency_key="k")
    await stage.run_until_idle()
    again = backfill(stage, "a", -2, 0, idempotency_key="k")
    await stage.run_until_idle()
    assert said(stage, "a", first) == said(stage, "a", again)
    assert hours(stage) == [-2, -1]


# --- bounded work, crashes


@pytest.fixture
async def small() -> AsyncIterator[MemoryStage]:
    """A stage that makes two runs of backfills per cycle, and lets three live."""
    async with MemoryStage(settings=SchedulerSettings(backfill_cycle_max=2, backfill_live_max=3)) as stage:
        stage.register("orders")
        yield stage


@pytest.mark.parametrize("took_effect", [True, False])
@pytest.mark.parametrize("cycles", range(5))
async def test_a_lost_commit_neither_repeats_nor_leaves_out(
    small: MemoryStage, cycles: int, *, took_effect: bool
) -> None:
    small.put(job("a", HOURLY))
    await small.advance(1_000)
    backfill(small, "a", -7, 0)
    for _ in range(cycles):
        await small.slots[0].step()
    small.fail_next_commit(took_effect=took_effect)
    await small.run_until_idle()
    assert hours(small) == [-7, -6, -5, -4, -3, -2, -1]


@pytest.mark.parametrize("from_log_alone", [True, False])
@pytest.mark.parametrize("cycles", range(5))
async def test_a_crash_in_the_middle_is_no_loss(small: MemoryStage, cycles: int, *, from_log_alone: bool) -> None:
    small.put(job("a", HOURLY))
    await small.advance(1_000)
    backfill(small, "a", -7, 0)
    for _ in range(cycles):
        await small.slots[0].step()
    assert len(hours(small)) == min(7, max(0, 2 * (cycles - 1)))
    await small.crash(from_log_alone=from_log_alone)
    assert hours(small) == [-7, -6, -5, -4, -3, -2, -1]
    await small.crash(from_log_alone=from_log_alone)
    backfill(small, "a", -8, 0)
    await small.run_until_idle()
    assert hours(small)[7:] == [-8]


# --- runs that take time


async def test_runs_of_a_job_that_must_not_overlap_follow_one_another(stage: MemoryStage) -> None:
    worker = Crew(stage).hire(does=lambda _run: Work(60_000))
    stage.put(handler("a", HOURLY))
    await stage.advance(1_000)
    backfill(stage, "a", -3, 0)
    await stage.advance(90_000)
    await stage.crash(from_log_alone=True)
    await stage.advance(600_000)
    assert [start.run_id for start in worker.starts] == [f"a:20260228T2{hour}0000Z" for hour in (1, 2, 3)]
    apart = [(later.at_ms - start.at_ms) // 1_000 for start, later in pairwise(worker.starts)]
    assert min(apart) >= 60
    assert [state for _, state in history(stage, "a")] == ["succeeded"] * 3


async def test_runs_that_may_overlap_begin_together_up_to_a_limit(small: MemoryStage) -> None:
    worker = Crew(small).hire(does=lambda _run: Work(60_000))
    small.put(handler("a", HOURLY, complete_by="PT10M"))
    await small.advance(1_000)
    backfill(small, "a", -7, 0, overlap="allow")
    await small.advance(30_000)
    assert len(worker.starts) == len(small.leases()) == 3
    await small.advance(600_000)
    assert len(worker.starts) == 7
    assert len({start.run_id for start in worker.starts}) == 7
    assert {state for _, state in history(small, "a")} == {"succeeded"}


async def test_a_second_one_has_to_wait_and_a_cancel_ends_the_first(stage: MemoryStage) -> None:
    worker = Crew(stage).hire(does=lambda _run: Work(60_000))
    stage.put(handler("a", HOURLY))
    await stage.advance(1_000)
    backfill(stage, "a", -3, 0)
    await stage.advance(10_000)
    backfill(stage, "a", -5, -3)
    await stage.run_until_idle()
    assert reasons(stage) == ["(document): a backfill of this job is under way: 2 of its runs are still to be made"]
    stage.cancel("a")
    await stage.advance(600_000)
    assert len(worker.starts) == 1
    offset = backfill(stage, "a", -3, 0)
    await stage.advance(600_000)
    assert said(stage, "a", offset)["runs"] == 2
    assert len(worker.starts) == 3


async def test_a_deleted_job_has_no_more_runs_and_begins_anew(stage: MemoryStage) -> None:
    worker = Crew(stage).hire(does=lambda _run: Work(60_000))
    stage.put(handler("a", HOURLY))
    await stage.advance(1_000)
    backfill(stage, "a", -3, 0)
    await stage.advance(10_000)
    stage.delete("a")
    await stage.advance(600_000)
    assert len(worker.starts) == 1
    stage.put(handler("a", HOURLY))
    backfill(stage, "a", -3, 0)
    await stage.advance(600_000)
    assert [start.run_id for start in worker.starts[1:]] == [f"a:20260228T2{hour}0000Z~2" for hour in (1, 2, 3)]


async def test_what_follows_a_job_follows_its_backfill_too(stage: MemoryStage) -> None:
    stage.put(job("a", HOURLY))
    stage.put(job("b", None, after=["a"]))
    await stage.advance(1_000)
    backfill(stage, "a", -2, 0)
    await stage.run_until_idle()
    assert sorted(stage.run_ids("orders")) == [f"{each}:20260228T2{hour}0000Z" for each in "ab" for hour in (2, 3)]


async def test_a_job_that_is_changed_goes_on_as_it_is_now_and_ends_without_a_schedule(stage: MemoryStage) -> None:
    worker = Crew(stage).hire(does=lambda _run: Work(60_000))
    stage.put(handler("a", HOURLY))
    await stage.advance(1_000)
    backfill(stage, "a", -6, 0)
    await stage.advance(10_000)
    stage.put(handler("a", every("PT2H", anchor_ms=START_MS)))
    await stage.advance(60_000)
    assert [start.run_id[-8:] for start in worker.starts] == ["T180000Z", "T200000Z"]
    stage.put(handler("a", once(START_MS + 10 * HOUR_MS)))
    await stage.advance(600_000)
    assert len(worker.starts) == 2
    stage.put(handler("a", HOURLY))
    offset = backfill(stage, "a", -6, 0)
    await stage.advance(600_000)
    assert said(stage, "a", offset)["skipped"] == 3
    assert [start.run_id[-8:] for start in worker.starts[2:]] == ["T210000Z", "T220000Z", "T230000Z"]


async def test_one_that_cannot_be_handled_ends_and_the_others_go_on(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Firing.claim

    def claims(self: Firing, due: Due, name: str, row: JobRow, scene: Scene) -> int:
        if due.job_id == "bad" and due.due_ms < START_MS - HOUR_MS:
            raise ValueError("a defect")
        return claim(self, due, name, row, scene)

    monkeypatch.setattr(Firing, "claim", claims)
    for job_id in ("bad", "good"):
        stage.put(job(job_id, HOURLY))
    await stage.advance(1_000)
    for job_id in ("bad", "good"):
        backfill(stage, job_id, -2, 0)
    await stage.run_until_idle()
    assert [run_id.partition(":")[0] for run_id in stage.run_ids("orders")] == ["good", "good"]
    backfill(stage, "bad", -1, 0)
    await stage.run_until_idle()
    assert stage.run_ids("orders")[2:] == ["bad:20260228T230000Z"]
