"""Slots are divided evenly, stay where they are, and do not follow those who slept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noontide.adapters.kafka.assignor import Claim, Rules, decode_assignment, divide, encode_assignment, next_round
from noontide.ports.membership import Assignment

COLD = 100_000
"""More records than a copy may lack."""


def divide_slots(slots: int, claims: dict[str, Claim]) -> dict[str, frozenset[int]]:
    return {member: given.owned for member, given in divide(Rules(slots=slots), claims).items()}


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
    told = replace(claim(7, 1, 5, s1=123_456, s6=3), load={1: 5}, host="h", leaving=True, unfit=True)
    assert Claim.decode(told.encode()) == told
    given_slots = Assignment(owned=frozenset({1}), standby=frozenset({2, 3}), warming=frozenset({3}), retired=True)
    assert decode_assignment(given_slots.owned, encode_assignment(given_slots, 9)) == (given_slots, 9)


def test_the_claim_of_an_older_version_is_understood() -> None:
    assert Claim.decode(b'{"version":1,"round":3,"held":[1],"freshness":{"1":5}}') == claim(3, 1, s1=5)


@pytest.mark.parametrize(
    "user_data", [b"", b"nonsense", b"[]", b"1", b'{"version":2,"round":9,"held":[1],"freshness":{}}', b'{"version":1}']
)
def test_unreadable_user_data_claims_nothing(user_data: bytes) -> None:
    assert Claim.decode(user_data) == Claim()


@pytest.mark.parametrize("user_data", [b"", b"nonsense", b"[]", b"{}"])
def test_an_unreadable_round_is_the_weakest(user_data: bytes) -> None:
    assert decode_assignment(frozenset({4}), user_data) == (Assignment(owned=frozenset({4})), 0)


def test_a_round_follows_all_that_are_known() -> None:
    assert next_round({}) == 1
    assert next_round({"a": claim(3), "b": claim(9)}) == 10


def test_a_slot_stays_with_its_living_holder_until_the_newcomers_copy_is_warm() -> None:
    holder = claim(3, 0, 1, s0=COLD, s1=COLD)
    after = divide(Rules(slots=2), {"a": holder, "b": Claim()})
    assert after["a"].owned == {0, 1}
    assert (after["b"].owned, len(after["b"].warming)) == (frozenset(), 1)
    assert after["b"].standby == {0, 1}
    warm = divide(Rules(slots=2), {"a": holder, "b": claim(4, s0=COLD - 5, s1=COLD - 20_001)})
    assert warm["a"] == Assignment(owned=frozenset({1}), standby=frozenset({0}))
    assert warm["b"] == Assignment(owned=frozenset({0}), standby=frozenset({1}))


@pytest.mark.parametrize("lag, moves", [(20_000, True), (20_001, False)])
def test_how_warm_is_warm(lag: int, moves: bool) -> None:
    after = divide_slots(2, {"a": claim(3, 0, 1, s0=COLD, s1=COLD), "b": claim(3, s0=COLD - lag, s1=COLD - lag)})
    assert bool(after["b"]) is moves


def test_the_slots_of_a_dead_member_go_to_those_who_stood_by_however_late_they_are() -> None:
    after = divide_slots(4, {"a": claim(3, 0, s2=10), "b": claim(3, 1, s3=10)})
    assert after == {"a": frozenset({0, 2}), "b": frozenset({1, 3})}


def test_one_who_leaves_gives_everything_away_at_once() -> None:
    leaver = replace(claim(3, 0, 1, s0=COLD, s1=COLD), leaving=True)
    after = divide(Rules(slots=4), {"a": leaver, "b": claim(3, 2, 3), "c": claim(3, s1=COLD)})
    assert after["a"] == Assignment(retired=True)
    assert after["c"].owned > {1} or after["c"].owned == {1, 0}
    assert sum(len(each.owned) for each in after.values()) == 4


def test_when_all_leave_they_keep_what_they_have() -> None:
    leavers = {name: replace(claim(3, number), leaving=True) for number, name in enumerate("ab")}
    assert {name: each.owned for name, each in divide(Rules(slots=2), leavers).items()} == {"a": {0}, "b": {1}}


def test_one_whose_disk_fails_gives_everything_away_and_stands_by_for_nothing() -> None:
    unfit = replace(claim(3, 0, 1, s0=COLD, s1=COLD), unfit=True)
    after = divide(Rules(slots=4), {"a": unfit, "b": claim(3, 2, 3), "c": Claim()})
    assert after["a"] == Assignment()
    assert after["b"].owned | after["c"].owned == {0, 1, 2, 3}
    assert after["b"].standby | after["c"].standby == {0, 1, 2, 3}


def test_one_whose_disk_fails_keeps_what_nobody_else_can_take() -> None:
    unfit, leaver = replace(claim(3, 0, 1), unfit=True), replace(claim(3, 2, 3), leaving=True)
    assert divide_slots(4, {"a": unfit}) == {"a": frozenset(range(4))}
    assert divide_slots(4, {"a": unfit, "b": leaver}) == {"a": frozenset(range(4)), "b": frozenset()}
    both = {"a": unfit, "b": replace(claim(3, 2, 3), unfit=True)}
    assert divide_slots(4, both) == {"a": {0, 1}, "b": {2, 3}}


@pytest.mark.parametrize("replicas", [0, 1, 2, 5])
def test_standbys_are_others_than_the_owner(replicas: int) -> None:
    after = divide(Rules(slots=6, standby_replicas=replicas), {name: Claim() for name in "abc"})
    standing_by = [slot for each in after.values() for slot in each.standby]
    assert sorted(standing_by) == sorted(list(range(6)) * min(replicas, 2))
    assert not any(each.owned & each.standby for each in after.values())
    assert max(len(each.standby) for each in after.values()) - min(len(each.standby) for each in after.values()) <= 1


def test_standbys_stay_where_the_copies_are() -> None:
    held = {"a": claim(3, 0, s0=COLD, s1=5), "b": claim(3, 1, s1=COLD), "c": claim(3, 2, s0=COLD, s2=COLD)}
    after = divide(Rules(slots=3), held)
    assert 0 in after["c"].standby


def test_a_standby_lies_on_another_machine_than_the_owner() -> None:
    members = {
        "a": replace(claim(3, 0, s0=COLD), host="x"),
        "b": replace(claim(3, 1, s0=COLD, s1=COLD), host="x"),
        "c": replace(claim(3), host="y"),
    }
    after = divide(Rules(slots=2), members)
    assert after["c"].standby == {0, 1}


def test_what_is_free_goes_where_the_load_is_least() -> None:
    busy = replace(claim(3, 0, 1), load={0: 900, 1: 900})
    calm = replace(claim(3, 2, 3), load={2: 10, 3: 10})
    after = divide_slots(6, {"a": busy, "b": calm, "c": replace(claim(3), load={})})
    assert after["a"] == {0, 1}
    assert len(after["c"]) == 2
    gone = divide_slots(5, {"a": replace(claim(3, 0, 1), load={0: 900, 1: 900}), "b": calm})
    assert 4 in gone["b"]


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


freshness = st.dictionaries(st.integers(0, 15), st.integers(0, 5 * COLD))
lively = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Claim,
        round=st.integers(0, 3),
        held=st.frozensets(st.integers(0, 15)),
        freshness=freshness,
        load=st.dictionaries(st.integers(0, 15), st.integers(0, 999)),
        host=st.sampled_from("xy"),
        leaving=st.booleans(),
        unfit=st.booleans(),
    ),
    min_size=1,
)


@given(st.integers(1, 12), st.integers(0, 3), lively)
def test_whatever_is_told_each_slot_has_one_owner_and_its_standbys(
    slots: int, replicas: int, told: dict[str, Claim]
) -> None:
    after = divide(Rules(slots=slots, standby_replicas=replicas), told)
    assert after.keys() == told.keys()
    assert sorted(slot for each in after.values() for slot in each.owned) == list(range(slots))
    staying = [member for member in told if not told[member].leaving] or list(told)
    if not all(told[member].leaving for member in told):
        staying = [member for member in staying if not told[member].unfit] or staying
    wanted = min(replicas, len(staying) - 1)
    for slot in range(slots):
        keepers = [member for member in after if slot in after[member].standby]
        warming = [member for member in after if slot in after[member].warming]
        assert len(keepers) == max(wanted, len(warming))
        assert set(warming) <= set(keepers) <= set(staying)
    assert not any(each.owned & each.standby for each in after.values())
    assert all(each.retired == told[member].leaving for member, each in after.items())


@given(st.integers(1, 12), claims)
def test_dividing_again_changes_nothing(slots: int, told: dict[str, Claim]) -> None:
    after = divide_slots(slots, told)
    again = {member: Claim(round=4, held=mine) for member, mine in after.items()}
    assert divide_slots(slots, again) == after
