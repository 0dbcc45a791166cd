"""Why a request is not sent at all. Their text is shown to people: no secrets, no paths, no queries."""

from __future__ import annotations

from noontide.core.errors import NoontideError


class Refused(NoontideError):
    """The attempt cannot succeed as it is defined and configured: a permanent failure."""


class Unready(NoontideError):
    """Something on the worker's side is missing for now: a failure that may be retried."""
