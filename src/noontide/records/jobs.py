"""Records of the `jobs` topic: the accepted definition; what the owner knows about it is in the headers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from noontide.core.instants import instant_bytes, ms_of

Header = tuple[str, bytes]


class JobHeaders(NamedTuple):
    """etag: version of the definition; created_ms, updated_ms: append times of the first and the latest request.

    trace: trace context of the latest request, "" = none; see `core.tracing`.
    """

    etag: str
    created_ms: int
    updated_ms: int
    trace: str = ""


def job_headers(
    *, etag: str, origin: str, tenant: str, created_ms: int, updated_ms: int, trace: str = ""
) -> list[tuple[str, bytes]]:
    """Headers of an accepted definition. `origin` names the request that it came from; trace: see `JobHeaders`."""
    return [
        ("etag", etag.encode()),
        ("origin", origin.encode()),
        tenant_header(tenant),
        ("created", instant_bytes(created_ms)),
        ("updated", instant_bytes(updated_ms)),
        *([("traceparent", trace.encode())] if trace else []),
    ]


def tenant_header(tenant: str) -> Header:
    """The tenant among `job_headers`."""
    return "tenant", tenant.encode()


def time_headers(at_ms: int) -> tuple[Header, Header]:
    """The times among `job_headers`, last, of a job that is new."""
    return ("created", instant_bytes(at_ms)), ("updated", instant_bytes(at_ms))


def read_job_headers(headers: Sequence[tuple[str, bytes]]) -> JobHeaders:
    """Inverse of `job_headers`, for those that an owner needs again."""
    found = dict(headers)
    trace = found.get("traceparent", b"").decode()
    return JobHeaders(found["etag"].decode(), _instant_ms(found["created"]), _instant_ms(found["updated"]), trace)


def _instant_ms(text: bytes) -> int:
    return ms_of(datetime.fromisoformat(text.decode()))
