"""Who gets which slots: sticky, balanced, and never fooled by a member that slept.

Every member says what it holds and in which round it was given it. The leader of the group (any member) divides anew:
a slot stays with whoever claims it with the latest round, as far as its share allows; what is left goes to the member
with the freshest checkpoint of that slot, then to the one with the fewest slots. Shares differ by one at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member brings to a division.

    round: number of the division that gave it `held`; 0 before the first.
    freshness: per slot, how good its local checkpoint is (greater is better); slots without one are absent.
    """

    round: int = 0
    held: frozenset[int] = frozenset()
    freshness: Mapping[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The claim as a member's user data."""
        document = {
            "version": FORMAT_VERSION,
            "round": self.round,
            "held": sorted(self.held),
            "freshness": {str(slot): value for slot, value in sorted(self.freshness.items())},
        }
        return orjson.dumps(document)

    @classmethod
    def decode(cls, user_data: bytes) -> Claim:
        """The claim in a member's user data; anything unreadable, or of another version, claims nothing."""
        try:
            document = orjson.loads(user_data)
            if document["version"] != FORMAT_VERSION:
                return cls()
            freshness = {int(slot): int(value) for slot, value in document["freshness"].items()}
            held = frozenset(int(slot) for slot in document["held"])
            return cls(round=int(document["round"]), held=held, freshness=freshness)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()


def encode_round(number: int) -> bytes:
    """The number of a division, as the user data of an assignment."""
    return orjson.dumps({"version": FORMAT_VERSION, "round": number})


def decode_round(user_data: bytes) -> int:
    """The number in an assignment's user data; 0 when it cannot be read, which makes the claim the weakest."""
    try:
        return int(orjson.loads(user_data)["round"])
    except (ValueError, KeyError, TypeError):
        return 0


def next_round(claims: Mapping[str, Claim]) -> int:
    """The number of the division that follows everything these members know of."""
    return 1 + max((claim.round for claim in claims.values()), default=0)


def divide_slots(slots: int, claims: Mapping[str, Claim]) -> dict[str, frozenset[int]]:
    """Give each of `slots` slots to one of the members; the same input gives the same answer at every member."""
    assert slots > 0, "there must be slots to divide"
    if not claims:
        return {}
    given = _kept(slots, claims)
    _trim(given, slots, claims)
    taken = set().union(*given.values())
    for slot in sorted(set(range(slots)) - taken):
        given[_best_member(slot, given, claims, slots)].add(slot)
    return {member: frozenset(mine) for member, mine in given.items()}


def _kept(slots: int, claims: Mapping[str, Claim]) -> dict[str, set[int]]:
    """Each slot with the member whose claim on it is the latest."""
    given: dict[str, set[int]] = {member: set() for member in sorted(claims)}
    for slot in range(slots):
        claimants = [member for member in given if slot in claims[member].held]
        if claimants:
            given[max(claimants, key=lambda member: claims[member].round)].add(slot)
    return given


def _trim(given: dict[str, set[int]], slots: int, claims: Mapping[str, Claim]) -> None:
    """Take from each member what exceeds its share, least fresh first; the larger shares go to those who hold most."""
    for member, share in _shares(given, slots).items():
        mine = given[member]
        for slot in sorted(mine, key=lambda slot: (claims[member].freshness.get(slot, -1), -slot)):
            if len(mine) <= share:
                break
            mine.remove(slot)


def _shares(given: Mapping[str, set[int]], slots: int) -> dict[str, int]:
    share, extra = divmod(slots, len(given))
    by_load = sorted(given, key=lambda member: (-len(given[member]), member))
    return {member: share + (place < extra) for place, member in enumerate(by_load)}


def _best_member(slot: int, given: Mapping[str, set[int]], claims: Mapping[str, Claim], slots: int) -> str:
    shares = _shares(given, slots)
    able = [member for member in given if len(given[member]) < shares[member]]
    return min(able, key=lambda member: (-claims[member].freshness.get(slot, -1), len(given[member]), member))
