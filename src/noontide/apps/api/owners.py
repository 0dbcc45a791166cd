"""Who owns which slot, and what they say: the directory read from `owners`, and questions to the processes in it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import orjson

from noontide.actors.waiting import wait_for_event
from noontide.adapters.http.line import HttpLine, LineBroken
from noontide.apps.api.problems import unavailable
from noontide.apps.api.settings import ApiSettings
from noontide.apps.port import wire
from noontide.ports.record_log import Feed, Incoming, Replay, TopicPartition
from noontide.records.topics import Layout

log = logging.getLogger("noontide.api")
QUESTIONS_MAX = 500
ANSWER_S = 5.0
AGAIN_S = 0.05


class Owner(NamedTuple):
    """Who owns a slot, as they said last. url: where they can be asked; appended_ms: when they said it."""

    slot: int
    url: str | None
    appended_ms: int
    said: Mapping[str, object]


class Directory:
    """The owners as `owners` has them; `changed` is called when a slot has another one."""

    def __init__(self, layout: Layout, *, feed: Feed, replay: Replay) -> None:
        self.owners: dict[int, Owner] = {}
        self.changed: Callable[[], None] = lambda: None
        self._at = TopicPartition(layout.name("owners"), 0)
        self._slots = layout.slots
        self._feed = feed
        self._replay = replay
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Read all there is, then follow. Raises Doubt when the log cannot be read."""
        end, records = await asyncio.to_thread(self._read)
        self._take(records)
        self._feed.attach(self._take, {self._at: end})

    async def news(self, timeout_s: float) -> None:
        """Wait until somebody says something, at most so long."""
        await wait_for_event(self._news, at_most_ms=timeout_s * 1000)

    def _read(self) -> tuple[int, list[Incoming]]:
        end = self._replay.stable_offsets([self._at])[self._at]
        chunks = self._replay.read({self._at: 0}, {self._at: end})
        return end, [record for chunk in chunks for record in chunk]

    def _take(self, records: list[Incoming]) -> None:
        before = {slot: owner.url for slot, owner in self.owners.items()}
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            if not key.isdigit() or int(key) >= self._slots:
                continue
            said = _said(record.value)
            if said is None:
                self.owners.pop(int(key), None)
                continue
            url = said.get("url")
            self.owners[int(key)] = Owner(int(key), url if isinstance(url, str) else None, record.appended_ms, said)
        news, self._news = self._news, asyncio.Event()
        news.set()
        if before != {slot: owner.url for slot, owner in self.owners.items()}:
            self.changed()


def _said(value: bytes | None) -> Mapping[str, object] | None:
    try:
        said = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return None
    return said if isinstance(said, dict) else None


class Process:
    """One scheduler process. Quick questions go together over one connection; slow ones have their own."""

    def __init__(self, url: str, secret: str, *, slow_lines: int) -> None:
        headers = (f"Authorization: Bearer {secret}",)
        self._quick = HttpLine(url, headers)
        self._slow = [HttpLine(url, headers) for _ in range(slow_lines)]
        self._slow_free = asyncio.Semaphore(slow_lines)
        self._asked: deque[tuple[wire.Asked, asyncio.Future[wire.Answered]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, question: wire.Asked) -> wire.Answered:
        """The answer. Raises LineBroken."""
        if not isinstance(question, wire.Jobs | wire.Verdicts | wire.Leases):
            return await self._ask_slowly(question)
        future: asyncio.Future[wire.Answered] = asyncio.get_running_loop().create_future()
        self._asked.append((question, future))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return await future

    def close(self) -> None:
        """Give up the connections."""
        if self._sending is not None:
            self._sending.cancel()
        for line in (self._quick, *self._slow):
            line.close()

    async def _ask_slowly(self, question: wire.Asked) -> wire.Answered:
        async with self._slow_free:
            line = self._slow.pop()
            try:
                (answer,) = await _asked(line, [question])
            finally:
                self._slow.append(line)
        return answer

    async def _send(self) -> None:
        """Send what has gathered, and again what gathers meanwhile."""
        try:
            while self._asked:
                batch = [self._asked.popleft() for _ in range(min(len(self._asked), QUESTIONS_MAX))]
                try:
                    answers = await _asked(self._quick, [question for question, _ in batch])
                except Exception as broken:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(LineBroken(str(broken)))
                    continue
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._sending = None


async def _asked(line: HttpLine, questions: list[wire.Asked]) -> list[wire.Answered]:
    body = await line.request("POST", wire.ASK, wire.encode(questions), timeout_s=ANSWER_S)
    try:
        answers = wire.decode_answers(body)
    except msgspec.DecodeError as error:
        raise LineBroken(f"what came is no answer: {error}") from None
    if len(answers) != len(questions):
        raise LineBroken("what came answers something else")
    return answers


class Owners:
    """Asks the owners of slots; waits a bounded time while a slot moves."""

    def __init__(self, layout: Layout, directory: Directory, settings: ApiSettings, *, secret: str) -> None:
        self.layout = layout
        self.directory = directory
        self._settings = settings
        self._secret = secret
        self._processes: dict[str, Process] = {}

    async def ask(self, slot: int, question: wire.Asked) -> wire.Answered:
        """The owner's answer. Raises ApiProblem (503) when the slot has no owner that answers in time."""
        (answer,) = await self.ask_all([slot], lambda _slots: question)
        return answer

    async def ask_all(self, slots: Sequence[int], question: Callable[[list[int]], wire.Asked]) -> list[wire.Answered]:
        """The answers of the owners of some slots, each asked once about all that it owns of them.

        Raises ApiProblem (503) when a slot has no owner that answers in time.
        """
        answers, missing = await self.ask_present(slots, question, wait_ms=self._settings.owner_wait_ms)
        if missing:
            retry_after_sec = self._settings.retry_after_sec
            named = ", ".join(map(str, missing))
            raise unavailable(f"slot {named} has no owner that answers", retry_after_sec=retry_after_sec)
        return answers

    async def ask_present(
        self, slots: Sequence[int], question: Callable[[list[int]], wire.Asked], *, wait_ms: int
    ) -> tuple[list[wire.Answered], list[int]]:
        """As `ask_all`, but what came within a time, and the slots that nobody answered for."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        open_slots, answers = set(slots), list[wire.Answered]()
        while True:
            by_url = self._by_url(open_slots)
            asked = [self._try(url, question(owned)) for url, owned in by_url.items()]
            for owned, answer in zip(by_url.values(), await asyncio.gather(*asked), strict=True):
                if answer is not None:
                    answers.append(answer)
                    open_slots.difference_update(owned)
            left_s = until_s - loop.time()
            if not open_slots or left_s <= 0:
                return answers, sorted(open_slots)
            await self.directory.news(min(left_s, AGAIN_S))

    def _by_url(self, slots: set[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for slot in sorted(slots):
            owner = self.directory.owners.get(slot)
            if owner is not None and owner.url is not None:
                found.setdefault(owner.url, []).append(slot)
        return found

    async def _try(self, url: str, question: wire.Asked) -> wire.Answered | None:
        process = self._processes.get(url)
        if process is None:
            process = self._processes[url] = Process(url, self._secret, slow_lines=self._settings.slow_lines)
        try:
            answer = await process.ask(question)
        except LineBroken as broken:
            log.debug("line broken: %s", broken)
            return None
        return None if isinstance(answer, wire.Moved) else answer

    def missing(self) -> list[int]:
        """Slots without an owner that can be asked."""
        known = self.directory.owners
        return [slot for slot in range(self.layout.slots) if slot not in known or known[slot].url is None]

    def close(self) -> None:
        """Give up all connections."""
        for process in self._processes.values():
            process.close()
