"""An attempt ends: results, next attempts, what is kept of the earlier ones, and runs that are given up."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import orjson
import pytest
from tests.actors.workers import begin, claims, end, handler, now, only, say

from noontide.core.policies import RetryPolicy
from noontide.core.retry import backoff_ms
from noontide.core.run import RunState
from noontide.ports.due_index import IndexBatch
from noontide.records import rows
from noontide.records.worker_events import Outcome
from noontide.testing.builders import after_completion, every, once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

RUN = "a:20260301T000000Z"
FIXED = {"max_attempts": 3, "backoff": ["PT10S", "PT30S"]}
FAILED = Outcome.FAILED


async def _fail(stage: MemoryStage, token: int, **more: object) -> None:
    frame = end(RUN, token, FAILED, error=f"boom {token}")
    frame.ends[0] = msgspec.structs.replace(frame.ends[0], **more)
    await say(stage, frame)


async def test_a_failed_attempt_waits_for_its_backoff(stage: MemoryStage) -> None:
    await begin(stage, retry=FIXED)
    await _fail(stage, 1)
    run = only(stage)
    assert (run.state, run.not_before_ms, run.worker) == (RunState.RETRY_WAIT, START_MS + 10_000, None)
    await stage.advance(9_999)
    assert len(stage.invitations()) == 1
    await stage.advance(1)
    assert [offer.attempt for offer in stage.invitations()] == [1, 2]
    await say(stage, claims((RUN, 2)))
    await _fail(stage, 2)
    assert only(stage).not_before_ms == START_MS + 40_000


async def test_each_attempt_says_when_it_was_queued(stage: MemoryStage) -> None:
    await begin(stage, retry=FIXED)
    await _fail(stage, 1)
    await stage.advance(10_000)
    assert (only(stage).state, only(stage).queued_ms) == (RunState.QUEUED, START_MS + 10_000)
    await stage.advance(500)
    await say(stage, claims((RUN, 2)))
    await say(stage, end(RUN, 2))
    (line,) = stage.executions("a")
    assert [each["queued"] for each in orjson.loads(str(line["attempts"]))] == [START_MS]
    assert (line["queued_at"], line["started_at"]) == ("2026-03-01T00:00:10.000Z", "2026-03-01T00:00:10.500Z")


async def test_exponential_backoff_has_full_jitter_and_is_the_same_when_decided_again(stage: MemoryStage) -> None:
    await begin(stage)
    stage.fail_next_commit(took_effect=False)
    await _fail(stage, 1)
    expected_ms = backoff_ms(RetryPolicy(), run_id=RUN, attempt=1)
    assert only(stage).not_before_ms == START_MS + expected_ms
    assert 0 < expected_ms <= 10_000


async def test_retry_after_is_obeyed_when_it_is_longer(stage: MemoryStage) -> None:
    await begin(stage, retry=FIXED)
    await _fail(stage, 1, retry_after_ms=120_000, status=503)
    assert only(stage).not_before_ms == START_MS + 120_000
    await stage.advance(120_000)
    await say(stage, claims((RUN, 2)))
    await _fail(stage, 2, retry_after_ms=5)
    assert only(stage).not_before_ms == START_MS + 150_000


@pytest.mark.parametrize("wait_ms", [-1, 0, 1 << 62, 1 << 80])
async def test_an_absurd_retry_after_does_no_harm(stage: MemoryStage, wait_ms: int) -> None:
    await begin(stage, retry=FIXED)
    await _fail(stage, 1, retry_after_ms=wait_ms)
    longest_ms = stage.settings.definition.delay_max_ms
    assert only(stage).not_before_ms == START_MS + (longest_ms if wait_ms > 0 else 10_000)


async def test_after_the_last_attempt_it_is_dead_and_kept(stage: MemoryStage) -> None:
    await begin(stage, retry=FIXED, payload={"n": 1}, tenant="acme")
    for token in (1, 2, 3):
        await _fail(stage, token)
        await stage.advance(30_000)
        await say(stage, claims((RUN, token + 1)))
    (line,) = stage.executions("a")
    assert (line["state"], line["attempt"], line["token"]) == ("dead", 3, 3)
    assert line["reason"] == "max_attempts: boom 3"
    attempts = orjson.loads(str(line["attempts"]))
    assert [(each["attempt"], each["token"], each["worker"], each["error"]) for each in attempts] == [
        (1, 1, "w-1", "boom 1"), (2, 2, "w-1", "boom 2"), (3, 3, "w-1", "boom 3"),
    ]  # fmt: skip
    (letter,) = stage.dead_letters()
    assert (letter["run_id"], letter["tenant"], letter["reason"], letter["error"]) == (
        RUN, "acme", "max_attempts", "boom 3",
    )  # fmt: skip
    assert letter["job"]["payload"] == {"n": 1}  # type: ignore[index]
    assert letter["attempts"] == line["attempts"]
    (result,) = stage.results()
    assert (result["state"], result["error"]) == ("dead", "boom 3")
    assert stage.leases() == {}


async def test_a_permanent_failure_is_dead_at_once(stage: MemoryStage) -> None:
    await begin(stage, retry=FIXED)
    await _fail(stage, 1, permanent=True)
    (line,) = stage.executions("a")
    assert (line["state"], line["reason"], line["attempt"]) == ("dead", "permanent: boom 1", 1)


async def test_the_history_of_attempts_is_bounded(stage: MemoryStage) -> None:
    await begin(stage, retry={"max_attempts": 60, "backoff": ["PT1S"]})
    for token in range(1, 51):
        await _fail(stage, token, error="x" * 5_000)
        await stage.advance(1_000)
        await say(stage, claims((RUN, token + 1)))
    attempts = orjson.loads(f"[{only(stage).history}]")
    assert [each["attempt"] for each in attempts] == list(range(31, 51))
    assert max(len(each["error"]) for each in attempts) == 300
    assert len(only(stage).history) < 10_000


async def test_a_next_attempt_survives_the_owner(stage: MemoryStage) -> None:
    await begin(stage, retry=FIXED)
    await _fail(stage, 1)
    await stage.crash(from_log_alone=True)
    await stage.advance(10_000)
    assert [offer.attempt for offer in stage.invitations()] == [1, 2]
    assert len(orjson.loads(f"[{only(stage).history}]")) == 1


async def test_ends_of_others_and_old_ones_change_nothing(stage: MemoryStage) -> None:
    await begin(stage, retry=FIXED)
    for frame in (end(RUN, 1, worker="w-2"), end(RUN, 0), end(RUN, 2), end(RUN, -1), end("b:m1", 1), end("", 1)):
        await say(stage, frame)
    assert only(stage).state is RunState.RUNNING
    assert stage.slots[0].slot.counts["stale_ends"] == 6
    await _fail(stage, 1)
    await _fail(stage, 1)
    await say(stage, end(RUN, 1))
    assert only(stage).state is RunState.RETRY_WAIT
    assert stage.slots[0].slot.counts["stale_ends"] == 8


async def test_at_most_once_a_failure_is_the_end(stage: MemoryStage) -> None:
    await begin(stage, guarantee="at_most_once")
    await _fail(stage, 1)
    (line,) = stage.executions("a")
    assert line["state"] == "dead"
    assert len(stage.invitations()) == 1


# --- definitions move on, runs do not


async def test_a_live_run_keeps_its_definition_through_updates_and_crashes(stage: MemoryStage) -> None:
    """Case rac-09."""
    await begin(stage, payload={"v": 1}, retry=FIXED, timeout="PT1M")
    stage.put(handler("a", every("PT1H"), payload={"v": 2}, retry={"max_attempts": 1}, timeout="PT2M"))
    await stage.run_until_idle()
    assert only(stage).kept
    await stage.crash(from_log_alone=True)
    await _fail(stage, 1)
    await stage.advance(10_000)
    offer = stage.invitations()[-1]
    assert (offer.attempt, offer.payload, offer.timeout_ms, offer.max_attempts) == (2, b'{"v":1}', 60_000, 3)
    await say(stage, claims((RUN, 2)), end(RUN, 2))
    await stage.advance(3_600_000)
    assert (only(stage).kept, stage.invitations()[-1].payload) == (False, b'{"v":2}')
    assert [key for key in stage._latest("state") if key.startswith(b"run/")] == []


async def test_a_completed_one_off_may_be_removed_while_its_run_retries(stage: MemoryStage) -> None:
    await begin(stage, payload={"v": 1}, retry={"max_attempts": 3, "backoff": ["P2D"]})
    await _fail(stage, 1)
    await stage.advance(stage.settings.completed_retention_ms + 60_000)
    assert stage.jobs() == {}
    assert only(stage).kept
    await stage.crash(from_log_alone=True)
    await stage.advance(stage.settings.completed_retention_ms)
    assert [(offer.attempt, offer.payload) for offer in stage.invitations()] == [(1, b'{"v":1}'), (2, b'{"v":1}')]
    await say(stage, claims((RUN, 2)), end(RUN, 2))
    assert stage.leases() == {}
    assert [key for key in stage._latest("state") if key.startswith(b"run/")] == []


async def test_a_run_whose_definition_is_lost_does_not_stop_the_others(stage: MemoryStage) -> None:
    for name in ("a", "b"):
        stage.put(now(name))
    await stage.run_until_idle()
    other = f"b:{RUN[2:]}"
    await say(stage, claims((RUN, 1), (other, 1)))
    home = stage.layout.partition_of(b"a")
    stage.slots[0].index.write(IndexBatch(puts={rows.job_key(home, b"a"): b"\xff"}))
    frame = end(RUN, 1, FAILED)
    frame.ends.append(end(other, 1).ends[0])
    await say(stage, frame)
    assert {str(line["job_id"]): line["state"] for line in stage.executions()} == {"a": "dead", "b": "succeeded"}
    assert "could not be handled" in str(stage.executions("a")[0]["reason"])
    assert stage.slots[0].doubts == 0


async def test_a_lost_run_whose_definition_is_lost_too_is_closed(stage: MemoryStage) -> None:
    await begin(stage)
    stage.slots[0].index.write(IndexBatch(puts={rows.job_key(stage.layout.partition_of(b"a"), b"a"): None}))
    await stage.advance(32_000)
    assert [line["state"] for line in stage.executions("a")] == ["dead"]
    assert stage.leases() == {}


@pytest.mark.parametrize("spoilt", [None, b"", b"\xff" * 200])
async def test_a_new_owner_is_not_stopped_by_a_live_run_without_its_definition(
    stage: MemoryStage, spoilt: bytes | None
) -> None:
    await begin(stage)
    stage.slots[0].index.write(IndexBatch(puts={rows.job_key(stage.layout.partition_of(b"a"), b"a"): spoilt}))
    await stage.take_over()
    await stage.advance(40_000)
    assert [line["state"] for line in stage.executions("a")] == ["dead"]


# --- schedules that follow the end of a run


async def test_after_completion_counts_from_the_end(stage: MemoryStage) -> None:
    crew = Crew(stage)
    crew.hire(does=lambda _run: Work(5_000))
    stage.put(handler("a", after_completion("PT10S")))
    await stage.advance(60_000)
    dues = [offer.due_ms - START_MS for offer in stage.invitations()]
    assert [later - earlier for earlier, later in pairwise(dues)] == [15_000] * (len(dues) - 1)
    assert len(dues) >= 4


async def test_after_completion_waits_for_all_attempts(stage: MemoryStage) -> None:
    stage.put(handler("a", after_completion("PT10S"), retry={"max_attempts": 2, "backoff": ["PT20S"]}))
    await stage.advance(10_000)
    (run_id,) = stage.leases()
    await say(stage, claims((run_id, 1)), end(run_id, 1, FAILED))
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.due_ms is None
    await stage.advance(20_000)
    await say(stage, claims((run_id, 2)), end(run_id, 2, FAILED))
    cursor = stage.cursor("a")
    assert cursor is not None
    assert cursor.due_ms == stage.clock.now_ms() + 10_000


@pytest.mark.parametrize("way", ["lost", "timeout", "cancelled", "open"])
async def test_after_completion_goes_on_however_a_run_ends(stage: MemoryStage, way: str) -> None:
    stage.put(handler("a", after_completion("PT10S"), retry={"max_attempts": 1}, timeout="PT20S"))
    await stage.advance(10_000)
    (run_id,) = stage.leases()
    await say(stage, claims((run_id, 1)))
    match way:
        case "timeout":
            await say(stage, end(run_id, 1, Outcome.OPEN))
        case "cancelled":
            stage.cancel("a")
            await say(stage, end(run_id, 1, Outcome.CANCELLED))
        case "open":
            await say(stage, end(run_id, 1, Outcome.OPEN), end(run_id, 1, worker="api"))
    await stage.advance(60_000)
    assert len(stage.invitations()) == 2


async def test_one_offs_run_once_however_often_owners_change(stage: MemoryStage) -> None:
    crew = Crew(stage)
    worker = crew.hire(does=lambda _run: Work(2_500))
    stage.put(handler("a", once(START_MS + 1_000)))
    for _ in range(8):
        await stage.advance(600)
        await stage.crash()
    assert len(worker.starts) == 1
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]
