"""`AsyncClient`: the API for asyncio; every method is what `Client` has, to be awaited."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

import httpx
import orjson

from noontide.client import calls
from noontide.client.calls import Call, Document
from noontide.client.errors import NotDecided
from noontide.client.models import Backfilled, BatchLine, Decided, Job, LeasedRun, Page, Redriven, Run, Time, Workers
from noontide.client.sending import Attempts, cursor_behind, decided, in_chunks, location_of
from noontide.client.settings import ClientSettings

T = TypeVar("T")
DECISION_PAUSE_S = 0.25


class AsyncClient:
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

    # --- jobs

    async def create_job(self, definition: Document, *, idempotency_key: str | None = None) -> Job:
        """Create a job. Without a key one is made, so that it is created once, however often it is sent."""
        return await self.send(calls.create_job(definition, idempotency_key=idempotency_key))

    async def get_job(self, job_id: str) -> Job:
        """Read a job."""
        return await self.send(calls.get_job(job_id))

    async def replace_job(self, job_id: str, definition: Document, *, if_match: str | None = None) -> Job:
        """Create or replace a job. if_match: the ETag it must have, or "*"."""
        return await self.send(calls.replace_job(job_id, definition, if_match=if_match))

    async def change_job(self, job_id: str, patch: Document, *, if_match: str | None = None) -> Job:
        """Merge a patch into a job (RFC 7396): None removes a field, what is not named stays."""
        return await self.send(calls.change_job(job_id, patch, if_match=if_match))

    async def delete_job(self, job_id: str, *, if_match: str | None = None) -> None:
        """Delete a job; its live runs are finished."""
        await self.send(calls.delete_job(job_id, if_match=if_match))

    async def pause_job(self, job_id: str, *, note: str | None = None) -> Job:
        """Stop its schedule; times that pass are not missed."""
        return await self.send(calls.pause_job(job_id, note=note))

    async def resume_job(self, job_id: str, *, note: str | None = None) -> Job:
        """Go on at its next time after now; an empty note removes the one there is."""
        return await self.send(calls.resume_job(job_id, note=note))

    async def trigger_job(
        self, job_id: str, *, payload: object = None, reason: str | None = None, idempotency_key: str | None = None
    ) -> str:
        """Run it now, besides its schedule; returns the run id. payload: None = the job's own."""
        said = {name: value for name, value in (("payload", payload), ("reason", reason)) if value is not None}
        return (await self.send(calls.trigger_job(job_id, said, idempotency_key=idempotency_key))).run_id

    async def backfill_job(
        self, job_id: str, begin: str, end: str, *, idempotency_key: str | None = None, **more: Any
    ) -> Backfilled:
        """Make the runs of past occurrences with begin <= due < end (RFC 3339).

        more: overlap ("queue", "allow"), reprocess, dry_run, max; see docs/how-to/backfill.md.
        """
        said = {"from": begin, "to": end, **{name: value for name, value in more.items() if value}}
        return await self.send(calls.backfill_job(job_id, said, idempotency_key=idempotency_key))

    async def next_times(self, job_id: str, *, count: int = 10, after: str | None = None) -> list[Time]:
        """When it runs next. after: an instant, RFC 3339; None = now."""
        return (await self.send(calls.next_times(job_id, count=count, after=after))).times

    async def preview(self, definition: Document, *, count: int = 10, after: str | None = None) -> list[Time]:
        """When a definition would run; stores nothing."""
        return (await self.send(calls.preview(definition, count=count, after=after))).times

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

    # --- lists

    def jobs(
        self,
        *,
        tenant: str | None = None,
        state: str | None = None,
        target: str | None = None,
        text: str | None = None,
        labels: Iterable[str] = (),
    ) -> AsyncIterator[Job]:
        """Jobs by id. labels: NAME or NAME=VALUE, all of them."""
        filters = {"tenant": tenant, "state": state, "target": target, "text": text, "label": list(labels)}
        return self._items(calls.list_jobs, filters)

    def runs(
        self, *, state: Iterable[str] = (), tenant: str | None = None, job: str | None = None
    ) -> AsyncIterator[Run]:
        """Live runs by id, then closed ones, the newest first. state: only these; "failed" means dead."""
        return self._items(calls.list_runs, {"state": list(state), "tenant": tenant, "job": job})

    def dead_letters(self, *, tenant: str | None = None, job: str | None = None) -> AsyncIterator[Run]:
        """Runs that died and can be redriven, by id."""
        return self._items(calls.list_dead, {"tenant": tenant, "job": job})

    def executions(self, job_id: str) -> AsyncIterator[Run]:
        """What became of a job's occurrences, the latest nominal time first.

        Raises Unavailable behind the recent ones when older ones are kept in a history that does not answer now.
        """
        return self._items(lambda **asked: calls.executions(job_id, **asked), {})

    # --- runs

    async def get_run(self, run_id: str) -> Run:
        """Read a run."""
        return await self.send(calls.get_run(run_id))

    async def cancel_run(self, run_id: str, *, reason: str | None = None) -> Run:
        """End a live run; a worker that has it is asked to stop."""
        return await self.send(calls.cancel_run(run_id, reason=reason))

    async def retry_run(self, run_id: str) -> Run:
        """Start a dead run again, or end the wait of one that waits for its next attempt."""
        return await self.send(calls.retry_run(run_id))

    async def redrive(
        self,
        *,
        run_ids: Iterable[str] = (),
        job: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Start dead runs again: those named, or those of a job or with a reason."""
        named = list(run_ids) or None
        said = {"run_ids": named, "job_id": job, "reason": reason, "limit": limit, "dry_run": dry_run}
        return await self.send(calls.redrive(said))

    async def forecast(self, **asked: Any) -> dict[str, Any]:
        """Runs of each minute to come. asked: minutes, by ("tenant", "lane", "target"), tenant, peaks."""
        return await self.send(calls.forecast(**asked))

    async def job_graph(self, job_id: str, *, limit: int | None = None) -> dict[str, Any]:
        """The jobs that a job waits for, directly or not, and those that wait for it."""
        return await self.send(calls.job_graph(job_id, limit=limit))

    async def calendar_diff(self, name: str, calendar: Document, *, days: int | None = None) -> dict[str, Any]:
        """Which fires of which jobs would move if a calendar became this; changes nothing."""
        return await self.send(calls.calendar_diff(name, calendar, days=days))

    async def workers(self) -> Workers:
        """Who holds runs, and what waits in each lane."""
        return await self.send(calls.workers())

    async def partitions(self) -> list[dict[str, Any]]:
        """Each slot: its partitions, its owner, and how far that is."""
        return (await self.send(calls.partitions())).items

    async def tenant_share(self, tenant: str) -> dict[str, Any]:
        """What a tenant has of each limit, and its runs in each lane."""
        return await self.send(calls.tenant_share(tenant))

    # --- working on runs, for those who write no handlers

    async def lease(
        self, handlers: Iterable[str], *, lane: str = "default", count: int = 1, wait_ms: int = 20_000
    ) -> tuple[str, list[LeasedRun]]:
        """The worker that runs are leased to, and those runs, as soon as there are some; none after `wait_ms`."""
        found = await self.send(calls.lease(list(handlers), lane=lane, max=count, wait_ms=wait_ms))
        return found.worker, found.runs

    async def heartbeat(
        self, worker: str, runs: Iterable[LeasedRun], *, progress: float | None = None, note: str | None = None
    ) -> dict[str, str]:
        """Keep runs; gives what each is: running, cancel (stop) or lost (stop: it counts no more)."""
        found = await self.send(calls.heartbeat(worker, list(runs), {"progress": progress, "note": note}))
        return {each["run_id"]: each["state"] for each in found.runs}

    async def complete(self, worker: str, run: LeasedRun, outcome: str, **more: Any) -> str:
        """End a run; gives what it is now. Raises Conflict when it was not this worker's any more.

        outcome: succeeded, failed, cancelled or handed_back. more: result, error, permanent, retry_after_sec.
        """
        return (await self.send(calls.complete(worker, run, {"outcome": outcome, **more}))).state

    # --- configuration

    async def configured(self, noun: str) -> dict[str, Any]:
        """All of a noun by name: targets, tenants, calendars, lanes, channels."""
        found = await self.send(calls.configured(noun))
        return {str(item["name"]): item["value"] for item in found.items}

    async def configure(self, noun: str, name: str, value: Document) -> None:
        """Set one."""
        await self.send(calls.configure(noun, name, value))

    async def unconfigure(self, noun: str, name: str) -> None:
        """Remove one."""
        await self.send(calls.unconfigure(noun, name))

    # --- sending

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

    async def _items(self, listing: Callable[..., Call[Page[T]]], filters: Mapping[str, object]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self.send(listing(**filters, limit=self._settings.page_items, cursor=cursor))
            for item in page.items:
                yield item
            cursor = cursor_behind(page)
            if cursor is None:
                return
