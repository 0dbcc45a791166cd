"""The network of a simulation: how long things take, and what happens to a process at the places where it waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - seeded: the seed is the replay
from typing import Final

from noontide.ports.record_log import Doubt
from noontide.testing.simulation.loop import Killed, Process, VirtualLoop

OPEN_TIMEOUT_MS: Final = 5_000
CUT_LOOK_MS: Final = 250


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad it is; from the dice, once per seed, and calm in the end. Shares are of 1,000.

    slow: messages that take slow_ms; lost: answers that never come; lag: reads of a partition that wait.
    """

    usual_ms: float = 2.0
    slow: int = 0
    slow_ms: float = 500.0
    lost: int = 0
    lag: int = 0

    def calm(self) -> None:
        """From now on all goes well."""
        self.slow = self.lost = self.lag = 0


@dataclass(slots=True)
class Site:
    """What all parts of one simulation share. story: what happened, for people. counts: for the report."""

    loop: VirtualLoop
    dice: Random
    weather: Weather = field(default_factory=Weather)
    story: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def tell(self, what: str) -> None:
        """A line for the story."""
        self.story.append(f"{self.loop.now_ms:9.1f} ms  {what}")

    def later(self, delay_ms: float, act: Callable[..., object], *args: object) -> None:
        """Let something happen after a while, whoever is alive then."""
        self.loop.outside.later(delay_ms, act, *args)

    def chance(self, share: int) -> bool:
        """True in `share` of 1,000 cases."""
        return share > 0 and self.dice.randrange(1_000) < share

    def latency_ms(self) -> float:
        """How long a message is under way."""
        weather = self.weather
        if self.chance(weather.slow):
            return self.dice.uniform(weather.usual_ms, weather.slow_ms)
        return self.dice.uniform(0.2, weather.usual_ms)


class Wire:
    """How one process reaches the broker.

    cut: until when (virtual ms) nothing gets through. ambush: the place at which the process is to die next.
    """

    def __init__(self, site: Site, process: Process) -> None:
        self.site = site
        self.process = process
        self.cut_until_ms = 0.0
        self.ambush: str | None = None
        self.on_death: Callable[[], None] = process.kill

    @property
    def is_cut(self) -> bool:
        """Whether nothing gets through now."""
        return self.site.loop.now_ms < self.cut_until_ms

    async def cross(self, place: str, *, timeout_ms: float) -> None:
        """A message goes to the broker or comes back. Raises Doubt when that takes too long; may never return."""
        if self.ambush == place:
            self._die(place)
            await asyncio.Event().wait()
        latency_ms = self.site.latency_ms()
        if self.is_cut or latency_ms > timeout_ms or self.site.chance(self.site.weather.lost):
            self.site.counts["timeouts"] += 1
            await asyncio.sleep(timeout_ms / 1000)
            raise Doubt(f"no answer within {timeout_ms:.0f} ms ({place})")
        await asyncio.sleep(latency_ms / 1000)
        if self.is_cut:
            await asyncio.sleep(max(0.0, timeout_ms - latency_ms) / 1000)
            raise Doubt(f"the connection is gone ({place})")

    def pass_by(self, place: str) -> None:
        """A place where nothing waits. Raises Killed when the process is to die there."""
        if self.ambush == place:
            self._die(place)
            raise Killed(place)

    def _die(self, place: str) -> None:
        self.ambush = None
        self.site.tell(f"{self.process.name} dies at {place}")
        self.site.counts["crashes"] += 1
        self.on_death()
