"""A request on its way in: what was written, where it was first written, and where it was read."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from noontide.ports.record_log import Headers
from noontide.records.rejected import Origin

RUN_ID_MAX_CHARS = 300
"""Longer names are no run ids."""


class Input(NamedTuple):
    """A request.

    origin: where it was first written, at `appended_ms`; source: where it was read.
    forwarded: it came by `signals` from the partition it was found in, or was put aside for a while.
    reserved: what its tenant's quota of exact starts said: "" = there is room, else why not; None = nothing yet.
    """

    source: Origin
    origin: Origin
    appended_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    forwarded: bool = False
    reserved: str | None = None

    @property
    def source_name(self) -> str:
        """What tells its offset from the same one elsewhere; see `core.ids`."""
        domain = self.origin.topic.removeprefix("requests.")
        if self.forwarded:
            return f"{domain}-{self.origin.partition}"
        return "" if domain == "api" else domain

    @property
    def size_bytes(self) -> int:
        """Bytes of the value."""
        return 0 if self.value is None else len(self.value)

    @property
    def idempotency_key(self) -> str | None:
        """The key in the headers, as `records.requests` reads it; None without one that can be read."""
        found = next((value for name, value in reversed(self.headers) if name.lower() == "idempotency-key"), None)
        try:
            return None if found is None else found.decode()
        except UnicodeDecodeError:
            return None

    @property
    def wants_verdict(self) -> bool:
        """Whether the sender asked for the answer to be kept."""
        return any(name == "verdict" for name, _ in self.headers)


def named_run(value: bytes | None) -> str | None:
    """The run id that the value of a command names, if it can be read at all."""
    try:
        found = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    run_id = found.get("run_id") if isinstance(found, dict) else None
    return run_id if isinstance(run_id, str) and len(run_id) <= RUN_ID_MAX_CHARS else None
