"""Whether permits were leaked, from the topics alone: what limiters have given must be what live runs hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

import orjson

from noontide.ports.record_log import Incoming
from noontide.records.topics import Layout

LIMITER, PERMITS = b"limiter/", b"permits/"


class Topics(Protocol):
    """Whoever can read topics to their ends."""

    @property
    def layout(self) -> Layout:
        """How they are named and cut."""

    def records(self, topic: str) -> list[Incoming]:
        """All committed records of a topic (full name)."""


def standing(topics: Topics) -> dict[str, object]:
    """Everything that limiters and slots still remember of permits, by record key; nothing once all runs are closed."""
    records = topics.records(topics.layout.name("state"))
    facts = latest(record for record in records if (record.key or b"").startswith((LIMITER, PERMITS)))
    return {key.decode(): value for key, value in facts.items()}


def held_permits(topics: Topics) -> int:
    """Permits that live runs have, by `leases`."""
    leases = latest(topics.records(topics.layout.name("leases")))
    return sum(held_by_limiter(leases.values()).values())


def leaked_permits(topics: Topics) -> int:
    """Permits given by limiters that no live run has, once all is at rest; negative: held without being given."""
    given = Counter[str]()
    for key, value in standing(topics).items():
        if key.startswith(LIMITER.decode()):
            given[key.split("/", 3)[3]] += int(dict(value)["given"])  # type: ignore[call-overload]
    leases = latest(topics.records(topics.layout.name("leases")))
    held = held_by_limiter(leases.values())
    return sum(given[limiter] - held[limiter] for limiter in given.keys() | held.keys())


def held_by_limiter(leases: Iterable[object]) -> Counter[str]:
    """Permits that live runs have, by limiter."""
    return Counter(
        str(limiter) for lease in leases if isinstance(lease, Mapping) for limiter in lease.get("permits", ())
    )


def latest(records: Iterable[Incoming]) -> dict[bytes, object]:
    """The newest value of each key that is not deleted, decoded."""
    found = {record.key or b"": record.value for record in records}
    return {key: orjson.loads(value) for key, value in found.items() if value is not None}


def most_permits(leases: Iterable[Incoming], limiter: str) -> int:
    """Most permits of a limiter that live runs had at one time, by the append times of all records of `leases`.

    What happened within one millisecond counts in favour of the scheduler: gains after losses.
    """
    has: dict[bytes, bool] = {}
    steps = Counter[tuple[int, bool]]()
    for record in sorted(leases, key=lambda each: (each.appended_ms, each.partition, each.offset)):
        key, value = record.key or b"", record.value
        before = has.pop(key, False)
        after = value is not None and limiter in orjson.loads(value).get("permits", ())
        if after:
            has[key] = True
        if before != after:
            steps[record.appended_ms, after] += 1
    at_once = most = 0
    for (_, gains), count in sorted(steps.items()):
        at_once += count if gains else -count
        most = max(most, at_once)
    return most


def most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """Most of these (start, end) in ms that were open at one time; ends come before starts of the same moment."""
    steps = sorted(step for start, end in spans for step in ((start, 1), (end, -1)))
    at_once = most = 0
    for _, step in steps:
        at_once += step
        most = max(most, at_once)
    return most
