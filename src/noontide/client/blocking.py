"""`Client`: the API for threads; `AsyncClient` is the same for asyncio."""

from __future__ import annotations

import secrets
import ssl
import threading
from collections.abc import Iterable, Iterator
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


class Client(Endpoints):
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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._settings = settings or ClientSettings()
        headers = {"accept": "application/json"} | ({} if token is None else {"authorization": f"Bearer {token}"})
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=self._settings.timeout_sec, verify=verify, transport=transport
        )
        self._wait = threading.Event().wait

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def put_jobs(self, definitions: Iterable[Document | bytes], *, mode: str = "replace") -> Iterator[BatchLine]:
        """Put many jobs, and give what became of each, in order.

        mode: "replace", or "create": then one that exists is a conflict. bytes: JSON as it is, without line breaks.
        """
        for number, lines in enumerate(in_chunks(definitions, self._settings.batch_lines)):
            for line in self.send(calls.put_jobs(lines, mode=mode)):
                line.line += number * self._settings.batch_lines
                yield line

    def send(self, call: Call[T]) -> T:
        """Send a request as `noontide.client.sending` says, and read its answer."""
        attempts = Attempts(call, self._settings, jitter=secrets.randbelow(1_000) / 1_000)
        while True:
            try:
                response = self._request(call)
            except httpx.TransportError as error:
                pause_s = attempts.after_error(error)
            else:
                again_s = attempts.after_answer(response)
                if again_s is None:
                    break
                pause_s = again_s
            self._wait(pause_s)
        if response.status_code == httpx.codes.ACCEPTED and "/v1/requests/" in location_of(response):
            return self._stored(call, location_of(response))
        return call.read(response.content)

    def _request(self, call: Call[T]) -> httpx.Response:
        typed = {} if call.body is None else {"content-type": "application/json"}
        return self._http.request(
            call.method, call.path, params=list(call.params), content=call.body, headers={**typed, **call.headers}
        )

    def _stored(self, call: Call[T], location: str) -> T:
        """The result of a write that is stored, once it is decided. Raises NotDecided; ApiError when it is refused."""
        waited_s = 0.0
        while (found := self._decision(location)) is None:
            if waited_s >= self._settings.decide_sec:
                raise NotDecided(location)
            self._wait(DECISION_PAUSE_S)
            waited_s += DECISION_PAUSE_S
        if found.run_id is not None and call.stored is None:
            return call.read(orjson.dumps({"run_id": found.run_id}))
        if call.stored is None:
            return call.read(b"null")
        response = self._http.get(call.stored)
        Attempts(call, self._settings, jitter=0, made=self._settings.attempts_max).after_answer(response)
        return call.read(response.content)

    def _decision(self, location: str) -> Decided | None:
        return decided(self._http.get(location))

    def items(self, pages: Pages[T]) -> Iterator[T]:
        """All items of a list."""
        cursor: str | None = None
        while True:
            page = self.send(pages.page(limit=self._settings.page_items, cursor=cursor))
            yield from page.items
            cursor = cursor_behind(page)
            if cursor is None:
                return
