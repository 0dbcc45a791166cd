"""`AsyncClient`: the API for asyncio; every method is what `Client` has, to be awaited."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Self, TypeVar

import httpx
import orjson

from noontide.client import calls
from noontide.client.calls import Call, Document, Pages
from noontide.client.endpoints import Endpoints
from noontide.client.errors import NotDecided
from noontide.client.models import BatchLine, Decided
from noontide.client.sending import Attempts, cursor_behind, decided, in_chunks, location_of
from noontide.client.settings import ClientSettings

T = TypeVar("T")
DECISION_PAUSE_S = 0.25


class AsyncClient(Endpoints):
    """Speaks to one installation, over connections that are kept.

    url: of any of its API nodes, or of what stands before them. token: sent as a bearer token. verify: False, or a
    context with the certificates to trust. transport: another way to send, for tests.
    Methods raise what `noontide.client.errors` lists.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        settings: ClientSettings | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings or ClientSettings()
        headers = {"accept": "application/json"} | ({} if token is None else {"authorization": f"Bearer {token}"})
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=self._settings.timeout_sec, verify=verify, transport=transport
        )
        self._wait = asyncio.sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def put_jobs(
        self, definitions: Iterable[Document | bytes], *, mode: str = "replace"
    ) -> AsyncIterator[BatchLine]:
        """Put many jobs, and give what became of each, in order.

        mode: "replace", or "create": then one that exists is a conflict. bytes: JSON as it is, without line breaks.
        """
        for number, lines in enumerate(in_chunks(definitions, self._settings.batch_lines)):
            for line in await self.send(calls.put_jobs(lines, mode=mode)):
                line.line += number * self._settings.batch_lines
                yield line

    async def send(self, call: Call[T]) -> T:
        """Send a request as `noontide.client.sending` says, and read its answer."""
        attempts = Attempts(call, self._settings, jitter=secrets.randbelow(1_000) / 1_000)
        while True:
            try:
                response = await self._request(call)
            except httpx.TransportError as error:
                pause_s = attempts.after_error(error)
            else:
                again_s = attempts.after_answer(response)
                if again_s is None:
                    break
                pause_s = again_s
            await self._wait(pause_s)
        if response.status_code == httpx.codes.ACCEPTED and "/v1/requests/" in location_of(response):
            return await self._stored(call, location_of(response))
        return call.read(response.content)

    async def _request(self, call: Call[T]) -> httpx.Response:
        typed = {} if call.body is None else {"content-type": "application/json"}
        return await self._http.request(
            call.method, call.path, params=list(call.params), content=call.body, headers={**typed, **call.headers}
        )

    async def _stored(self, call: Call[T], location: str) -> T:
        """The result of a write that is stored, once it is decided. Raises NotDecided; ApiError when it is refused."""
        waited_s = 0.0
        while (found := await self._decision(location)) is None:
            if waited_s >= self._settings.decide_sec:
                raise NotDecided(location)
            await self._wait(DECISION_PAUSE_S)
            waited_s += DECISION_PAUSE_S
        if found.run_id is not None and call.stored is None:
            return call.read(orjson.dumps({"run_id": found.run_id}))
        if call.stored is None:
            return call.read(b"null")
        response = await self._http.get(call.stored)
        Attempts(call, self._settings, jitter=0, made=self._settings.attempts_max).after_answer(response)
        return call.read(response.content)

    async def _decision(self, location: str) -> Decided | None:
        return decided(await self._http.get(location))

    async def items(self, pages: Pages[T]) -> AsyncIterator[T]:
        """All items of a list."""
        cursor: str | None = None
        while True:
            page = await self.send(pages.page(limit=self._settings.page_items, cursor=cursor))
            for item in page.items:
                yield item
            cursor = cursor_behind(page)
            if cursor is None:
                return
