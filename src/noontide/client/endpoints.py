"""Every endpoint as a method of both clients, written once.

`client.get_job("a")` sends what `calls.get_job("a")` says: `Client` gives the answer, `AsyncClient` one to be awaited.
Lists become iterators in the one, asynchronous iterators in the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from noontide.client import calls
from noontide.client.calls import Call, Pages

if TYPE_CHECKING:
    from noontide.client.asynchronous import AsyncClient
    from noontide.client.blocking import Client

P = ParamSpec("P")
T = TypeVar("T")


class Endpoint(Generic[P, T]):
    """A call as a method."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """The method of a client."""
        if client is None:
            return self

        @wraps(self._call)
        def ask(*args: P.args, **options: P.kwargs) -> Any:
            return client.send(self._call(*args, **options))

        return ask


class Listing(Generic[P, T]):
    """A list as a method that gives an iterator."""

    def __init__(self, pages: Callable[P, Pages[T]]) -> None:
        self._pages = pages
        self.__doc__ = pages.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """The method of a client."""
        if client is None:
            return self

        @wraps(self._pages)
        def items(*args: P.args, **options: P.kwargs) -> Any:
            return client.items(self._pages(*args, **options))

        return items


class Endpoints:
    """What both clients can ask."""

    create_job = Endpoint(calls.create_job)
    get_job = Endpoint(calls.get_job)
    replace_job = Endpoint(calls.replace_job)
    change_job = Endpoint(calls.change_job)
    delete_job = Endpoint(calls.delete_job)
    pause_job = Endpoint(calls.pause_job)
    resume_job = Endpoint(calls.resume_job)
    trigger_job = Endpoint(calls.trigger_job)
    backfill_job = Endpoint(calls.backfill_job)
    next_times = Endpoint(calls.next_times)
    preview = Endpoint(calls.preview)

    jobs = Listing(calls.jobs)
    runs = Listing(calls.runs)
    dead_letters = Listing(calls.dead_letters)
    executions = Listing(calls.executions)

    get_run = Endpoint(calls.get_run)
    cancel_run = Endpoint(calls.cancel_run)
    retry_run = Endpoint(calls.retry_run)
    redrive = Endpoint(calls.redrive)

    forecast = Endpoint(calls.forecast)
    job_graph = Endpoint(calls.job_graph)
    calendar_diff = Endpoint(calls.calendar_diff)
    workers = Endpoint(calls.workers)
    partitions = Endpoint(calls.partitions)
    tenant_share = Endpoint(calls.tenant_share)

    lease = Endpoint(calls.lease)
    heartbeat = Endpoint(calls.heartbeat)
    complete = Endpoint(calls.complete)

    configured = Endpoint(calls.configured)
    configure = Endpoint(calls.configure)
    unconfigure = Endpoint(calls.unconfigure)
