"""What a handler is told about its attempt, and what it can say about it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from noontide.worker.holding import Holding

NOTE_MAX_CHARS: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_event_lock = threading.Lock()
_log = logging.getLogger("noontide.worker.handlers")

Report = Callable[[Holding, float | None, str], None]


class Context:
    """One attempt of a run, for its handler. May be used from any thread.

    run_id: idempotency key of everything the handler does. token: grows with every grant of the run; give it to systems
    that can refuse an older one. attempt counts from 1. payload: the JSON text as it was sent.
    """

    __slots__ = ("_cancelled", "_event", "_holding", "_invitation", "_report", "_started_ms")

    def __init__(self, holding: Holding, *, started_ms: int, report: Report) -> None:
        """started_ms: start of the attempt by this host's clock, ms since the epoch."""
        self._holding = holding
        self._invitation = holding.invitation
        self._started_ms = started_ms
        self._report = report
        self._cancelled = False
        self._event: threading.Event | None = None  # costs more than all the rest: only for those who wait

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry run_id and attempt."""
        return logging.LoggerAdapter(_log, {"run_id": self.run_id, "attempt": self.attempt})

    @property
    def token(self) -> int:
        """Fencing token of this attempt."""
        return self._holding.token

    @property
    def run_id(self) -> str:
        """Id of the run: the same for all its attempts."""
        return self._invitation.run_id

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return self._invitation.job_id

    @property
    def tenant(self) -> str:
        """Whose run."""
        return self._invitation.tenant

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._invitation.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts there may be in all."""
        return self._invitation.max_attempts

    @property
    def payload(self) -> bytes:
        """The payload's JSON text, byte for byte; b"null" when there is none."""
        return self._invitation.payload

    @property
    def due(self) -> datetime:
        """The nominal time of the run, in UTC."""
        return _EPOCH + timedelta(milliseconds=self._invitation.due_ms)

    @property
    def deadline(self) -> datetime:
        """When the attempt times out, in UTC by this host's clock."""
        return _EPOCH + timedelta(milliseconds=self._started_ms + self._invitation.timeout_ms)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: cancelled, timed out, lease lost, or the worker is about to end."""
        return self._cancelled

    def wait_cancelled(self, timeout_s: float) -> bool:
        """Wait until the handler should stop, at most so long; returns `cancelled`. For threads."""
        with _event_lock:
            event = self._event = self._event or threading.Event()
        return self._cancelled or event.wait(timeout_s)

    def progress(self, fraction: float | None, note: str = "") -> None:
        """Say how far the run is: 0 to 1, or None when it cannot be said; the note is cut at 500 characters.

        Only the latest word of every few ms is sent. Raises ValueError for a fraction outside 0 to 1.
        """
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"fraction must be 0 to 1, not {fraction!r}")
        self._report(self._holding, fraction, note[:NOTE_MAX_CHARS])

    def cancel(self) -> None:
        """For the worker: make `cancelled` true."""
        self._cancelled = True
        with _event_lock:
            event = self._event
        if event is not None:
            event.set()
