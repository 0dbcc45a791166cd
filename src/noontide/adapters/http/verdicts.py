"""How an attempt ended: from a status, or from what went wrong, to an outcome with its reason in one line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime

import httpcore
import msgspec

from noontide.adapters.http.refusals import Refused, Unready
from noontide.records.worker_events import ERROR_MAX_CHARS, NO_RESULT, Outcome

RETRIABLE = frozenset((408, 425, 429))
"""Besides all of 5xx."""
MAYBE = "the target may have acted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an `End` says apart from whose it is. status: HTTP status, when there was one."""

    outcome: Outcome
    permanent: bool = False
    error: str | None = None
    retry_after_ms: int | None = None
    status: int | None = None
    result: msgspec.Raw = field(default_factory=lambda: NO_RESULT)
    truncated: bool = False


@dataclass(slots=True)
class Progress:
    """How far an attempt has come, for the reason of a failure."""

    host: str = ""
    sent: bool = False
    status: int | None = None

    def describe(self) -> str:
        if self.status is not None:
            return f"the body of HTTP {self.status} did not end; {MAYBE}"
        return f"no response; {MAYBE}" if self.sent else "no connection was free or could be made"


def by_status(status: int, *, asynchronous: bool, retry_after_ms: int | None) -> Verdict:
    """The outcome of a final status."""
    if status == 202 and asynchronous:
        return Verdict(outcome=Outcome.OPEN, status=status)
    if 200 <= status < 300:
        return Verdict(outcome=Outcome.SUCCEEDED, status=status)
    retriable = status in RETRIABLE or 500 <= status < 600
    return Verdict(
        outcome=Outcome.FAILED,
        permanent=not retriable,
        error=f"HTTP {status}",
        retry_after_ms=retry_after_ms if retriable else None,
        status=status,
    )


def retry_after(value: str | None, *, date: str | None, now_ms: int, max_ms: int) -> int | None:
    """The wait that a Retry-After header asks for in ms, at most `max_ms`; None when it asks for nothing sensible.

    date: the response's Date header. A point in time is counted from there, so that the clocks need not agree.
    """
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,18}", value.strip()):
        return min(int(value) * 1000, max_ms)
    if (until := _http_date(value)) is None:
        return None
    sent = _http_date(date) if date else None
    since_ms = now_ms if sent is None else int(sent.timestamp() * 1000)
    return min(max(int(until.timestamp() * 1000) - since_ms, 0), max_ms)


def timed_out(timeout_ms: int, progress: Progress) -> Verdict:
    """The attempt's whole time is over."""
    seconds = f"{timeout_ms / 1000:g}"
    return _failed(f"timed out after {seconds} s: {progress.describe()}", status=progress.status)


def cancelled(progress: Progress) -> Verdict:
    """Somebody asked the attempt to stop."""
    return Verdict(
        outcome=Outcome.CANCELLED, error=f"cancelled: {progress.describe() if progress.sent else 'not sent'}",
        status=progress.status,
    )  # fmt: skip


def by_error(error: Exception, progress: Progress) -> Verdict:
    """What went wrong before there was a status, or within the body. Texts of clients are not passed on: they may quote
    what was sent."""
    host, status = progress.host, progress.status
    match error:
        case Refused():
            return _failed(str(error), status=status, permanent=True)
        case Unready():
            return _failed(str(error), status=status)
        case httpcore.ConnectTimeout():
            return _failed(f"no connection to {host} in time", status=status)
        case httpcore.ConnectError():
            return _failed(f"no connection to {host}: {_connect_reason(error)}", status=status)
        case httpcore.ConnectionNotAvailable():
            return _failed(f"{host} closed the connection before it looked at the request", status=status)
        case httpcore.LocalProtocolError():
            return _failed("the request cannot be sent: a header has characters that HTTP forbids", permanent=True)
        case httpcore.NetworkError() | httpcore.RemoteProtocolError() | httpcore.TimeoutException():
            where = "before a response" if status is None else f"within the body of HTTP {status}"
            return _failed(f"the connection to {host} ended {where}; {MAYBE}", status=status)
    return _failed(f"the request to {host} failed ({type(error).__name__}); {MAYBE}", status=status)


def _failed(error: str, *, status: int | None = None, permanent: bool = False) -> Verdict:
    return Verdict(outcome=Outcome.FAILED, permanent=permanent, error=error[:ERROR_MAX_CHARS], status=status)


def _connect_reason(error: Exception) -> str:
    """Names, addresses, certificates: nothing has been sent at this point."""
    text = " ".join(str(error).split())
    return text[:300] or type(error.__cause__ or error).__name__


def _http_date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
