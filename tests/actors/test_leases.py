"""Who may work on what, until when: claims, grants, heartbeats, expiry, and owners that come and go."""

from __future__ import annotations

import pytest
from tests.actors.workers import (
    W1,
    W2,
    beats,
    begin,
    claims,
    denials,
    end,
    grants,
    handler,
    lost,
    now,
    only,
    say,
)

from noontide.core.run import RunState
from noontide.records.topics import Layout
from noontide.records.worker_events import Frame, Outcome
from noontide.testing.builders import once
from noontide.testing.memory_stage import MemoryStage
from noontide.testing.scripted_worker import Crew, Work
from noontide.testing.virtual_clock import START_MS

RUN = "a:20260301T000000Z"
LEASE_MS, PROBE_MS = 30_000, 1_000


# --- offers and claims


async def test_a_run_is_offered_with_all_a_worker_needs(stage: MemoryStage) -> None:
    stage.put(now(payload={"n": 1.50}, timeout="PT2M", retry={"max_attempts": 3}, tenant="acme"))
    await stage.run_until_idle()
    (offer,) = stage.invitations()
    assert (offer.run_id, offer.job_id, offer.tenant, offer.attempt, offer.max_attempts) == (RUN, "a", "acme", 1, 3)
    assert (offer.due_ms, offer.start_ms, offer.slot) == (START_MS, START_MS, 0)
    assert (offer.timeout_ms, offer.lease_ms, offer.heartbeat_ms) == (120_000, LEASE_MS, LEASE_MS // 3)
    assert offer.target == {"handler": "work"}
    assert offer.payload == b'{"n": 1.50}' or offer.payload == b'{"n":1.5}'
    assert only(stage).state is RunState.QUEUED


async def test_the_first_run_of_a_lane_is_offered_by_the_transaction_that_claims_it(stage: MemoryStage) -> None:
    stage.put(handler("a", once(START_MS + 1_000)))
    await stage.run_until_idle()
    before = len(stage.records("noontide.leases"))
    await stage.advance(1_000)
    assert len(stage.records("noontide.leases")) == before + 1
    assert len(stage.invitations()) == 1


async def test_a_claim_in_time_counts_even_when_the_owner_reads_it_after_the_deadline(stage: MemoryStage) -> None:
    """Granted and lost in one cycle it would cost an attempt that nobody began."""
    stage.put(now(queue_deadline="PT5S"))
    await stage.run_until_idle()
    for _ in range(2):
        stage.clock.advance(2_000)
        stage.say(Frame(probe="owner"))
    stage.say(claims((RUN, 1)))
    for _ in range(2):
        stage.clock.advance(2_000)
        stage.say(Frame(probe="owner"))
    await stage.run_until_idle()
    assert grants(stage) == [(RUN, 1, 1, LEASE_MS)]
    run = only(stage)
    assert (run.state, run.attempt, run.history) == (RunState.RUNNING, 1, "")


async def test_the_first_claim_in_the_log_wins(stage: MemoryStage) -> None:
    stage.put(now())
    await stage.run_until_idle()
    await say(stage, claims((RUN, 1), worker=W2), claims((RUN, 1), worker=W1))
    assert grants(stage, W2) == [(RUN, 1, 1, LEASE_MS)]
    assert denials(stage, W1) == [(RUN, 1, "taken")]
    run = only(stage)
    assert (run.state, run.worker, run.attempt, run.token, run.granted_ms) == (RunState.RUNNING, W2, 1, 1, START_MS)


async def test_a_repeated_claim_gets_the_same_answer_and_changes_nothing(stage: MemoryStage) -> None:
    await begin(stage)
    before = len(stage.records("noontide.leases"))
    await say(stage, claims((RUN, 1)), claims((RUN, 1), (RUN, 1)))
    assert set(grants(stage)) == {(RUN, 1, 1, LEASE_MS)}
    assert len(grants(stage)) == 4
    assert len(stage.records("noontide.leases")) == before


async def test_a_claim_and_its_repetition_are_one_grant_also_across_owners(stage: MemoryStage) -> None:
    stage.slots[0].loses_answers = True
    await begin(stage)
    assert grants(stage) == []
    stage.slots[0].loses_answers = False
    await stage.crash(from_log_alone=True)
    await say(stage, claims((RUN, 1)))
    assert grants(stage) == [(RUN, 1, 1, LEASE_MS)]


@pytest.mark.parametrize("attempt", [-1, 0, 2, 3, 1 << 70])
async def test_another_attempt_than_the_offered_one_is_denied(stage: MemoryStage, attempt: int) -> None:
    stage.put(now())
    await stage.run_until_idle()
    await say(stage, claims((RUN, attempt)))
    assert grants(stage) == []
    assert only(stage).state is RunState.QUEUED
    await say(stage, claims((RUN, 1)))
    assert grants(stage) == [(RUN, 1, 1, LEASE_MS)]


async def test_a_lane_hears_only_of_its_own_runs(stage: MemoryStage) -> None:
    stage.put(now(lane="bulk"))
    await stage.run_until_idle()
    assert stage.invitations("default") == []
    await say(stage, claims((RUN, 1)))
    assert denials(stage) == [(RUN, 1, "closed")]
    stage.say(claims((RUN, 1), worker=W2), lane="bulk")
    await stage.run_until_idle()
    assert grants(stage, W2) == [(RUN, 1, 1, LEASE_MS)]
    # what is said on another lane neither ends nor extends it
    await say(stage, end(RUN, 1, worker=W2), beats((RUN, 1), worker=W2))
    assert only(stage).state is RunState.RUNNING
    assert stage.slots[0].slot.counts["stale_ends"] == 1
    assert lost(stage, W2) == [(RUN, 1)]


@pytest.mark.parametrize("name", [RUN, "nobody:20260301T000000Z", "", ":", "a", "\0", "x" * 5_000, "a:m1~2:"])
async def test_a_run_that_is_not_live_is_denied(stage: MemoryStage, name: str) -> None:
    await say(stage, claims((name, 1)))
    assert denials(stage) == [(name, 1, "closed")]


async def test_a_run_of_another_slot_is_denied() -> None:
    async with MemoryStage(layout=Layout(partitions=4, slots=2)) as stage:
        stage.put(now())
        await stage.run_until_idle()
        home = stage.layout.slot_of(stage.layout.partition_of(b"a"))
        assert stage.invitations()[0].slot == home
        stage.say(claims((RUN, 1)), slot=1 - home)
        await stage.run_until_idle()
        assert denials(stage) == [(RUN, 1, "closed")]
        stage.say(claims((RUN, 1)), slot=home)
        await stage.run_until_idle()
        assert grants(stage) == [(RUN, 1, 1, LEASE_MS)]


# --- heartbeats and expiry


async def test_the_lease_starts_at_the_grant_and_ends_after_its_length(stage: MemoryStage) -> None:
    stage.put(now(retry={"max_attempts": 3}))
    await stage.advance(100_000)  # queue time never counts
    await say(stage, claims((RUN, 1)))
    await stage.advance(LEASE_MS - 1)
    assert only(stage).state is RunState.RUNNING
    await stage.advance(PROBE_MS + 1)
    run = only(stage)
    assert (run.state, run.attempt, run.token) == (RunState.QUEUED, 1, 1)
    assert [offer.attempt for offer in stage.invitations()] == [1, 2]
    assert stage.slots[0].slot.counts["leases_lost"] == 1


async def test_the_next_attempt_of_a_lost_one_has_a_greater_token_and_a_history(stage: MemoryStage) -> None:
    await begin(stage)
    await stage.advance(LEASE_MS + PROBE_MS)
    await say(stage, claims((RUN, 2), worker=W2))
    assert grants(stage, W2) == [(RUN, 2, 2, LEASE_MS)]
    assert "w-1 was silent too long" in only(stage).history
    await say(stage, beats((RUN, 1)), end(RUN, 1))
    assert lost(stage) == [(RUN, 1)]
    assert only(stage).worker == W2


async def test_heartbeats_extend_the_lease_without_any_commit(stage: MemoryStage) -> None:
    """Case lea-07, and a heartbeat of an hour."""
    await begin(stage, timeout="P1D")
    before = {topic: len(stage.records(f"noontide.{topic}")) for topic in ("state", "leases", "executions")}
    for _ in range(360):
        await stage.advance(10_000)
        await say(stage, beats((RUN, 1)))
    assert before == {topic: len(stage.records(f"noontide.{topic}")) for topic in before}
    assert only(stage).state is RunState.RUNNING
    await stage.advance(LEASE_MS - 1)
    assert only(stage).state is RunState.RUNNING
    await stage.advance(1 + PROBE_MS)
    assert only(stage).state is RunState.QUEUED


@pytest.mark.parametrize("frame", [beats((RUN, 1), worker=W2), beats((RUN, 2)), beats((RUN, 0)), beats((RUN, -1))])
async def test_what_is_not_its_holder_extends_nothing(stage: MemoryStage, frame: object) -> None:
    """Not even when it speaks so often that nothing else is heard."""
    await begin(stage)
    for _ in range(2 * LEASE_MS // 500):
        await stage.advance(500)
        await say(stage, frame)  # type: ignore[arg-type]
    assert only(stage).state is RunState.QUEUED


async def test_a_lost_run_at_most_once_is_dead(stage: MemoryStage) -> None:
    await begin(stage, guarantee="at_most_once")
    await stage.advance(LEASE_MS + PROBE_MS)
    assert stage.leases() == {}
    (line,) = stage.executions("a")
    assert line["state"] == "dead"
    assert str(line["reason"]).startswith("outcome unknown")
    (letter,) = stage.dead_letters()
    assert letter["run_id"] == RUN
    assert len(stage.invitations()) == 1
    await say(stage, end(RUN, 1))
    assert len(stage.executions("a")) == 1


async def test_a_run_that_nobody_claimed_may_be_offered_again_at_most_once_too(stage: MemoryStage) -> None:
    stage.put(now(guarantee="at_most_once", queue_deadline="PT1M"))
    await stage.advance(62_000)
    assert len(stage.invitations()) == 2
    await say(stage, claims((RUN, 1)))
    assert grants(stage) == [(RUN, 1, 1, LEASE_MS)]


async def test_lost_again_and_again_is_dead_after_the_last_attempt(stage: MemoryStage) -> None:
    await begin(stage, retry={"max_attempts": 2})
    await stage.advance(LEASE_MS + PROBE_MS)
    await say(stage, claims((RUN, 2)))
    await stage.advance(LEASE_MS + PROBE_MS)
    (line,) = stage.executions("a")
    assert (line["state"], line["attempt"], line["token"]) == ("dead", 2, 2)
    assert str(line["reason"]).startswith("lease_lost")


async def test_an_owner_that_was_away_expires_nobody(stage: MemoryStage) -> None:
    await begin(stage)
    await stage.advance(20_000)
    await stage.jump(300_000)
    assert only(stage).state is RunState.RUNNING
    # a gap counts as one step: what was left of the lease is left, less that step
    await stage.advance(5_000)
    assert only(stage).state is RunState.RUNNING
    await stage.advance(5_000 + PROBE_MS)
    assert only(stage).state is RunState.QUEUED


async def test_what_was_said_while_the_owner_was_away_counts(stage: MemoryStage) -> None:
    """Case lea-14: the end was in the log before anybody could have expired it."""
    await begin(stage)
    await stage.advance(25_000)
    for _ in range(30):
        stage.clock.advance(10_000)
        stage.say(beats((RUN, 1)))
    stage.say(end(RUN, 1))
    stage.clock.advance(40_000)
    await stage.run_until_idle()
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_a_new_owner_gives_a_whole_lease_more(stage: MemoryStage, from_log_alone: bool) -> None:
    await begin(stage)
    await stage.advance(20_000)
    stage.put(now("b"))
    await say(stage, claims((f"b:{RUN[2:]}", 1), worker=W2))
    stage.clock.advance(300_000)
    await stage.crash(from_log_alone=from_log_alone)
    await stage.advance(LEASE_MS - 1)
    assert stage.leases()[RUN].state is RunState.RUNNING
    await stage.advance(1 + 2 * PROBE_MS)
    assert stage.leases()[RUN].state is RunState.QUEUED


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_a_new_owner_hears_what_the_one_before_heard(stage: MemoryStage, from_log_alone: bool) -> None:
    """Lease time that passed since the last commit has passed for the next owner too, and so were heartbeats."""
    await begin(stage)
    await stage.advance(20_000)
    await stage.crash(from_log_alone=from_log_alone)
    await stage.advance(9_000)
    assert only(stage).state is RunState.RUNNING
    await stage.advance(1_000 + PROBE_MS)
    assert only(stage).state is RunState.QUEUED


async def test_a_silent_log_is_no_silence_of_workers(stage: MemoryStage) -> None:
    """An outage of the broker: nothing could be said, so nobody is late."""
    await begin(stage)
    await stage.advance(20_000)
    stage.clock.advance(180_000)
    stage.say(beats((RUN, 1)))
    await stage.advance(LEASE_MS - 1)
    assert only(stage).state is RunState.RUNNING


async def test_the_owner_ends_what_takes_too_long(stage: MemoryStage) -> None:
    await begin(stage, timeout="PT1M", retry={"max_attempts": 3, "backoff": ["PT10S"]})
    grace_ms = stage.settings.timeout_grace_ms
    for _ in range(6):
        await stage.advance(10_000)
        await say(stage, beats((RUN, 1)))
    await stage.advance(grace_ms - 1)
    assert only(stage).state is RunState.RUNNING
    await stage.advance(1 + PROBE_MS)
    run = only(stage)
    assert (run.state, run.attempt) == (RunState.RETRY_WAIT, 1)
    assert "no end within 60000 ms" in run.history
    await say(stage, beats((RUN, 1)))
    assert lost(stage) == [(RUN, 1)]


async def test_a_heartbeat_does_not_put_the_end_of_the_time_off(stage: MemoryStage) -> None:
    await begin(stage, timeout="PT1M", retry={"max_attempts": 3, "backoff": ["PT1M"]})
    await stage.advance(20_000)
    for _ in range(50):
        await say(stage, beats((RUN, 1)))
        await stage.advance(1_000)
    assert only(stage).state is RunState.RETRY_WAIT


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_time_is_not_given_anew_by_each_owner(stage: MemoryStage, from_log_alone: bool) -> None:
    """At least a lease is, so that an end under way is heard; not the whole timeout."""
    await begin(stage, timeout="PT10M", retry={"max_attempts": 3, "backoff": ["PT1H"]})
    for _ in range(58):
        await stage.advance(10_000)
        await say(stage, beats((RUN, 1)))
    stage.put(now("b"))
    await say(stage, claims((f"b:{RUN[2:]}", 1), worker=W2))
    await stage.crash(from_log_alone=from_log_alone)
    for _ in range(6):
        await say(stage, beats((RUN, 1)))
        assert stage.leases()[RUN].state is RunState.RUNNING
        await stage.advance(5_000)
    await stage.advance(PROBE_MS)
    assert stage.leases()[RUN].state is RunState.RETRY_WAIT


# --- open runs


async def test_an_open_run_waits_without_heartbeats_and_is_ended_by_anybody_with_its_token(stage: MemoryStage) -> None:
    await begin(stage, timeout="PT10M")
    await say(stage, end(RUN, 1, Outcome.OPEN))
    await stage.advance(300_000)
    run = only(stage)
    assert (run.state, run.worker, run.reason) == (RunState.RUNNING, None, "waits for its completion")
    await say(stage, end(RUN, 2, worker="api"))
    assert only(stage).state is RunState.RUNNING
    await say(stage, end(RUN, 1, worker="api"))
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]


async def test_an_open_run_is_over_with_its_time(stage: MemoryStage) -> None:
    await begin(stage, timeout="PT10M", retry={"max_attempts": 1})
    await say(stage, end(RUN, 1, Outcome.OPEN))
    await stage.advance(600_000 + stage.settings.timeout_grace_ms - 1)
    assert only(stage).state is RunState.RUNNING
    await stage.advance(1 + PROBE_MS)
    assert [line["state"] for line in stage.executions("a")] == ["dead"]


async def test_a_late_heartbeat_does_not_give_an_open_run_a_lease(stage: MemoryStage) -> None:
    await begin(stage, timeout="PT10M")
    await say(stage, end(RUN, 1, Outcome.OPEN))
    await say(stage, beats((RUN, 1)))
    await stage.advance(5 * LEASE_MS)
    assert only(stage).state is RunState.RUNNING


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_an_open_run_stays_open_under_a_new_owner(stage: MemoryStage, from_log_alone: bool) -> None:
    await begin(stage, timeout="PT10M")
    await say(stage, end(RUN, 1, Outcome.OPEN))
    await stage.crash(from_log_alone=from_log_alone)
    await stage.advance(5 * LEASE_MS)
    assert only(stage).state is RunState.RUNNING
    await say(stage, end(RUN, 1, worker="api"))
    assert stage.leases() == {}


# --- owners that come and go


@pytest.mark.parametrize("took_effect", [True, False])
async def test_a_grant_in_doubt_is_given_once(stage: MemoryStage, took_effect: bool) -> None:
    stage.put(now())
    await stage.run_until_idle()
    stage.fail_next_commit(took_effect=took_effect)
    await say(stage, claims((RUN, 1)), claims((RUN, 1), worker=W2))
    await say(stage, claims((RUN, 1)), claims((RUN, 1), worker=W2))
    assert set(grants(stage)) == {(RUN, 1, 1, LEASE_MS)}
    assert grants(stage, W2) == []
    assert only(stage).token == 1


@pytest.mark.parametrize("took_effect", [True, False])
async def test_an_end_in_doubt_counts_once(stage: MemoryStage, took_effect: bool) -> None:
    await begin(stage)
    stage.fail_next_commit(took_effect=took_effect)
    await say(stage, end(RUN, 1))
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]
    assert len(stage.results("a")) == 1
    assert stage.leases() == {}


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_frames_are_read_once_across_owners(stage: MemoryStage, from_log_alone: bool) -> None:
    """A claim that was decided is not decided again: the attempt it asked for may be offered anew."""
    await begin(stage)
    await say(stage, end(RUN, 1, Outcome.HANDED_BACK))
    assert only(stage).attempt == 0
    await stage.crash(from_log_alone=from_log_alone)
    await stage.advance(10_000)
    run = only(stage)
    assert (run.state, run.token) == (RunState.QUEUED, 1)
    await say(stage, claims((RUN, 1), worker=W2))
    assert grants(stage, W2) == [(RUN, 1, 2, LEASE_MS)]


@pytest.mark.parametrize("from_log_alone", [False, True])
async def test_a_crash_at_any_moment_loses_nothing(from_log_alone: bool) -> None:
    """Cases lea-05, lea-10 and lea-19: after every single step of a busy minute."""
    for moment in range(0, 60, 7):
        async with MemoryStage() as stage:
            crew = Crew(stage)
            workers = [crew.hire(f"w-{number}", does=lambda _run: Work(1_500)) for number in range(2)]
            for name in ("a", "b", "c"):
                stage.put(now(name) | {"schedule": {"every": "PT5S"}, "overlap": "allow"})
            await stage.run_until_idle()
            for step in range(moment + 8):
                stage.clock.advance(350)
                if step == moment:
                    for worker in workers:
                        worker.step()
                    await stage.slots[0].step()
                    await stage.crash(from_log_alone=from_log_alone)
                await stage.run_until_idle()
            for name in ("a", "b", "c"):
                stage.put(now(name) | {"schedule": {"every": "PT5S"}, "overlap": "allow", "paused": True})
            await stage.advance(60_000)
            closed = [line["run_id"] for line in stage.executions()]
            assert len(closed) == len(set(closed)) == 3 * ((moment + 8) * 350 // 5_000)
            starts = [(start.run_id, start.token) for each in workers for start in each.starts]
            assert len(starts) == len(set(starts)) == len(closed)
            assert stage.leases() == {}


async def test_a_worker_that_dies_is_followed_by_another(stage: MemoryStage) -> None:
    """Case lea-05."""
    crew = Crew(stage)
    first = crew.hire(W1, does=lambda _run: Work(None))
    stage.put(now())
    await stage.run_until_idle()
    first.kill()
    second = crew.hire(W2)
    await stage.advance(LEASE_MS + 2 * PROBE_MS)
    assert [(start.attempt, start.token) for start in second.starts] == [(2, 2)]
    await stage.advance(2_000)
    assert [line["state"] for line in stage.executions("a")] == ["succeeded"]
