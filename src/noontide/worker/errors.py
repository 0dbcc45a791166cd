"""What a handler raises to say more than "it failed". Any other exception is a failure that is tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from noontide.core.errors import NoontideError

RETRY_AFTER_MAX_MS: Final = 30 * 86_400_000


class PermanentError(NoontideError):
    """The run cannot succeed: it is not tried again."""


class Cancelled(NoontideError):
    """The handler stopped because it was asked to (`Context.cancelled`); otherwise it counts as a failure."""


class RetryLater(NoontideError):
    """The attempt failed and the next one should wait.

    after: at least this long, in seconds or as a timedelta; 0 to 30 days. Raises ValueError for anything else.
    """

    def __init__(self, after: timedelta | float, reason: str = "") -> None:
        after_s = after.total_seconds() if isinstance(after, timedelta) else float(after)
        self.after_ms = round(after_s * 1000) if after_s == after_s else -1  # NaN
        if not 0 <= self.after_ms <= RETRY_AFTER_MAX_MS:
            raise ValueError(f"after must be 0 to 30 days, not {after!r}")
        super().__init__(reason or f"try again in {after_s:g} s")
