"""The gate in front of the application: how many requests at once, how large a body, how long it may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noontide.apps.api.problems import CLIENT_GONE, ApiProblem
from noontide.apps.api.settings import ApiSettings
from noontide.apps.api.traffic import Traffic

ENDLESS = frozenset(("/v1/live",))
"""Paths whose answers do not end by themselves; all others answer HEAD as they would GET, without the body."""


class Gate:
    """ASGI middleware. larger: endpoints (paths) whose bodies have a bound of their own, in bytes."""

    def __init__(self, app: ASGIApp, *, settings: ApiSettings, larger: Mapping[str, int], traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic
        self._clock = time.monotonic
        self._settings = settings
        self._larger = larger
        self.under_way = 0
        self.body_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer 503 or 413 at once."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD" and scope["path"] not in ENDLESS:
            scope = {**scope, "method": "GET"}  # the server sends no body, since it knows what it was asked
        most = self._larger.get(scope["path"], self._settings.body_max_bytes)
        problem = self._problem(scope, most)
        if problem is not None:
            await problem.response()(scope, receive, send)
            return
        self.under_way += 1
        began_s = self._clock()
        status = CLIENT_GONE
        body = _Body(self, receive, most)

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, body, noting)
        finally:
            self.under_way -= 1
            self.body_bytes -= body.taken
            route = getattr(scope.get("route"), "path", "none")
            self._traffic.note(scope["method"], route, status, self._clock() - began_s)

    @property
    def wait_s(self) -> float:
        """How long a body may be silent."""
        return self._settings.body_wait_ms / 1000

    def take(self, size: int) -> None:
        """A piece of a body is there. Raises ApiProblem (503) when all bodies together are too large."""
        self.body_bytes += size
        if self.body_bytes > self._settings.bodies_max_bytes:
            raise self._busy("too much is being sent at once", {"connection": "close"})

    def _problem(self, scope: Scope, most: int) -> ApiProblem | None:
        if self.under_way >= self._settings.concurrency_max:
            return self._busy("too many requests are under way", {})
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or len(value) > 18 or int(value) > most):
                return _too_large(most)
        return None

    def _busy(self, detail: str, headers: dict[str, str]) -> ApiProblem:
        retry_after = str(self._settings.retry_after_sec)
        return ApiProblem(503, "busy", detail, headers={"retry-after": retry_after, **headers})


class _Body:
    """The body as it comes in, counted and timed."""

    __slots__ = ("_complete", "_gate", "_most", "_receive", "taken")

    def __init__(self, gate: Gate, receive: Receive, most: int) -> None:
        self.taken = 0
        self._gate = gate
        self._receive = receive
        self._most = most
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:  # what comes now is the end of the connection, which may be waited for
            return await self._receive()
        try:
            async with asyncio.timeout(self._gate.wait_s):
                message = await self._receive()
        except TimeoutError:
            raise ApiProblem(
                408, "too-slow", "the body did not arrive in time", headers={"connection": "close"}
            ) from None
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self.taken += size
            self._gate.take(size)
            if self.taken > self._most:
                raise _too_large(self._most)
            self._complete = not message.get("more_body", False)
        return message


def _too_large(most: int) -> ApiProblem:
    close = {"connection": "close"}
    return ApiProblem(413, "too-large", f"the body is larger than {most} bytes", headers=close)
