"""The limiters whose home is one slot: they give permits to slots, fairly, and never more than there are.

    ask (slot, tenant, +wanted, back) ──> accounts ──> free permits, by weight ──> grant (slot, tenant, count)

A limiter's home is the slot of the partition of its name. What it has given to whom, and who wants how many more, is
durable: asks and grants are part of transactions on both sides, so the sum is right after any crash. A ceiling is
looked up in the configuration whenever permits are given; one that was lowered takes effect as permits come back.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from noontide.actors.effects import Effects, Scene, Stand
from noontide.actors.mailbox import Message
from noontide.core.fairness import Claimant, share_out
from noontide.records import state
from noontide.records.config import ConfigView
from noontide.records.limit_book import Ceiling
from noontide.records.signals import Ask, Grant

RATE_STEP_MS = 100
"""Starts per second are given out in steps of this length, so that a second never sees more than a tenth too many."""
SETTLE_MS = 500
"""So long a cap that is new gives nothing: slots say meanwhile what runs already, see `actors.latecomers`."""
Holder = tuple[str, int]
"""(tenant, slot)."""


Stands = dict[Holder, Stand]


@dataclass(slots=True, kw_only=True)
class LimiterWork:
    """What is decided in one cycle: asks that arrived, and limiters to be looked at for another reason."""

    asks: list[tuple[int, Ask]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    config_offset: int = -1

    def __bool__(self) -> bool:
        return bool(self.asks or self.touched)


class Limiters:
    """The limiters at home in one slot."""

    def __init__(self, grants_max: int) -> None:
        self._grants_max = grants_max
        self._stands: defaultdict[str, Stands] = defaultdict(dict)
        self._next_ms: dict[str, int] = {}
        self._served: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._wakes: dict[str, int] = {}
        self._settles: dict[str, int] = {}
        self._capped: frozenset[str] | None = None
        self._seen_config = -1

    # --- gather

    def collect(self, messages: Iterable[Message], config: ConfigView, now_ms: int) -> LimiterWork:
        """Take asks; after a change of the configuration look at everybody who waits."""
        work = LimiterWork(config_offset=config.offset)
        for message in messages:
            if isinstance(signal := message.signal, Ask):
                work.asks.append((message.sender, signal))
        if config.offset != self._seen_config:
            self._note_new_caps(config.limits.capped(), now_ms)
            work.touched.update(self._waited_for())
        work.touched.update(limiter for limiter, at_ms in self._wakes.items() if at_ms <= now_ms)
        return work

    def _note_new_caps(self, capped: frozenset[str], now_ms: int) -> None:
        new = frozenset() if self._capped is None else capped - self._capped
        self._settles.update(dict.fromkeys(new, now_ms + SETTLE_MS))
        self._capped = capped

    def _waited_for(self) -> Iterable[str]:
        return (name for name, stands in self._stands.items() if any(each.wanted > 0 for each in stands.values()))

    def next_wake_ms(self) -> int | None:
        """When the next start of a limited rate may be given; None when nobody waits for one."""
        return min(self._wakes.values(), default=None)

    # --- decide

    def decide(self, work: LimiterWork, scene: Scene) -> None:
        """Enter what was asked, and give what may be given."""
        changed: dict[str, Stands] = {}
        for sender, ask in work.asks:
            stands = changed.setdefault(ask.limiter, {})
            at = (ask.tenant, sender)
            given, wanted = stands.get(at) or self._stands[ask.limiter].get(at, Stand())
            stands[at] = Stand(given - ask.back, wanted + ask.count)
        for limiter in sorted(changed.keys() | work.touched):
            stands = changed.setdefault(limiter, {})
            self._give(limiter, {**self._stands[limiter], **stands}, stands, scene)
        for limiter, stands in changed.items():
            for (tenant, slot), stand in stands.items():
                key = state.limiter_record_key(limiter, tenant, slot)
                scene.effects.put_note(key, state.encode_counts(given=stand.given, wanted=stand.wanted))
        scene.effects.limiters = changed

    def _give(self, limiter: str, stands: Stands, changed: Stands, scene: Scene) -> None:
        """Give free permits to those who want them; writes who got some into `changed`."""
        world, effects = scene
        book = world.config.limits
        ceiling = book.ceiling(limiter)
        wanted, holding = Counter[str](), Counter[str]()
        for (tenant, _), stand in stands.items():
            wanted[tenant] += max(0, stand.wanted)
            holding[tenant] += stand.given
        free = self._free(limiter, ceiling, sum(holding.values()), world.now_ms)
        claimants = {each: Claimant(holding[each], count, book.weight_of(each)) for each, count in wanted.items()}
        shares = share_out(free, claimants, self._served[limiter])
        for tenant, share in shares.items():
            for slot, count in _split(share, tenant, stands).items():
                given, waits = stands[tenant, slot]
                changed[tenant, slot] = Stand(given + count, waits - count)
                effects.signal(slot, Grant(limiter, tenant, count))
        total = sum(shares.values())
        effects.counts["permits"] += total
        if ceiling.per_second is not None:
            self._spend(limiter, ceiling.per_second, total, scene)
        effects.shares[limiter] = shares

    def _free(self, limiter: str, ceiling: Ceiling, given: int, now_ms: int) -> int:
        free = self._grants_max
        if ceiling.concurrency is not None:
            if self._settles.get(limiter, 0) > now_ms:
                return 0
            free = min(free, ceiling.concurrency - given)
        if ceiling.per_second is not None:
            next_ms = self._next_start_ms(limiter, ceiling.per_second, now_ms)
            free = min(free, _due_starts(next_ms, ceiling.per_second, now_ms))
        return max(0, free)

    def _next_start_ms(self, limiter: str, per_second: float, now_ms: int) -> int:
        """When the next start has its time. A rate that was raised does not wait by the measure of the old one."""
        return min(self._next_ms.get(limiter, 0), now_ms + math.ceil(1_000 / per_second))

    def _spend(self, limiter: str, per_second: float, count: int, scene: Scene) -> None:
        """Starts were given: the next one has its time. What was not used in time is not made up for."""
        next_ms = self._next_start_ms(limiter, per_second, scene.world.now_ms)
        if count:
            first_ms = max(next_ms, scene.world.now_ms - RATE_STEP_MS)
            next_ms = math.ceil(first_ms + count * 1_000 / per_second)
        if next_ms != self._next_ms.get(limiter, 0):
            scene.effects.rates[limiter] = next_ms
            scene.effects.put_note(state.rate_record_key(limiter), state.encode_counts(next=next_ms))

    # --- apply

    def apply(self, effects: Effects, work: LimiterWork, config: ConfigView) -> None:
        """Take over what the commit made true."""
        if not work and work.config_offset == self._seen_config:
            return
        self._seen_config = work.config_offset
        self._next_ms.update(effects.rates)
        for limiter, changed in effects.limiters.items():
            stands = self._stands[limiter]
            stands.update(changed)
            for holder in [holder for holder, stand in changed.items() if stand == Stand()]:
                del stands[holder]
            self._note_served(limiter, effects.shares.get(limiter, {}))
            self._plan_wake(limiter, config.limits.ceiling(limiter))
            if not stands:
                self._stands.pop(limiter, None)
                self._served.pop(limiter, None)

    def _note_served(self, limiter: str, shares: Mapping[str, int]) -> None:
        served = self._served[limiter]
        turn = max(served.values(), default=0)
        served.update({tenant: turn + place for place, tenant in enumerate(shares, start=1)})

    def _plan_wake(self, limiter: str, ceiling: Ceiling) -> None:
        waits = any(stand.wanted > 0 for stand in self._stands[limiter].values())
        given = sum(stand.given for stand in self._stands[limiter].values())
        is_full = ceiling.concurrency is not None and given >= ceiling.concurrency
        if waits and not is_full and ceiling.per_second is not None:
            step_ms = min(RATE_STEP_MS, 1_000 / ceiling.per_second)
            self._wakes[limiter] = math.ceil(self._next_ms.get(limiter, 0) + max(0.0, RATE_STEP_MS - step_ms) // 2)
        elif waits and not is_full:
            self._wakes[limiter] = self._settles.get(limiter, 0)  # in the past: more is wanted than one cycle gives
        else:
            self._wakes.pop(limiter, None)

    def load_note(self, key: bytes, value: bytes) -> None:
        """What an earlier owner had given, or how far it had used a rate."""
        if key.startswith(state.RATE):
            (self._next_ms[key[len(state.RATE) :].decode()],) = state.decode_counts(value, "next")
            return
        limiter, tenant, slot = state.limiter_key_parts(key)
        self._stands[limiter][tenant, slot] = Stand(*state.decode_counts(value, "given", "wanted"))

    @property
    def given(self) -> Mapping[str, int]:
        """Permits that are out, by limiter."""
        return {name: sum(each.given for each in stands.values()) for name, stands in self._stands.items()}


def _due_starts(next_ms: int, per_second: float, now_ms: int) -> int:
    """How many starts have their time by now: at most those of one step, or one."""
    since_ms = now_ms - max(next_ms, now_ms - RATE_STEP_MS)
    if next_ms > now_ms:
        return 0
    return 1 + int(since_ms * per_second / 1_000)


def _split(share: int, tenant: str, stands: Stands) -> dict[int, int]:
    """A tenant's share among the slots where it has runs: equal parts; what one does not need goes to the others."""
    slots = sorted(
        (stand.wanted, slot) for (each, slot), stand in stands.items() if each == tenant and stand.wanted > 0
    )
    parts: dict[int, int] = {}
    for place, (wanted, slot) in enumerate(slots):
        part = min(wanted, math.ceil(share / (len(slots) - place)))
        if part:
            parts[slot] = part
            share -= part
    return parts
