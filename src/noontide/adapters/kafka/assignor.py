"""Who gets which slots, and who stands by: sticky, balanced, warm, and never fooled by a member that slept.

Every member says what it holds, in which round it was given it, and how far its local copies reach. The leader of the
group (any member) divides anew:

1. A slot stays with whoever claims it with the latest round, as far as its share allows. What is left goes to a member
   with a fresh copy, then to the one with the least load. Shares differ by one at most.
2. A slot whose holder is alive moves only to a member whose copy is warm. Until then the holder keeps it, and the
   other one gets it for warming: it copies, and asks for another division when it has caught up.
3. Each slot gets standbys: members with a copy, on other machines than the owner's where there are some.

A member that is leaving keeps nothing, unless nobody else is there; nor does one whose disk fails (unfit).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from noontide.ports.membership import Assignment

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member brings to a division.

    round: number of the division that gave it `held`; 0 before the first.
    freshness: per slot, the sum of the offsets that its local copy reflects; slots without a copy are absent.
    load: per held slot, how busy it is, in records written per second.
    host: the machine, so that owner and standby lie apart. leaving: it wants to give everything away. unfit: so it
    does while it stays, because its disk fails.
    """

    round: int = 0
    held: frozenset[int] = frozenset()
    freshness: Mapping[int, int] = field(default_factory=dict)
    load: Mapping[int, int] = field(default_factory=dict)
    host: str = ""
    leaving: bool = False
    unfit: bool = False

    def encode(self) -> bytes:
        """The claim as a member's user data."""
        document = {
            "version": FORMAT_VERSION,
            "round": self.round,
            "held": sorted(self.held),
            "freshness": _texts(self.freshness),
            "load": _texts(self.load),
            "host": self.host,
            "leaving": self.leaving,
            "unfit": self.unfit,
        }
        return orjson.dumps(document)

    @classmethod
    def decode(cls, user_data: bytes) -> Claim:
        """The claim in a member's user data; anything unreadable, or of another version, claims nothing."""
        try:
            document = orjson.loads(user_data)
            if document["version"] != FORMAT_VERSION:
                return cls()
            return cls(
                round=int(document["round"]),
                held=frozenset(int(slot) for slot in document["held"]),
                freshness=_numbers(document["freshness"]),
                load=_numbers(document.get("load", {})),
                host=str(document.get("host", "")),
                leaving=document.get("leaving") is True,
                unfit=document.get("unfit") is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """slots: how many there are; standby_replicas: standbys wanted per slot.

    warm_lag_max: records that a copy may lack and still count as warm.
    """

    slots: int
    standby_replicas: int = 1
    warm_lag_max: int = 20_000

    def __post_init__(self) -> None:
        assert self.slots > 0, "there must be slots to divide"


def encode_assignment(assignment: Assignment, number: int) -> bytes:
    """The number of a division, and what it gave beside the slots, as the user data of an assignment."""
    document = {
        "version": FORMAT_VERSION,
        "round": number,
        "standby": sorted(assignment.standby),
        "warming": sorted(assignment.warming),
        "retired": assignment.retired,
    }
    return orjson.dumps(document)


def decode_assignment(owned: frozenset[int], user_data: bytes) -> tuple[Assignment, int]:
    """What was given and the number of the division; 0 when it cannot be read, which makes the claim the weakest."""
    try:
        document = orjson.loads(user_data)
        standby, warming = (frozenset(map(int, document.get(name, ()))) for name in ("standby", "warming"))
        retired = document.get("retired") is True
        return Assignment(owned=owned, standby=standby, warming=warming, retired=retired), int(document["round"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return Assignment(owned=owned), 0


def next_round(claims: Mapping[str, Claim]) -> int:
    """The number of the division that follows everything these members know of."""
    return 1 + max((claim.round for claim in claims.values()), default=0)


def divide(rules: Rules, claims: Mapping[str, Claim]) -> dict[str, Assignment]:
    """Give each slot an owner and standbys; the same input gives the same answer at every member."""
    if not claims:
        return {}
    division = _Division(rules, claims)
    given = division.owners()
    warming = division.keep_until_warm(given)
    standby = division.standbys(given, warming)
    return {
        member: Assignment(
            owned=frozenset(given[member]),
            standby=frozenset(standby[member]),
            warming=frozenset(warming[member]),
            retired=claims[member].leaving,
        )
        for member in claims
    }


class _Division:
    """One division: who takes part, and what is known of the slots."""

    def __init__(self, rules: Rules, claims: Mapping[str, Claim]) -> None:
        self._rules = rules
        self._claims = claims
        staying = [member for member in sorted(claims) if not claims[member].leaving]
        fit = [member for member in staying if not claims[member].unfit]
        self._able = fit or staying or sorted(claims)
        self._holders = {slot: holder for slot in range(rules.slots) if (holder := self._holder(slot)) is not None}
        loads = [load for claim in claims.values() for load in claim.load.values()]
        usual = sum(loads) // len(loads) if loads else 0
        self._load = {
            slot: 1 + (claims[self._holders[slot]].load.get(slot, usual) if slot in self._holders else usual)
            for slot in range(rules.slots)
        }

    def _holder(self, slot: int) -> str | None:
        """The member, leaving or not, whose claim on a slot is the latest."""
        claimants = [member for member in sorted(self._claims) if slot in self._claims[member].held]
        return max(claimants, key=lambda member: self._claims[member].round, default=None)

    def owners(self) -> dict[str, set[int]]:
        """Each slot with one of the members, shares even."""
        given: dict[str, set[int]] = {member: set() for member in self._claims}
        for slot, holder in self._holders.items():
            if holder in self._able:
                given[holder].add(slot)
        self._trim(given)
        free = set(range(self._rules.slots)) - set().union(*given.values())
        for slot in sorted(free, key=lambda slot: (-self._load[slot], slot)):
            given[self._best_owner(slot, given)].add(slot)
        return given

    def _trim(self, given: dict[str, set[int]]) -> None:
        """Take from each member what exceeds its share, first what others have warm copies of."""
        for member, share in self._shares(given).items():
            mine = given[member]
            others = [each for each in self._able if each != member and len(given[each]) < share]
            for slot in sorted(mine, key=lambda slot: self._reluctance(slot, member, others)):
                if len(mine) <= share:
                    break
                mine.remove(slot)

    def _reluctance(self, slot: int, member: str, others: list[str]) -> tuple[bool, int, int]:
        """In which order a member gives slots up: warm elsewhere first, then the least fresh here."""
        is_warm = any(slot in self._claims[each].freshness and self._is_warm(slot, each) for each in others)
        return not is_warm, self._freshness(slot, member), -slot

    def _shares(self, given: Mapping[str, set[int]]) -> dict[str, int]:
        share, extra = divmod(self._rules.slots, len(self._able))
        by_load = sorted(self._able, key=lambda member: (-len(given[member]), self._load_of(given[member]), member))
        return {member: share + (place < extra) for place, member in enumerate(by_load)}

    def _best_owner(self, slot: int, given: Mapping[str, set[int]]) -> str:
        """Copies that differ by less than what is warm count as equal; then the member with the least load."""
        shares = self._shares(given)
        fitting = [member for member in self._able if len(given[member]) < shares[member]]
        return min(
            fitting,
            key=lambda member: (
                -self._grade(slot, member),
                self._load_of(given[member]),
                -self._freshness(slot, member),
                member,
            ),
        )

    def _load_of(self, slots: Iterable[int]) -> int:
        return sum(self._load[slot] for slot in slots)

    def _freshness(self, slot: int, member: str) -> int:
        return self._claims[member].freshness.get(slot, -1)

    def _grade(self, slot: int, member: str) -> int:
        return 1 + self._freshness(slot, member) // max(1, self._rules.warm_lag_max)

    def _is_warm(self, slot: int, member: str) -> bool:
        """Whether a member's copy lacks little of what the holder's reflects."""
        holder = self._holders.get(slot)
        if holder is None:
            return True
        lag = self._freshness(slot, holder) - max(0, self._freshness(slot, member))
        return lag <= self._rules.warm_lag_max

    def keep_until_warm(self, given: dict[str, set[int]]) -> dict[str, set[int]]:
        """Give slots back to holders that are alive, where the new owner's copy is cold; returns what it is to warm."""
        warming: dict[str, set[int]] = {member: set() for member in self._claims}
        for slot, holder in self._holders.items():
            owner = next(member for member in self._able if slot in given[member])
            if owner != holder and holder in self._able and not self._is_warm(slot, owner):
                given[owner].remove(slot)
                given[holder].add(slot)
                warming[owner].add(slot)
        return warming

    def standbys(self, given: Mapping[str, set[int]], warming: Mapping[str, set[int]]) -> dict[str, set[int]]:
        """Members that keep a copy of each slot; those that are warming one count first."""
        standby: dict[str, set[int]] = {member: set() for member in self._claims}
        wanted = min(self._rules.standby_replicas, len(self._able) - 1)
        most = -(-self._rules.slots * max(wanted, 0) // len(self._able))
        for slot in range(self._rules.slots):
            owner = next(member for member in self._able if slot in given[member])
            warm = [member for member in self._able if slot in warming[member]]
            others = [member for member in self._able if member != owner and member not in warm]
            ranked = sorted(
                others,
                key=lambda member: (
                    self._claims[member].host == self._claims[owner].host,
                    len(standby[member]) >= most,
                    -self._grade(slot, member),
                    len(standby[member]),
                    member,
                ),
            )
            for member in [*warm, *ranked][: max(wanted, len(warm))]:
                standby[member].add(slot)
        return standby


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(slot): value for slot, value in sorted(numbers.items())}


def _numbers(texts: Mapping[str, object]) -> dict[int, int]:
    return {int(slot): int(str(value)) for slot, value in texts.items()}
