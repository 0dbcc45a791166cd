"""Broker time: never ahead, never back, jumps held until they are confirmed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.core.broker_time import BrokerTime, BrokerTimeSettings, TimeState

START_MS = 1_700_000_000_000
CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parents[1] / "cases" / "behaviour.jsonl").read_text().splitlines())
}


class Broker:
    """A broker's clock over local time; `jump` sets it."""

    def __init__(self) -> None:
        self.ahead_ms = START_MS

    def at(self, boot_ms: float) -> float:
        return boot_ms + self.ahead_ms

    def jump(self, by_ms: int) -> None:
        self.ahead_ms += by_ms

    def tell(self, time: BrokerTime, boot_ms: float, *, out_ms: float = 1, back_ms: float = 1) -> None:
        """A record is sent so that it is appended at `boot_ms`."""
        time.observe(
            appended_ms=int(self.at(boot_ms)), sent_boot_ms=boot_ms - out_ms, acknowledged_boot_ms=boot_ms + back_ms
        )


def test_knows_nothing_before_the_first_observation() -> None:
    time = BrokerTime()
    assert (time.state, time.now_ms(5.0), time.age_ms(5.0)) == (TimeState.STARTING, 0, None)


def test_one_observation_is_enough_to_tell_the_time() -> None:
    time, broker = BrokerTime(), Broker()
    broker.tell(time, 1_000)
    assert time.state is TimeState.STEADY
    assert time.now_ms(1_001) == START_MS + 1_000
    assert time.age_ms(1_251) == 250


def test_a_fast_answer_counts_until_its_age_has_cost_what_it_was_faster() -> None:
    time, broker = BrokerTime(BrokerTimeSettings(drift_ppm=500)), Broker()
    broker.tell(time, 1_000, back_ms=0)
    broker.tell(time, 9_992, back_ms=5)  # slower by 5 ms; the fast one has lost 4.5 ms
    assert time.age_ms(9_997) == 8_997
    broker.tell(time, 10_994, back_ms=5)  # it has lost 5 ms
    assert time.age_ms(10_999) == 9_999
    broker.tell(time, 10_995, back_ms=5)
    assert time.age_ms(11_000) == 0


def test_gives_way_as_it_ages() -> None:
    time, broker = BrokerTime(BrokerTimeSettings(drift_ppm=200)), Broker()
    broker.tell(time, 0, back_ms=0)
    assert time.now_ms(10_000) == START_MS + 9_998


def test_a_long_silence_is_no_jump() -> None:
    time, broker = BrokerTime(), Broker()
    broker.tell(time, 0)
    broker.tell(time, 86_400_000)
    assert (time.state, time.jumps) == (TimeState.STEADY, 0)
    assert broker.at(86_400_001) - 3 <= time.now_ms(86_400_001) <= broker.at(86_400_001)


@given(
    st.lists(st.tuples(st.floats(1, 3_000), st.floats(0, 300), st.floats(0, 300)), min_size=1, max_size=60),
    st.integers(-400, 400),
)
def test_is_never_ahead_and_never_goes_back(answers: list[tuple[float, float, float]], drift_ppm: int) -> None:
    time, boot_ms, last = BrokerTime(), 0.0, 0
    for gap_ms, out_ms, back_ms in answers:
        boot_ms += gap_ms + out_ms + back_ms

        def truth(at: float) -> float:
            return START_MS + at * (1 + drift_ppm / 1e6)

        appended = int(truth(boot_ms - back_ms))
        time.observe(appended_ms=appended, sent_boot_ms=boot_ms - back_ms - out_ms, acknowledged_boot_ms=boot_ms)
        for later in (0, 1, 250):
            now = time.now_ms(boot_ms + later)
            assert last <= now <= truth(boot_ms + later)
            last = now
        boot_ms += 250
    assert time.state is TimeState.STEADY


@pytest.mark.parametrize("by_ms, held", [(1_000, False), (1_004, True), (-1_000, False), (-1_004, True)])
def test_a_step_within_the_tolerance_is_followed_a_greater_one_is_held(by_ms: int, held: bool) -> None:
    time, broker = BrokerTime(BrokerTimeSettings(drift_ppm=0)), Broker()
    broker.tell(time, 1_000)
    broker.jump(by_ms)
    broker.tell(time, 1_100)
    assert (time.state is TimeState.HELD) is held


def test_a_small_step_back_stands_still_until_the_broker_has_caught_up() -> None:
    time, broker = BrokerTime(BrokerTimeSettings(drift_ppm=0)), Broker()
    broker.tell(time, 1_000)
    before = time.now_ms(1_100)
    broker.jump(-500)
    broker.tell(time, 1_100)
    assert time.now_ms(1_101) == before
    assert time.now_ms(1_590) == before
    assert broker.at(2_000) - 3 <= time.now_ms(2_000) <= broker.at(2_000)


@pytest.mark.parametrize("after_ms, adopted", [(999, False), (1_000, True), (1_001, True)])
def test_a_jump_forward_is_adopted_when_it_is_confirmed_a_second_later(after_ms: int, adopted: bool) -> None:
    time, broker = BrokerTime(), Broker()
    broker.tell(time, 1_000)
    broker.jump(90_000)
    broker.tell(time, 2_000)
    assert time.state.name == "HELD"
    assert time.now_ms(2_500) < START_MS + 2_500 + 1
    broker.tell(time, 2_000 + after_ms)
    at_ms = 2_001 + after_ms
    assert (time.now_ms(at_ms) > START_MS + 80_000) is adopted
    assert (time.state is TimeState.STEADY) is adopted
    assert time.jumps == int(adopted)


def test_a_jump_that_the_next_answer_refutes_is_forgotten() -> None:
    time, broker = BrokerTime(), Broker()
    broker.tell(time, 1_000)
    broker.jump(90_000)
    broker.tell(time, 2_000)
    broker.jump(-90_000)
    broker.tell(time, 2_100)
    assert (time.state, time.jumps) == (TimeState.STEADY, 0)
    assert broker.at(2_101) - 3 <= time.now_ms(2_101) <= broker.at(2_101)


def test_a_slow_answer_across_the_jump_neither_confirms_nor_refutes_it() -> None:
    time, broker = BrokerTime(), Broker()
    broker.tell(time, 1_000)
    broker.jump(5_000)
    broker.tell(time, 2_000)
    broker.tell(time, 4_000, back_ms=7_000)
    assert (time.state, time.jumps) == (TimeState.HELD, 0)


def test_a_suspended_host_sees_no_jump() -> None:
    time, broker = BrokerTime(), Broker()
    broker.tell(time, 1_000)
    broker.tell(time, 2_000, back_ms=3_600_000)  # stopped between the send and the answer
    broker.tell(time, 3_700_000)
    assert (time.state, time.jumps) == (TimeState.STEADY, 0)


def test_a_clock_set_back_stalls_nothing_and_repeats_nothing() -> None:
    """Behaviour clk-06: an occurrence every ten seconds while the clock goes back by two minutes."""
    case = CASES["clk-06"]
    assert case["input"]["interval"] == "PT10S"
    time, broker, fired = BrokerTime(), Broker(), []
    due_ms = START_MS + 10_000
    jump_at_ms, end_ms = 25_000, 25_000 + 1_000 * case["input"]["observe_seconds"]
    for boot_ms in range(0, end_ms, 100):
        if boot_ms == jump_at_ms:
            broker.jump(-120_000)
        if boot_ms % 1_000 == 0:  # the probe
            broker.tell(time, boot_ms)
        if time.state is TimeState.STEADY and time.now_ms(boot_ms) >= due_ms:
            fired.append((due_ms, boot_ms))
            due_ms += 10_000
    gaps_ms = [later - earlier for (_, earlier), (_, later) in pairwise(fired)]
    assert max(gaps_ms) <= 1_000 * case["expected"]["stall_seconds_max"]
    assert end_ms - fired[-1][1] <= 1_000 * case["expected"]["stall_seconds_max"]
    assert len({due for due, _ in fired}) == len(fired)
    assert time.jumps == 1


def test_slowed_time_meets_the_broker_again_and_then_follows_it() -> None:
    time, broker = BrokerTime(BrokerTimeSettings(drift_ppm=0)), Broker()
    broker.tell(time, 1_000)
    broker.jump(-12_000)
    shown = [time.now_ms(1_000)]
    for boot_ms in range(2_000, 70_000, 500):
        broker.tell(time, boot_ms)
        shown.append(time.now_ms(boot_ms + 1))
    assert shown == sorted(shown)
    assert broker.at(69_501) - 3 <= shown[-1] <= broker.at(69_501)
    slow = [later - earlier for earlier, later in pairwise(shown)]
    assert 375 in slow
    assert set(slow[-10:]) == {500}


def test_only_local_time_since_boot_is_used_so_a_wrong_host_date_changes_nothing() -> None:
    """Behaviour clk-11: the host is 90 s ahead; two hosts that hear the same answers tell the same time."""
    assert CASES["clk-11"]["input"]["node_B_clock"] == "+90 s"
    right, wrong, broker = BrokerTime(), BrokerTime(), Broker()
    booted_apart_ms = 123_456_789
    for boot_ms in (1_000, 2_000, 3_000):
        broker.tell(right, boot_ms)
        appended_ms = int(broker.at(boot_ms))
        wrong.observe(
            appended_ms=appended_ms,
            sent_boot_ms=boot_ms - 1 + booted_apart_ms,
            acknowledged_boot_ms=boot_ms + 1 + booted_apart_ms,
        )
    assert right.now_ms(3_500) == wrong.now_ms(3_500 + booted_apart_ms)


def test_refuses_an_answer_before_its_question() -> None:
    with pytest.raises(AssertionError, match="acknowledged before it was sent"):
        BrokerTime().observe(appended_ms=START_MS, sent_boot_ms=2.0, acknowledged_boot_ms=1.0)
