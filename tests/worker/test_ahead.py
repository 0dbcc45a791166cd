"""Claims ahead of free places: how many, what becomes of their grants, and that no more run than may."""

from __future__ import annotations

from tests.worker.desk_scene import Scene, run

from noontide.records.worker_events import Outcome
from noontide.worker.holding import Holding, Phase

SHORT_MS = 10
TICK_MS = 20


def practised(duration_ms: int = SHORT_MS, **settings: int) -> Scene:
    """A worker of two places whose attempts have taken so long until now."""
    scene = Scene(**{"prefetch": 20, "ahead_ms": 50, "ahead_max": 100, **settings})
    holding = scene.running(90)
    scene.pass_ms(duration_ms)
    scene.end(holding)
    scene.post()
    return scene


def claimed(scene: Scene) -> list[str]:
    return [run_id for run_id, _ in scene.post().claims]


def filled(scene: Scene, *numbers: int) -> list[Holding]:
    """All of them claimed and granted; those that were started."""
    scene.invite(*numbers)
    assert claimed(scene) == [run(number) for number in numbers]
    return [holding for number in numbers for holding in scene.grant(number)]


def test_nothing_is_claimed_ahead_before_an_attempt_has_ended() -> None:
    scene = Scene(prefetch=20)
    scene.invite(*range(6))
    assert claimed(scene) == [run(0), run(1)]


def test_claims_go_ahead_by_what_the_places_get_done_in_that_time() -> None:
    scene = practised()  # two places, 10 ms each: ten runs in 50 ms
    scene.invite(*range(20))
    assert claimed(scene) == [run(number) for number in range(12)]
    assert scene.desk.busy == 12


def test_long_attempts_are_not_claimed_ahead() -> None:
    scene = practised(duration_ms=200)
    scene.invite(*range(6))
    assert claimed(scene) == [run(0), run(1)]


def test_never_more_than_the_most_that_is_allowed() -> None:
    scene = practised(ahead_max=3)
    scene.invite(*range(20))
    assert len(claimed(scene)) == 5


def test_places_on_which_nothing_has_ended_for_a_while_count_as_long() -> None:
    scene = practised()
    filled(scene, 1, 2)
    scene.pass_ms(99)
    scene.invite(3, 4)
    assert claimed(scene) == [run(3)]
    scene.pass_ms(2)
    scene.invite(5)
    assert claimed(scene) == []


def test_a_run_granted_ahead_starts_when_a_place_is_free_and_its_time_begins_then() -> None:
    scene = practised()
    first, second = filled(scene, 1, 2, 3, 4)
    scene.pass_ms(SHORT_MS)
    scene.end(second)
    (third,) = scene.started()
    assert (third.invitation.run_id, third.phase, third.started_ms) == (run(3), Phase.RUNNING, scene.now_ms)
    assert third.until_ms == scene.now_ms + third.invitation.timeout_ms
    scene.end(first)
    assert [holding.invitation.run_id for holding in scene.started()] == [run(4)]


def test_a_run_that_finds_no_place_is_handed_back_and_costs_no_attempt() -> None:
    scene = practised(ready_ms=2_000)
    filled(scene, 1, 2, 3)
    scene.pass_ms(1_999)
    assert scene.post().ends == []
    scene.pass_ms(TICK_MS)
    (end,) = scene.post().ends
    assert (end.run_id, end.outcome, end.error) == (run(3), Outcome.HANDED_BACK, "no place was free")
    assert scene.desk.busy == 2


def test_a_run_handed_back_does_not_start_when_a_place_is_free_later() -> None:
    scene = practised()
    first, _ = filled(scene, 1, 2, 3)
    scene.pass_ms(3_000)
    scene.end(first)
    assert scene.started() == []


def test_a_run_that_waits_for_a_place_keeps_its_lease() -> None:
    scene = practised()
    scene.invite(1, 2, 3, heartbeat_ms=1_000)
    scene.post()
    for number in (1, 2, 3):
        scene.grant(number)
    scene.pass_ms(1_001)
    assert (run(3), 7) in scene.post().beats


def test_a_run_that_may_start_once_only_is_not_claimed_ahead() -> None:
    scene = practised()
    filled(scene, 1, 2)
    scene.invite(3, guarantee="at_most_once")
    assert claimed(scene) == []


def test_draining_hands_back_what_waits_for_a_place() -> None:
    scene = practised()
    filled(scene, 1, 2, 3)
    scene.desk.drain(scene.now_ms)
    (end,) = scene.post().ends
    assert (end.run_id, end.outcome) == (run(3), Outcome.HANDED_BACK)


def test_a_run_cancelled_while_it_waits_for_a_place_never_starts() -> None:
    scene = practised()
    first, _ = filled(scene, 1, 2, 3)
    scene.answer(cancels=[(run(3), 7, "by hand")])
    (end,) = scene.post().ends
    assert (end.run_id, end.outcome) == (run(3), Outcome.CANCELLED)
    scene.end(first)
    assert scene.started() == []


def test_a_lease_lost_while_it_waits_for_a_place_frees_what_it_took() -> None:
    scene = practised()
    first, _ = filled(scene, 1, 2, 3)
    scene.answer(lost=[(run(3), 7)])
    assert (scene.post().ends, scene.desk.busy) == ([], 2)
    scene.end(first)
    assert scene.started() == []
