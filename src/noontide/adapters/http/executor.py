"""Attempts of HTTP targets: one request each, bounded in time, and an end with a reason whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import httpcore

from noontide.adapters.http.capture import Captured, Kept, capture, keep
from noontide.adapters.http.connections import Connections, Exchange
from noontide.adapters.http.network import GuardedNetwork, Resolve, SystemResolver
from noontide.adapters.http.outgoing import Outgoing, Requests
from noontide.adapters.http.redirects import REDIRECTS, follow
from noontide.adapters.http.refusals import Refused
from noontide.adapters.http.secrets import VALUE_MAX_BYTES, SecretStore
from noontide.adapters.http.settings import HttpSettings
from noontide.adapters.http.verdicts import Progress, Verdict, by_error, by_status, cancelled, retry_after, timed_out
from noontide.adapters.system_clock import wall_now_ms
from noontide.records.runs import Invitation
from noontide.records.worker_events import End

_NOTHING = Captured(b"", complete=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCounters:
    """What an executor has done so far. requests: redirects count; attempts: ended ones."""

    attempts: int
    requests: int
    connections_opened: int
    in_flight: int


class HttpExecutor:
    """`TargetExecutor` of {"http": {...}}. For one event loop; `aclose` when the last attempt has ended.

    callback_key: the deployment's secret for completion tokens; with `callback_url` targets are told where to complete
    a run that they go on with after a 202. resolve, now_ms: other name servers and dates, for tests.
    """

    def __init__(
        self,
        settings: HttpSettings | None = None,
        *,
        secrets: SecretStore | None = None,
        callback_key: bytes | None = None,
        resolve: Resolve | None = None,
        now_ms: Callable[[], int] = wall_now_ms,
    ) -> None:
        self._settings = settings or HttpSettings()
        self._now_ms = now_ms
        self._resolver = SystemResolver()  # starts no thread before it is asked
        network = GuardedNetwork(self._settings, resolve or self._resolver)
        self._connections = Connections(self._settings, network)
        self._requests = Requests(self._settings, secrets or SecretStore({}), now_ms=now_ms, callback_key=callback_key)
        self._attempts = 0

    async def execute(self, invitation: Invitation, token: int, *, cancelled: asyncio.Event) -> End:
        """See `TargetExecutor.execute`."""
        started_s = asyncio.get_running_loop().time()
        progress = Progress()
        verdict = await self._unless_cancelled(invitation, token, progress, cancelled)
        self._attempts += 1
        return End(
            run_id=invitation.run_id,
            token=token,
            outcome=verdict.outcome,
            permanent=verdict.permanent,
            error=verdict.error,
            retry_after_ms=verdict.retry_after_ms,
            status=verdict.status,
            result=verdict.result,
            truncated=verdict.truncated,
            duration_ms=round((asyncio.get_running_loop().time() - started_s) * 1000),
        )

    def counters(self) -> HttpCounters:
        """The counters now; connections opened over requests says how well connections are reused."""
        return HttpCounters(
            attempts=self._attempts,
            requests=self._connections.requests,
            connections_opened=self._connections.network.connections_opened,
            in_flight=self._connections.in_flight,
        )

    async def aclose(self) -> None:
        """Close idle connections and the resolver's threads."""
        await self._connections.aclose()
        self._resolver.close()

    async def _unless_cancelled(
        self, invitation: Invitation, token: int, progress: Progress, stop: asyncio.Event
    ) -> Verdict:
        """An attempt that has its answer already keeps it."""
        if stop.is_set():
            return cancelled(progress)
        attempt = asyncio.create_task(self._within_time(invitation, token, progress))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((attempt, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not attempt.done():
                attempt.cancel()
                await asyncio.wait((attempt,))
            return cancelled(progress) if attempt.cancelled() else attempt.result()
        finally:
            attempt.cancel()
            stopping.cancel()
            await asyncio.gather(attempt, stopping, return_exceptions=True)

    async def _within_time(self, invitation: Invitation, token: int, progress: Progress) -> Verdict:
        try:
            async with asyncio.timeout(invitation.timeout_ms / 1000):
                return await self._follow(self._requests.of(invitation, token), progress)
        except TimeoutError:
            return timed_out(invitation.timeout_ms, progress)
        except Exception as error:  # noqa: BLE001 - whatever a server makes a client raise is the end of this attempt
            return by_error(error, progress)

    async def _follow(self, request: Outgoing, progress: Progress) -> Verdict:
        for _ in range(self._settings.redirects_max + 1):
            verdict, onward = await self._send(request, progress)
            if onward is None:
                return verdict
            request = onward
            progress.status = None
        raise Refused(f"more than {self._settings.redirects_max} redirects, the last one to {request.url.site}")

    async def _send(self, request: Outgoing, progress: Progress) -> tuple[Verdict, Outgoing | None]:
        progress.host, progress.sent = request.url.authority, False
        sending = request.for_httpcore(connect_timeout_s=self._settings.connect_timeout_ms / 1000)
        sending.extensions["trace"] = _Trace(progress)
        async with self._connections.exchange(sending) as exchange:
            progress.status = exchange.response.status
            headers = _Headers(exchange.response)
            if exchange.response.status in REDIRECTS:
                await self._pass_over(exchange)
                onward = follow(request, status=exchange.response.status, location=headers.get(b"location"))
                return by_status(exchange.response.status, asynchronous=False, retry_after_ms=None), onward
            return await self._judge(exchange, headers, request), None

    async def _pass_over(self, exchange: Exchange) -> None:
        """The body of a redirect matters only in that its connection can be used again."""
        await capture(exchange, coding="", max_bytes=self._settings.failure_body_max_bytes)

    async def _judge(self, exchange: Exchange, headers: _Headers, request: Outgoing) -> Verdict:
        status = exchange.response.status
        wait_ms = retry_after(
            headers.get(b"retry-after"), date=headers.get(b"date"), now_ms=self._now_ms(),
            max_ms=self._settings.retry_after_max_ms,
        )  # fmt: skip
        asynchronous = (headers.get(b"noontide-async") or "").strip().lower() == "true"
        verdict = by_status(status, asynchronous=asynchronous, retry_after_ms=wait_ms)
        kept = await self._body(exchange, headers, request)
        return replace(verdict, result=kept.result, truncated=kept.truncated)

    async def _body(self, exchange: Exchange, headers: _Headers, request: Outgoing) -> Kept:
        """The reason of a failed status is known without its body, so a body that breaks off changes nothing there."""
        succeeded = 200 <= exchange.response.status < 300
        limit = self._settings.result_max_bytes if succeeded else self._settings.failure_body_max_bytes
        coding = headers.get(b"content-encoding") or ""
        try:
            captured = await capture(exchange, coding=coding, max_bytes=limit + VALUE_MAX_BYTES)
        except (httpcore.NetworkError, httpcore.ProtocolError):
            if succeeded:
                raise
            captured = _NOTHING
        return keep(
            captured, content_type=headers.get(b"content-type") or "", max_bytes=limit, withheld=request.withheld
        )


class _Headers:
    """Headers of a response by lower-case name; the first of several."""

    def __init__(self, response: httpcore.Response) -> None:
        self._headers = response.headers

    def get(self, name: bytes) -> str | None:
        found = next((value for key, value in self._headers if key.lower() == name), None)
        return None if found is None else found.decode("latin-1")


class _Trace:
    """Notes when the request begins to leave: from then on the target may have acted."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    async def __call__(self, event: str, _: object) -> None:
        if event.endswith("send_request_headers.started"):
            self._progress.sent = True
