"""How long a client waits, and how often it tries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits of a client."""

    timeout_sec: float = 30.0
    """Longest time for one answer."""
    attempts_max: int = 5
    """How often one request is sent at most."""
    pause_ms: int = 200
    """First pause before it is sent again; doubles, up to `pause_max_ms`. What `Retry-After` says is obeyed."""
    pause_max_ms: int = 10_000
    """Longest pause, also of what `Retry-After` says."""
    decide_sec: float = 60.0
    """How long a write that is stored may wait for its decision (202), before `NotDecided`."""
    page_items: int = 500
    """Items asked for at once by the iterators."""
    batch_lines: int = 1_000
    """Definitions sent at once by `put_jobs`."""
