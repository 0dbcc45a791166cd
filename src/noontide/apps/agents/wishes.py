"""What jobs want to be told: their `notify`, followed on the topic of jobs from its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import orjson

from noontide.apps.agents.rules import Wish
from noontide.core.durations import parse_duration
from noontide.core.errors import InvalidDefinition
from noontide.ports.record_log import Feed, Incoming, Replay, TopicPartition
from noontide.records.topics import Layout

NOBODY: Final = Wish()
_MARK: Final = b'"notify"'


class Wishes:
    """By job id; only jobs that notify somebody are kept."""

    def __init__(self, layout: Layout, feed: Feed, replay: Replay) -> None:
        self._layout = layout
        self._next = {TopicPartition(layout.name("jobs"), number): 0 for number in range(layout.partitions)}
        self._feed = feed
        self._replay = replay
        self._wishes: dict[str, Wish] = {}

    def of(self, job_id: str) -> Wish:
        """What a job wants."""
        return self._wishes.get(job_id, NOBODY)

    def all(self) -> list[tuple[str, Wish]]:
        """Every job that wants something."""
        return list(self._wishes.items())

    async def start(self) -> None:
        """Read what is there, and go on reading. Raises Doubt when nothing moves."""
        await self.refresh(self._next)
        self._feed.attach(self._take, self._next)

    async def catch_up(self, job_ids: Iterable[str]) -> None:
        """Read what was written about some jobs by now: their definitions are older than their runs.

        Raises Doubt when the log cannot be read.
        """
        topic = self._layout.name("jobs")
        await self.refresh({TopicPartition(topic, self._layout.partition_of(job_id)) for job_id in job_ids})

    async def refresh(self, places: Iterable[TopicPartition]) -> None:
        """Read partitions to their ends as of now."""
        ends = await asyncio.to_thread(self._replay.stable_offsets, list(places))
        for records in await asyncio.to_thread(self._read, {at: self._next[at] for at in ends}, ends):
            self._take(records)
        for at, end in ends.items():
            self._next[at] = max(self._next[at], end)

    def _read(self, positions: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> list[list[Incoming]]:
        """Records that notify somebody, or take that back; what is between them is read and dropped."""
        known = {job_id.encode() for job_id in list(self._wishes)}
        found: list[list[Incoming]] = []
        for records in self._replay.read(positions, ends):
            kept = []
            for each in records:
                if each.value is not None and _MARK in each.value:
                    known.add(each.key or b"")
                elif each.key not in known:
                    continue
                kept.append(each)
            found.append(kept)
        return found

    def _take(self, records: list[Incoming]) -> None:
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            if record.offset < self._next[at]:
                continue
            self._next[at] = record.offset + 1
            job_id = (record.key or b"").decode(errors="replace")
            wish = NOBODY if record.value is None else wish_of(record.value, record.appended_ms)
            if wish.on and wish.to:
                self._wishes[job_id] = wish
            else:
                self._wishes.pop(job_id, None)


def wish_of(value: bytes, appended_ms: int) -> Wish:
    """What a definition says; nobody is told when it says nothing, or what cannot be read."""
    if _MARK not in value:  # most jobs notify nobody
        return NOBODY
    try:
        document = orjson.loads(value)
        notify = document.get("notify") or {}
        return Wish(
            on=frozenset(notify.get("on", ["dead"])),
            to=tuple(map(str, notify.get("to", ()))),
            tenant=str(document.get("tenant", "default")),
            streak=notify.get("streak"),
            late_after_ms=_duration_ms(notify.get("late_after")),
            nothing_ran_after_ms=_duration_ms(notify.get("nothing_ran_after")),
            since_ms=appended_ms,
        )
    except (ValueError, AttributeError, TypeError, InvalidDefinition):
        return NOBODY


def _duration_ms(value: object) -> int | None:
    return None if value is None else parse_duration(value, pointer="/notify")
