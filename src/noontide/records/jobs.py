"""Records of the `jobs` topic: the accepted definition; what the owner knows about it is in the headers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from noontide.core.instants import format_instant


class JobHeaders(NamedTuple):
    """etag: version of the definition; created_ms, updated_ms: append times of the first and the latest request."""

    etag: str
    created_ms: int
    updated_ms: int


def job_headers(*, etag: str, origin: str, tenant: str, created_ms: int, updated_ms: int) -> list[tuple[str, bytes]]:
    """Headers of an accepted definition. `origin` names the request that it came from."""
    return [
        ("etag", etag.encode()),
        ("origin", origin.encode()),
        ("tenant", tenant.encode()),
        ("created", format_instant(created_ms).encode()),
        ("updated", format_instant(updated_ms).encode()),
    ]


def read_job_headers(headers: Sequence[tuple[str, bytes]]) -> JobHeaders:
    """Inverse of `job_headers`, for those that an owner needs again."""
    found = dict(headers)
    return JobHeaders(found["etag"].decode(), _instant_ms(found["created"]), _instant_ms(found["updated"]))


def _instant_ms(text: bytes) -> int:
    return round(datetime.fromisoformat(text.decode()).timestamp() * 1000)
