"""Slots are divided evenly, stay where they are, and do not follow those who slept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.adapters.kafka.assignor import Claim, decode_round, divide_slots, encode_round, next_round


def claim(number: int, *held: int, **freshness: int) -> Claim:
    return Claim(round=number, held=frozenset(held), freshness={int(slot[1:]): at for slot, at in freshness.items()})


def test_a_member_alone_gets_everything() -> None:
    assert divide_slots(8, {"a": Claim()}) == {"a": frozenset(range(8))}


def test_nobody_gets_nothing() -> None:
    assert divide_slots(8, {}) == {}


def test_members_beyond_the_number_of_slots_stand_by() -> None:
    given_slots = divide_slots(2, {"a": Claim(), "b": Claim(), "c": Claim()})
    assert sorted(map(len, given_slots.values())) == [0, 1, 1]


def test_a_newcomer_takes_only_its_share_and_nothing_moves_between_the_others() -> None:
    before = {"a": claim(3, 0, 1, 2, 3), "b": claim(3, 4, 5, 6, 7)}
    after = divide_slots(8, before | {"c": Claim()})
    assert after["a"] < before["a"].held
    assert after["b"] < before["b"].held
    assert [len(after[member]) for member in "abc"] == [3, 3, 2]


def test_the_slots_of_one_who_left_are_shared_and_the_others_keep_theirs() -> None:
    after = divide_slots(8, {"a": claim(3, 0, 1, 2), "b": claim(3, 3, 4, 5)})
    assert after["a"] > {0, 1, 2}
    assert after["b"] > {3, 4, 5}
    assert len(after["a"]) == len(after["b"]) == 4


@pytest.mark.parametrize("sleeper_round, keeps", [(4, False), (6, True)])
def test_a_stale_claim_loses_against_a_newer_round(sleeper_round: int, keeps: bool) -> None:
    after = divide_slots(4, {"awake": claim(5, 0, 1), "sleeper": claim(sleeper_round, 0, 1, 2, 3)})
    assert (after["awake"] == {0, 1}) is not keeps


def test_a_free_slot_goes_to_the_freshest_checkpoint() -> None:
    after = divide_slots(4, {"a": claim(1, 0, s2=10, s3=99), "b": claim(1, 1, s2=11)})
    assert after == {"a": frozenset({0, 3}), "b": frozenset({1, 2})}


def test_what_exceeds_the_share_is_given_up_least_fresh_first() -> None:
    after = divide_slots(4, {"a": claim(1, 0, 1, 2, 3, s0=5, s1=1, s2=7, s3=2), "b": Claim()})
    assert after == {"a": frozenset({0, 2}), "b": frozenset({1, 3})}


def test_user_data_comes_back_as_it_was() -> None:
    told = claim(7, 1, 5, s1=123_456, s6=3)
    assert Claim.decode(told.encode()) == told
    assert decode_round(encode_round(9)) == 9


@pytest.mark.parametrize(
    "user_data", [b"", b"nonsense", b"[]", b"1", b'{"version":2,"round":9,"held":[1],"freshness":{}}', b'{"version":1}']
)
def test_unreadable_user_data_claims_nothing(user_data: bytes) -> None:
    assert Claim.decode(user_data) == Claim()


@pytest.mark.parametrize("user_data", [b"", b"nonsense", b"[]", b"{}"])
def test_an_unreadable_round_is_the_weakest(user_data: bytes) -> None:
    assert decode_round(user_data) == 0


def test_a_round_follows_all_that_are_known() -> None:
    assert next_round({}) == 1
    assert next_round({"a": claim(3), "b": claim(9)}) == 10


claims = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Claim,
        round=st.integers(0, 3),
        held=st.frozensets(st.integers(0, 15)),
        freshness=st.dictionaries(st.integers(0, 15), st.integers(0, 9)),
    ),
    min_size=1,
)


@given(st.integers(1, 12), claims)
def test_every_slot_has_one_owner_and_shares_differ_by_one_at_most(slots: int, told: dict[str, Claim]) -> None:
    after = divide_slots(slots, told)
    assert after.keys() == told.keys()
    assert sorted(slot for mine in after.values() for slot in mine) == list(range(slots))
    sizes = sorted(map(len, after.values()))
    assert sizes[-1] - sizes[0] <= 1


@given(st.integers(1, 12), claims)
def test_dividing_again_changes_nothing(slots: int, told: dict[str, Claim]) -> None:
    after = divide_slots(slots, told)
    again = {member: Claim(round=4, held=mine) for member, mine in after.items()}
    assert divide_slots(slots, again) == after
