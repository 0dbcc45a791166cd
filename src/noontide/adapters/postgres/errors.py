"""What can go wrong with the history."""

from __future__ import annotations

from noontide.core.errors import NoontideError


class HistoryError(NoontideError):
    """The database cannot be reached or used; the message says why, in one line."""
