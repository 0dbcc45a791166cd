"""`/v1/live`: server-sent events; what is watched is sent when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from noontide.apps.api.looks import PACES_MS, Answer, Listener, Looks, word_of
from noontide.apps.api.principal import Principal, Viewer
from noontide.apps.api.problems import ApiProblem
from noontide.apps.api.services import settings_of
from noontide.core.errors import InvalidDefinition

router = APIRouter(prefix="/v1", tags=["live"])
PATH_MAX_CHARS = 2_000
NOT_WATCHED = "/content"  # it is looked up on a topic, each time
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
BEAT = b": still here\n\n"


@router.get("/live", summary="What changes, at once", response_class=StreamingResponse)
async def live(
    request: Request,
    who: Viewer,
    watch: Annotated[list[str], Query(description="Addresses, such as `/v1/runs?state=running`.", min_length=1)],
) -> Response:
    """Server-sent events. Each has two lines of data: `{"path": ..., "status": ...}`, and the answer of that address;
    first as it is, then whenever it is another. The stream ends after some minutes: begin another.
    """
    settings = settings_of(request)
    paths = list(dict.fromkeys(watch))
    for place, path in enumerate(paths):
        word = word_of(path)
        is_known = path.startswith("/v1/") and word in PACES_MS and not path.partition("?")[0].endswith(NOT_WATCHED)
        if not is_known or len(path) > PATH_MAX_CHARS or not path.isascii():
            known = ", ".join(f"/v1/{each}" for each in sorted(PACES_MS))
            raise InvalidDefinition.of(f"/query/watch/{place}", f"must be an address below {known}")
    if len(paths) > settings.live_watches_max:
        raise InvalidDefinition.of("/query/watch", f"at most {settings.live_watches_max} addresses can be watched")
    looks = looks_of(request)
    listener = looks.join(who, paths)

    async def events() -> AsyncIterator[bytes]:
        try:
            yield b"retry: 1000\n\n"
            async for event in _events(request, who, listener):
                yield event
        finally:
            looks.leave(who, paths, listener)

    return StreamingResponse(events(), media_type="text/event-stream", headers=HEADERS)


def looks_of(request: Request) -> Looks:
    """What is watched on this node."""
    looks = request.app.state.looks
    assert isinstance(looks, Looks)
    return looks


async def _events(request: Request, who: Principal, listener: Listener) -> AsyncIterator[bytes]:
    settings, clock = settings_of(request), asyncio.get_running_loop().time
    beat_s = settings.live_beat_ms / 1000
    until_s, checked_s = clock() + settings.live_length_ms / 1000, clock()
    while not listener.closed and clock() < until_s:
        news = await listener.news(at_most_s=beat_s)
        if clock() - checked_s >= beat_s:
            checked_s = clock()
            if not await _is_still(request, who):
                return
        for path, answer in news.items():
            yield _event(path, answer)
        if not news:
            yield BEAT


async def _is_still(request: Request, who: Principal) -> bool:
    """Whether the token is good and means the same: one that was revoked hears nothing more."""
    try:
        now = await request.app.state.authenticate(request)
    except ApiProblem as problem:
        return problem.status == 429  # many requests are no reason
    return bool(now == who)


def _event(path: str, answer: Answer) -> bytes:
    about = orjson.dumps({"path": path, "status": answer.status})
    return b"data: %b\ndata: %b\n\n" % (about, answer.body.replace(b"\n", b" ").replace(b"\r", b" "))
