"""Limits and permissions of HTTP targets, each with a name and a unit."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from noontide.records.worker_events import RESULT_MAX_BYTES

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How requests are sent and where they may go. The proxy variables of the environment are not read."""

    allow_loopback: bool = False
    """Targets may be on the worker's own machine (127.0.0.0/8, ::1)."""
    allow_private: bool = False
    """Targets may be in private networks (RFC 1918, RFC 6598, fc00::/7). Metadata services stay refused."""
    allow_hosts: frozenset[str] = frozenset()
    """Hosts, as written in URLs, whose addresses are not checked at all."""
    connections_max: int = 1_000
    """Requests under way to all hosts together, and connections that are kept for them."""
    connections_per_host_max: int = 100
    """Requests under way to one scheme, host and port; the others wait within their own time limit."""
    keepalive_ms: int = 4_000
    """How long an idle connection is kept: less than the 5 s after which common servers close theirs, because a
    request that meets a closing connection is not repeated on another one."""
    connect_timeout_ms: int = 10_000
    """Longest time to find the address, and again to connect to it, and again for the TLS handshake."""
    redirects_max: int = 5
    """Redirects followed in one attempt."""
    retry_after_max_ms: int = HOUR_MS
    """Longest wait that a target may ask for."""
    result_max_bytes: int = RESULT_MAX_BYTES
    """Longest JSON text kept of a response that succeeded."""
    failure_body_max_bytes: int = 1_024
    """Longest JSON text kept of a response that failed."""
    http2: bool = True
    """Speak HTTP/2 with servers that offer it, when the `h2` package is installed."""
    ca_file: Path | None = None
    """Certificates (PEM) that are trusted besides the public ones."""
    callback_url: str | None = None
    """Where targets reach the completion endpoint, such as https://noontide.example.com; None = they cannot."""
    user_agent: str = f"noontide/{version('noontide')}"
    """Sent as User-Agent unless the target sets its own."""
