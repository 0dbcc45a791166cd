"""Which answers lead on, and what a request may take along.

GET and HEAD follow every redirect; other methods only 307 and 308, which promise to keep method and body, and only
within their host. Credentials never change hosts and never lose TLS. Every hop's address is checked like the first.
"""

from __future__ import annotations

from dataclasses import replace

from noontide.adapters.http.outgoing import Outgoing
from noontide.adapters.http.refusals import Refused
from noontide.adapters.http.urls import PORTS, Url, resolve_location

REDIRECTS = frozenset((301, 302, 303, 307, 308))
KEEP_METHOD = frozenset((307, 308))


def follow(request: Outgoing, *, status: int, location: str | None) -> Outgoing | None:
    """The next request; None when the answer is the last one. Raises Refused where a redirect must not be followed."""
    if status not in REDIRECTS:
        return None
    if not location:
        raise Refused(f"HTTP {status} without a location")
    try:
        url = resolve_location(request.url, location)
    except Refused:
        raise Refused(f"HTTP {status}: the redirect leads to no http or https URL") from None
    if same_host(request.url, url):
        return _within_host(request, url, status=status)
    return _to_another_host(request, url, status=status)


def same_host(before: Url, after: Url) -> bool:
    """Same scheme, host and port, or the same host's change from plain HTTP to TLS."""
    if before[:3] == after[:3]:
        return True
    upgrade = (before.scheme, before.port, after.scheme, after.port) == ("http", PORTS["http"], "https", PORTS["https"])
    return upgrade and before.host == after.host


def _within_host(request: Outgoing, url: Url, *, status: int) -> Outgoing:
    if request.method in ("GET", "HEAD") or status in KEEP_METHOD:
        return replace(request, url=url)
    raise Refused(f"HTTP {status} to {url.site}: a redirect of {request.method} is followed for 307 and 308 only")


def _to_another_host(request: Outgoing, url: Url, *, status: int) -> Outgoing:
    if request.credentials:
        raise Refused(f"HTTP {status} to {url.site}: credentials do not follow a redirect to another host")
    if request.method not in ("GET", "HEAD"):
        raise Refused(f"HTTP {status} to {url.site}: {request.method} does not follow a redirect to another host")
    return replace(request, url=url, custom=(), confidential=())
