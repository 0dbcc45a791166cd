"""Definitions for tests, in as few words as the test has to say.

stage.put(job("nightly", cron("30 2 * * *"), misfire="skip"))
stage.put(job("often", every("PT10S"), to="orders", payload={"n": 1}))
stage.put(job("later", once(START_MS + 5_000)))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noontide.core.instants import format_instant

TOPIC: Final = "orders"
"""Where runs go unless a test says otherwise."""

Document = dict[str, object]


def job(job_id: str, schedule: Mapping[str, object] | None, *, to: str = TOPIC, **fields: object) -> Document:
    """A definition with a topic target and exact timing, so that due is start unless `timing` says otherwise."""
    document: Document = {"id": job_id, "target": {"topic": {"name": to}}, **fields}
    if schedule is not None:
        document["schedule"] = dict(schedule)
        if "timing" not in fields:
            document["timing"] = "exact"
    return document


def every(interval: str, *, anchor_ms: int | None = None) -> Document:
    """An interval (ISO 8601); without an anchor it counts from the creation."""
    return {"every": interval} if anchor_ms is None else {"every": interval, "anchor": format_instant(anchor_ms)}


def cron(expression: str, *, seconds: bool = False) -> Document:
    """A cron expression, of six fields with `seconds`."""
    return {"cron": expression, "seconds": True} if seconds else {"cron": expression}


def once(at_ms: int) -> Document:
    """One instant."""
    return {"at": format_instant(at_ms)}


def after_completion(delay: str) -> Document:
    """A delay (ISO 8601) counted from the end of the run before."""
    return {"after_completion": delay}
