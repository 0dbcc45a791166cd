"""URLs of targets, taken apart once; what is checked, named in TLS and connected to is the same host."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import httpcore

from noontide.adapters.http.refusals import Refused

PORTS = {"http": 80, "https": 443}
_matches_text = re.compile(r"[!-\[\]-~]{1,8192}").fullmatch  # visible ASCII without the backslash
_matches_host = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}").fullmatch


class Url(NamedTuple):
    """An absolute URL. host: lower case, without brackets. path: with the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def site(self) -> str:
        """Scheme, host and port: all of a URL that may be shown, since paths and queries can be secrets."""
        return f"{self.scheme}://{self.authority}"

    def for_httpcore(self) -> httpcore.URL:
        return httpcore.URL(scheme=self.scheme, host=self.host, port=self.port, target=self.path)


def parse_url(text: str) -> Url:
    """Raises Refused for what is no http or https URL, or carries credentials."""
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise Refused("refused: the address is no URL") from None
    if parts.scheme not in PORTS or not _matches_text(text) or not _matches_host(host):
        raise Refused("refused: the address is no http or https URL")
    if "@" in parts.netloc:
        raise Refused("refused: the URL carries credentials")
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return Url(parts.scheme, host, PORTS[parts.scheme] if port is None else port, path)


def resolve_location(url: Url, location: str) -> Url:
    """Where a Location header leads from a URL (RFC 3986, section 5). Raises Refused as `parse_url`."""
    try:
        absolute = urljoin(f"{url.site}{url.path}", location.strip())
    except ValueError:
        raise Refused("refused: the redirect leads to no URL") from None
    return parse_url(absolute)
