"""The transition table of a run, entry by entry."""

from __future__ import annotations

from itertools import product

import pytest

from noontide.core.run import CLOSED, TRANSITIONS, RunEvent, RunState, advance

OPEN = [state for state in RunState if state not in CLOSED]


@pytest.mark.parametrize("state, event", list(product(RunState, RunEvent)))
def test_what_is_absent_is_an_error(state: RunState, event: RunEvent) -> None:
    expected = TRANSITIONS.get((state, event))
    if expected is not None:
        assert advance(state, event) is expected
        return
    with pytest.raises(ValueError) as caught:
        advance(state, event)
    assert str(caught.value) == f"a {state} run cannot {event}"


@pytest.mark.parametrize("state", sorted(CLOSED))
def test_a_closed_run_stays_closed(state: RunState) -> None:
    assert not [event for event in RunEvent if (state, event) in TRANSITIONS]


@pytest.mark.parametrize("state", OPEN)
def test_every_open_run_can_be_cancelled_and_given_up(state: RunState) -> None:
    assert advance(state, RunEvent.CANCEL) is RunState.CANCELLED
    assert advance(state, RunEvent.GIVE_UP) is RunState.DEAD


@pytest.mark.parametrize("goal", sorted(CLOSED))
def test_every_end_can_be_reached_from_the_claim(goal: RunState) -> None:
    reached, frontier = {RunState.PENDING}, [RunState.PENDING]
    while frontier:
        state = frontier.pop()
        for event in RunEvent:
            following = TRANSITIONS.get((state, event))
            if following is not None and following not in reached:
                reached.add(following)
                frontier.append(following)
    assert goal in reached


def test_only_a_handed_out_run_can_be_granted() -> None:
    assert [state for state, event in TRANSITIONS if event is RunEvent.GRANT] == [RunState.QUEUED]


def test_a_failed_attempt_waits_before_it_is_handed_out_again() -> None:
    assert advance(RunState.QUEUED, RunEvent.FAIL) is RunState.RETRY_WAIT
    assert advance(RunState.RETRY_WAIT, RunEvent.HAND_OUT) is RunState.QUEUED
