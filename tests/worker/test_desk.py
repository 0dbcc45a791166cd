"""What the desk decides: claims, grants, heartbeats, ends, and everything that can go wrong between them."""

from __future__ import annotations

import msgspec
import pytest
from tests.worker.desk_scene import Scene, run
from tests.worker.memory_owner import LEASE_MS

from noontide.records.worker_events import End, Outcome
from noontide.worker.holding import Stop

START_WITHIN_MS = LEASE_MS * 4 // 5


def outcomes(ends: list[End]) -> list[tuple[str, int, Outcome]]:
    return [(end.run_id, end.token, end.outcome) for end in ends]


# --- claims


def test_claims_are_sent_for_free_places_only_and_the_rest_is_held() -> None:
    scene = Scene(concurrency=2, prefetch=2)
    assert scene.desk.wanted(scene.now_ms) == 4
    scene.invite(1, 2, 3)
    assert scene.post().claims == [(run(1), 1), (run(2), 1)]
    assert scene.desk.wanted(scene.now_ms) == 1
    scene.answer(denied=[(run(1), 1, "taken")])
    assert scene.post().claims == [(run(3), 1)]
    assert scene.desk.busy == 2


def test_a_message_is_accepted_when_its_claim_is_in_the_log_and_not_before() -> None:
    scene = Scene()
    scene.invite(1)
    outgoing = scene.take()
    assert outgoing is not None
    assert scene.accepted() == []
    scene.desk.logged(outgoing)
    assert scene.accepted() == [0]
    scene.grant(1)
    assert scene.accepted() == []


def test_a_second_copy_of_what_is_in_hand_is_accepted_and_nothing_else() -> None:
    scene = Scene()
    scene.invite(1)
    scene.post()
    scene.accepted()
    scene.invite(1)
    assert (scene.accepted(), scene.post().claims) == ([1], [])
    scene.grant(1)
    scene.invite(1)
    assert (scene.accepted(), scene.post().claims) == ([2], [])


def test_another_attempt_of_the_same_run_is_another_thing() -> None:
    scene = Scene()
    scene.running(1, token=7)
    scene.invite(1, attempt=2)
    assert scene.post().claims == [(run(1), 2)]
    assert len(scene.grant(1, 8, attempt=2)) == 1


def test_what_is_no_invitation_is_accepted_and_noted() -> None:
    from noontide.ports.run_source import Delivered

    scene = Scene()
    scene.desk.invited("default", [Delivered((0, 9), b"{}", False)], scene.now_ms)
    assert scene.accepted() == [9]
    assert "not an invitation" in scene.notes()[0]


def test_a_claim_that_nobody_answers_is_repeated_after_the_retry_time() -> None:
    scene = Scene(claim_retry_ms=3_000)
    scene.invite(1)
    scene.post()
    scene.pass_ms(2_999)
    assert scene.post().claims == []
    scene.pass_ms(1)
    scene.pass_ms(20)  # ticks come no closer than this
    assert scene.post().claims == [(run(1), 1)]
    assert len(scene.grant(1)) == 1


def test_a_claim_that_is_still_on_its_way_is_not_repeated() -> None:
    scene = Scene(claim_retry_ms=3_000)
    scene.invite(1)
    outgoing = scene.take()
    scene.pass_ms(10_000)
    assert scene.take() is None
    assert outgoing is not None
    scene.desk.logged(outgoing)
    scene.pass_ms(100)
    assert scene.post().claims == [(run(1), 1)]


def test_a_claim_without_an_answer_is_dropped_when_a_grant_would_be_too_late() -> None:
    scene = Scene(concurrency=1)
    scene.invite(1)
    scene.post()
    scene.pass_ms(START_WITHIN_MS - 1)
    assert scene.desk.busy == 1
    scene.pass_ms(20)
    assert scene.desk.busy == 0
    scene.post()
    assert scene.grant(1, 7) == []
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.HANDED_BACK)]


@pytest.mark.parametrize("last", [False, True])
def test_a_claim_that_did_not_reach_the_log_in_time_goes_back_to_the_group(last: bool) -> None:
    scene = Scene()
    scene.invite(1, last=last)
    outgoing = scene.take()
    assert outgoing is not None
    scene.pass_ms(START_WITHIN_MS + 20)
    assert (scene.released(), scene.accepted()) == (([], [0]) if last else ([0], []))
    scene.desk.logged(outgoing)
    assert (scene.released(), scene.accepted()) == ([], [])
    assert scene.grant(1, 7) == []
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.HANDED_BACK)]


# --- grants


@pytest.mark.parametrize("waited_ms, starts", [(START_WITHIN_MS - 1, 1), (START_WITHIN_MS, 0)])
def test_a_grant_starts_only_while_enough_of_the_lease_is_left(waited_ms: int, starts: int) -> None:
    scene = Scene()
    scene.invite(1)
    scene.post()
    scene.now_ms += waited_ms
    assert len(scene.grant(1, 7)) == starts
    handed_back = [] if starts else [(run(1), 7, Outcome.HANDED_BACK)]
    assert outcomes(scene.post().ends) == handed_back


def test_the_lease_counts_from_the_first_claim_since_a_repeated_answer_is_about_that_one() -> None:
    scene = Scene(claim_retry_ms=3_000)
    scene.invite(1)
    scene.post()
    for _ in range(7):
        scene.pass_ms(3_000)
        scene.post()
    scene.now_ms += START_WITHIN_MS - 7 * 3_000
    assert scene.grant(1) == []


def test_a_grant_that_comes_again_after_the_end_starts_nothing_though_the_run_is_claimed_again() -> None:
    scene = Scene()
    scene.end(scene.running(1, token=7))
    scene.invite(1)
    frame = scene.post()
    assert (frame.claims, outcomes(frame.ends)) == ([(run(1), 1)], [(run(1), 7, Outcome.SUCCEEDED)])
    assert scene.grant(1, 7) == []
    (holding,) = scene.grant(1, 8)  # the owner has read the end by now
    assert holding.token == 8


def test_a_grant_that_comes_again_after_the_run_was_passed_on_takes_it_from_nobody() -> None:
    scene = Scene()
    scene.desk.forget(scene.running(1, token=7))
    assert scene.grant(1, 7) == []
    assert scene.post().ends == []
    assert scene.desk.busy == 0


def test_of_attempts_that_are_over_only_the_latest_are_known() -> None:
    scene = Scene(over_max=2)
    for number in (1, 2, 3):
        scene.desk.forget(scene.running(number))
        assert scene.grant(number) == []
    scene.grant(2)
    assert scene.post().ends == []
    scene.grant(1)
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.HANDED_BACK)]


def test_a_doubled_grant_starts_once() -> None:
    scene = Scene()
    holding = scene.running(1, token=7)
    assert scene.grant(1, 7) == []
    assert scene.post().ends == []
    scene.end(holding)
    assert scene.grant(1, 7) == []
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.SUCCEEDED)]


def test_a_newer_grant_of_what_still_runs_is_handed_back() -> None:
    scene = Scene()
    scene.running(1, token=7)
    assert scene.grant(1, 9) == []
    assert outcomes(scene.post().ends) == [(run(1), 9, Outcome.HANDED_BACK)]


def test_a_grant_nobody_asked_for_is_handed_back() -> None:
    scene = Scene()
    scene.invite(1)
    scene.post()
    assert scene.grant(5, 7) == []
    assert outcomes(scene.post().ends) == [(run(5), 7, Outcome.HANDED_BACK)]


def test_a_denial_frees_the_place_and_one_that_comes_after_a_grant_is_ignored() -> None:
    scene = Scene()
    scene.running(1)
    scene.answer(denied=[(run(1), 1, "taken")])
    assert scene.desk.busy == 1


# --- heartbeats


def test_heartbeats_go_on_until_the_end_and_count_from_the_claim() -> None:
    scene = Scene()
    scene.invite(1)
    scene.post()
    scene.now_ms += 4_000
    (holding,) = scene.grant(1, 7)
    scene.pass_ms(5_999)
    assert scene.post().beats == []
    scene.pass_ms(20)
    assert scene.post().beats == [(run(1), 7)]
    scene.pass_ms(10_000)
    assert scene.post().beats == [(run(1), 7)]
    scene.end(holding)
    assert scene.post().ends[0].duration_ms == 16_019
    scene.pass_ms(30_000)
    assert scene.post().beats == []


def test_progress_is_the_latest_word_only() -> None:
    scene = Scene()
    holding = scene.running(1, token=7)
    scene.desk.progressed(holding, 0.1, "one")
    scene.desk.progressed(holding, 0.2, "two")
    assert scene.post().progress == [(run(1), 7, 0.2, "two")]


def test_large_results_are_spread_over_frames_in_order() -> None:
    scene = Scene(concurrency=3, frame_max_bytes=100_000)
    scene.invite(1, 2, 3)
    scene.post()
    for number in (1, 2, 3):
        (holding,) = scene.grant(number, number)
        end = End(run_id=run(number), token=number, outcome=Outcome.SUCCEEDED, result=msgspec.Raw(b"1" * 60_000))
        scene.desk.ended(holding, end, scene.now_ms)
    frames = []
    while (outgoing := scene.take()) is not None:
        frames.append([end.token for end in outgoing.frame.ends])
    assert frames == [[1], [2], [3]]


# --- timeouts, cancels, lost leases


def test_a_task_is_cancelled_at_its_timeout_and_given_up_after_the_grace() -> None:
    scene = Scene(stop_grace_ms=5_000)
    holding = scene.running(1, token=7, timeout_ms=8_000)
    scene.pass_ms(7_999)
    assert scene.stopped() == []
    scene.pass_ms(20)
    assert scene.stopped() == [holding]
    assert holding.stop is Stop.TIMED_OUT
    scene.pass_ms(4_999)
    assert scene.post().ends == []
    scene.pass_ms(20)
    (end,) = scene.post().ends
    assert (end.outcome, end.error) == (Outcome.FAILED, "timed out after 13.0 s; the task does not end")
    assert (scene.desk.busy, scene.desk.stuck) == (1, 1)


def test_a_thread_that_does_not_return_costs_a_place_until_it_does() -> None:
    scene = Scene(concurrency=1, prefetch=0)
    holding = scene.running(1, token=7, handler="thread", timeout_ms=8_000)
    scene.pass_ms(8_000)
    (end,) = scene.post().ends
    assert (end.outcome, end.error) == (Outcome.FAILED, "timed out after 8.0 s; the thread is still running")
    assert scene.stopped() == [holding]
    assert scene.desk.busy == 1
    scene.pass_ms(60_000)
    assert scene.post().beats == []
    scene.end(holding)
    assert (scene.desk.busy, scene.desk.stuck) == (0, 0)
    assert scene.post().ends == []
    assert "has returned" in scene.notes()[-1]


def test_a_cancelled_run_is_stopped_once_and_holds_its_lease_until_it_ends() -> None:
    scene = Scene()
    holding = scene.running(1, token=7)
    for _ in range(2):
        scene.answer(cancels=[(run(1), 7, "wrong data")])
    assert scene.stopped() == [holding]
    scene.pass_ms(10_000)
    assert scene.post().beats == [(run(1), 7)]
    scene.end(holding, Outcome.CANCELLED)
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.CANCELLED)]


def test_a_cancel_with_another_token_is_ignored() -> None:
    scene = Scene()
    scene.running(1, token=7)
    scene.answer(cancels=[(run(1), 6, "old")])
    assert scene.stopped() == []


def test_after_a_lost_lease_nothing_more_is_said_and_the_place_is_free_when_the_handler_ends() -> None:
    scene = Scene(concurrency=1, prefetch=0)
    holding = scene.running(1, token=7)
    scene.answer(lost=[(run(1), 7)])
    assert scene.stopped() == [holding]
    assert holding.stop is Stop.LOST
    assert scene.desk.busy == 1
    scene.pass_ms(10_000)
    scene.end(holding)
    frame = scene.post()
    assert (frame.beats, frame.ends, scene.desk.busy) == ([], [], 0)


def test_a_lost_run_can_be_granted_again_while_its_old_attempt_still_runs() -> None:
    scene = Scene()
    old = scene.running(1, token=7)
    scene.answer(lost=[(run(1), 7)])
    scene.invite(1)
    scene.post()
    (new,) = scene.grant(1, 8)
    assert new is not old
    scene.end(old)
    scene.end(new)
    assert outcomes(scene.post().ends) == [(run(1), 8, Outcome.SUCCEEDED)]
    assert scene.desk.busy == 0


# --- handlers that are not here


def test_a_stranger_is_claimed_kept_alive_and_handed_back_without_taking_a_place() -> None:
    scene = Scene(concurrency=1, prefetch=0, stranger_ms=15_000)
    scene.invite(1, handler="elsewhere")
    assert scene.post().claims == [(run(1), 1)]
    assert scene.desk.busy == 0
    assert scene.grant(1, 7) == []
    scene.pass_ms(10_000)
    assert scene.post().beats == [(run(1), 7)]
    scene.pass_ms(5_000)
    (end,) = scene.post().ends
    assert (end.outcome, end.error) == (Outcome.HANDED_BACK, "no handler 'elsewhere' in this worker")


def test_a_stranger_that_must_run_at_most_once_is_handed_back_at_once() -> None:
    scene = Scene()
    scene.invite(1, handler="elsewhere", guarantee="at_most_once")
    scene.post()
    scene.grant(1, 7)
    scene.pass_ms(20)
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.HANDED_BACK)]


def test_a_missing_handler_is_named_once_a_minute() -> None:
    scene = Scene()
    for number, wait_ms in enumerate((0, 59_999, 1)):
        scene.pass_ms(wait_ms)
        scene.invite(number, handler="elsewhere")
        scene.post()
        scene.grant(number, 7 + number)
    assert sum("'elsewhere'" in note for note in scene.notes()) == 2


# --- a full worker


def test_a_worker_that_stays_full_lets_go_of_what_it_holds_and_wants_nothing() -> None:
    scene = Scene(concurrency=1, prefetch=3, hold_ms=2_000)
    scene.running(1)
    scene.invite(2, 3)
    assert scene.desk.wanted(scene.now_ms) == 1
    scene.pass_ms(1_999)
    assert scene.released() == []
    scene.pass_ms(20)
    assert scene.released() == [1, 2]
    assert scene.desk.wanted(scene.now_ms) == 0


def test_what_the_group_would_give_up_is_kept_and_claimed_later() -> None:
    scene = Scene(concurrency=1, prefetch=3, hold_ms=2_000)
    holding = scene.running(1)
    scene.accepted()
    scene.invite(2, last=True)
    scene.pass_ms(2_020)
    assert (scene.released(), scene.accepted()) == ([], [1])
    scene.end(holding)
    assert scene.post().claims == [(run(2), 1)]


def test_no_invitation_is_held_for_longer_than_its_lock_allows() -> None:
    scene = Scene(concurrency=1, prefetch=9, hold_ms=2_000, hold_max_ms=8_000)
    holding = scene.running(1)
    scene.invite(2, 3, 4, 5, 6, 7, 8, 9)
    for number in range(2, 7):  # a place is free again every 1.5 s: never full for long
        scene.pass_ms(1_500)
        scene.end(holding)
        scene.post()
        (holding,) = scene.grant(number, number)
    scene.pass_ms(499)
    assert scene.released() == []
    scene.pass_ms(20)
    assert scene.released() == [6, 7, 8]


# --- the end


def test_a_stop_releases_what_is_held_and_hands_back_what_is_granted_from_then_on() -> None:
    scene = Scene(concurrency=2, prefetch=2)
    holding = scene.running(1)
    scene.invite(2, 3)
    scene.post()
    scene.desk.drain(scene.now_ms)
    assert scene.released() == [2]
    assert scene.grant(2, 8) == []
    assert outcomes(scene.post().ends) == [(run(2), 8, Outcome.HANDED_BACK)]
    assert not scene.desk.idle
    scene.end(holding)
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.SUCCEEDED)]
    assert scene.desk.idle
    scene.invite(4)
    assert scene.released() == [3]
    assert scene.desk.wanted(scene.now_ms) == 0


def test_after_the_drain_time_tasks_are_stopped_and_threads_left_behind() -> None:
    scene = Scene()
    task = scene.running(1, token=7)
    thread = scene.running(2, token=8, handler="thread")
    scene.desk.drain(scene.now_ms)
    scene.now_ms += 30_000
    scene.desk.give_up(scene.now_ms)
    assert set(scene.stopped()) == {task, thread}
    assert task.stop is Stop.SHUTDOWN
    (end,) = scene.post().ends
    assert (end.run_id, end.error) == (run(2), "worker stopped after 30.0 s; the thread is still running")
    scene.end(task, Outcome.HANDED_BACK)
    assert outcomes(scene.post().ends) == [(run(1), 7, Outcome.HANDED_BACK)]
    assert scene.desk.idle
