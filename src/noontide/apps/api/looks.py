"""What pages watch: each address is looked at once for all who may see the same, and told when its answer changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from noontide.apps.api.problems import ApiProblem, unavailable
from noontide.apps.api.settings import ApiSettings
from noontide.core.access import Principal

PACES_MS: Final = {
    "forecast": 10_000, "outcomes": 5_000, "partitions": 3_000, "tenants": 5_000, "alerts": 3_000, "scaling": 2_000,
    "stats": 5_000, "workers": 2_000, "dead-letters": 2_000, "jobs": 1_000, "runs": 1_000,
}  # fmt: skip
"""What can be watched, by the word behind `/v1/`, and how often it is looked at."""
SLOWEST_MS: Final = 30_000


class Answer(NamedTuple):
    """What an address answered."""

    status: int
    body: bytes


class Listener:
    """One stream. Of each address only the newest answer waits for it, so a slow reader misses steps, never the end."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting: dict[str, Answer] = {}
        self._news = asyncio.Event()

    def tell(self, path: str, answer: Answer) -> None:
        """An address has answered something new."""
        self._waiting[path] = answer
        self._news.set()

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._news.set()

    async def news(self, *, at_most_s: float) -> dict[str, Answer]:
        """What is new by address; empty when nothing is for so long."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._news.wait()
        except TimeoutError:
            return {}
        self._news.clear()
        waiting, self._waiting = self._waiting, {}
        return waiting


class _Look:
    """One address for those who may see the same."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.last: Answer | None = None
        self.task: asyncio.Task[None] | None = None


class Looks:
    """All that is watched on this node. Lives on the event loop of the application."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings
        self._looks: dict[tuple[str, Principal], _Look] = {}
        self._streams: Counter[str] = Counter()
        self._closed = False

    @property
    def streams(self) -> int:
        """Streams that are open."""
        return self._streams.total()

    def join(self, who: Principal, paths: list[str]) -> Listener:
        """Watch some addresses. Raises ApiProblem (503) when there are too many streams or addresses."""
        settings, viewer = self._settings, _viewer(who)
        new = sum((path, viewer) not in self._looks for path in paths)
        full = (
            self._closed
            or self.streams >= settings.live_streams_max
            or self._streams[who.name] >= settings.live_streams_each_max
            or len(self._looks) + new > settings.live_looks_max
        )
        if full:
            raise unavailable("too much is watched already; ask by yourself", retry_after_sec=SLOWEST_MS // 1000)
        self._streams[who.name] += 1
        listener = Listener()
        for path in paths:
            look = self._looks.setdefault((path, viewer), _Look())
            look.listeners.add(listener)
            if look.last is not None:
                listener.tell(path, look.last)
            if look.task is None:
                look.task = asyncio.create_task(self._follow(path, viewer, look), name=f"look {path}")
        return listener

    def leave(self, who: Principal, paths: list[str], listener: Listener) -> None:
        """Watch them no more."""
        self._streams[who.name] -= 1
        self._streams += Counter()  # forgets those without any
        for path in paths:
            look = self._looks[path, _viewer(who)]
            look.listeners.discard(listener)
            if not look.listeners:
                assert look.task is not None
                look.task.cancel()
                del self._looks[path, _viewer(who)]

    def close(self) -> None:
        """End all streams, and begin no more."""
        self._closed = True
        for listener in {each for look in self._looks.values() for each in look.listeners}:
            listener.close()

    async def _follow(self, path: str, viewer: Principal, look: _Look) -> None:
        clock, failures = asyncio.get_running_loop().time, 0
        pace_ms = PACES_MS[word_of(path)]
        while True:
            began_s = clock()
            answer = await self._answer(path, viewer)
            failures = failures + 1 if answer.status >= 500 else 0
            if answer != look.last:
                look.last = answer
                for listener in look.listeners:
                    listener.tell(path, answer)
            took_ms = (clock() - began_s) * 1000
            rest_ms = took_ms * (100 / self._settings.live_share_percent - 1)
            slower_ms = min(SLOWEST_MS, pace_ms * 2 ** min(failures, 5))
            await asyncio.sleep(max(slower_ms, rest_ms) / 1000)

    async def _answer(self, path: str, viewer: Principal) -> Answer:
        try:
            answer = await asked(self._app, path, viewer)
        except Exception as error:  # noqa: BLE001 - the application has logged it; whoever watches is told
            answer = Answer(500, _problem(500, "internal", type(error).__name__))
        most = self._settings.live_answer_max_bytes
        if len(answer.body) > most:
            return Answer(413, _problem(413, "too-large", f"the answer is larger than {most} bytes; ask for it"))
        return answer


def word_of(path: str) -> str:
    """The word behind `/v1/`: what kind of thing an address is about."""
    return path.removeprefix("/v1/").partition("?")[0].partition("/")[0]


def _viewer(who: Principal) -> Principal:
    """Whoever sees what somebody sees, whatever their name."""
    return Principal(name="live", role=who.role, tenants=who.tenants)


def _problem(status: int, kind: str, detail: str) -> bytes:
    return bytes(ApiProblem(status, kind, detail).response().body)


async def asked(app: ASGIApp, path: str, who: Principal) -> Answer:
    """What the application answers somebody at an address; nobody is asked again who they are."""
    name, _, query = path.partition("?")
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": unquote(name), "raw_path": name.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"localhost")], "client": None, "server": ("localhost", 80), "state": {"principal": who},
    }  # fmt: skip
    status, parts = 500, list[bytes]()

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, _nothing_more(), send)
    return Answer(status, b"".join(parts))


def _nothing_more() -> Callable[[], Awaitable[Message]]:
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive
