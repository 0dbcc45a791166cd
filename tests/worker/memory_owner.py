"""A group and an owner in memory: what a worker talks to in tests, with buttons for everything that can go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import orjson

from noontide.ports.run_source import AnswerSink, Delivered, DeliverySink, Place
from noontide.records.worker_events import End, Frame, decode_frame
from noontide.records.worker_inbox import Answer

LEASE_MS = 30_000
FACT_TIMEOUT_S = 10.0


def invitation(number: int = 0, *, handler: str | None = "noop", payload: object = None, **members: object) -> bytes:
    """The JSON of an invitation; members replace those of the default one."""
    fields: dict[str, object] = {
        "run_id": f"job-{number}:20260301T000000Z",
        "slot": number % 4,
        "due": 1_772_323_200_000,
        "attempt": 1,
        "job_id": f"job-{number}",
        "tenant": "acme",
        "max_attempts": 3,
        "target": {"handler": handler} if handler is not None else {"http": {"url": "https://example.org"}},
        "timeout_ms": 60_000,
        "lease_ms": LEASE_MS,
        "heartbeat_ms": LEASE_MS // 3,
        "payload": payload,
    }
    return orjson.dumps(fields | members)


class MemoryOwner:
    """`EventLine` that grants what is claimed, and remembers all it heard.

    grants: False = it says nothing to claims. lease_ms: of the grants.
    """

    def __init__(self) -> None:
        self.grants = True
        self.lease_ms = LEASE_MS
        self.frames: list[tuple[str, int, Frame]] = []
        self.claims: list[tuple[str, int]] = []
        self.beats: list[tuple[str, int]] = []
        self.ends: dict[str, End] = {}
        self.every_end: list[End] = []
        self.tokens: dict[str, int] = {}
        self.ended = 0
        self.posted = asyncio.Event()
        self._sink: AnswerSink | None = None

    async def open(self, sink: AnswerSink) -> None:
        self._sink = sink

    async def post(self, lane: str, slot: int, value: bytes) -> None:
        await asyncio.sleep(0)
        frame = decode_frame(value)
        self.frames.append((lane, slot, frame))
        self.claims += frame.claims
        self.beats += frame.beats
        for end in frame.ends:
            self.ends[end.run_id] = end
            self.ended += 1
        self.every_end += frame.ends
        if self.grants and frame.claims:
            self.grant(frame, slot)
        self.posted.set()

    def grant(self, frame: Frame, slot: int) -> None:
        granted = [(run_id, attempt, self.token(run_id), self.lease_ms) for run_id, attempt in frame.claims]
        self.say(Answer(worker=frame.worker, slot=slot, grants=granted))

    def token(self, run_id: str) -> int:
        return self.tokens.setdefault(run_id, len(self.tokens) + 1)

    def say(self, answer: Answer) -> None:
        assert self._sink is not None
        asyncio.get_running_loop().call_soon(self._sink, [answer])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until what was heard satisfies a condition."""
        async with asyncio.timeout(FACT_TIMEOUT_S):
            while not holds():
                self.posted.clear()
                await self.posted.wait()

    async def close(self) -> None: ...


class MemorySource:
    """`RunSource` of a list; hands out as many as are wanted."""

    def __init__(self, values: Sequence[bytes] = (), *, batch_max: int = 500) -> None:
        self.values = list(values)
        self.accepted: list[Place] = []
        self.released: list[Place] = []
        self.wanted = 0
        self.closed = False
        self._batch_max = batch_max
        self._next = 0
        self._sink: DeliverySink | None = None
        self._scheduled = False

    def start(self, sink: DeliverySink) -> None:
        self._sink = sink

    def want(self, count: int) -> None:
        self.wanted = count
        self._schedule()

    def add(self, *values: bytes) -> None:
        self.values += values
        self._schedule()

    def accept(self, places: Sequence[Place]) -> None:
        self.accepted += places

    def release(self, places: Sequence[Place]) -> None:
        self.released += places

    async def close(self) -> None:
        self.closed = True

    def _schedule(self) -> None:
        if self.wanted > 0 and self._next < len(self.values) and not self._scheduled and self._sink is not None:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        self._scheduled = False
        first, count = self._next, min(self.wanted, self._batch_max)
        batch = self.values[first : first + count]
        self._next += len(batch)
        if batch:
            assert self._sink is not None
            self._sink([Delivered((0, first + each), value, False) for each, value in enumerate(batch)])
