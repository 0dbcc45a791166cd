"""Which issuer is trusted, and how its tokens are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from noontide.core.access import Role
from noontide.core.errors import InvalidDefinition, Problem

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Those that can be allowed: signatures with a key that only the issuer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """One issuer.

    issuer: its URL, exactly as in `iss`. audience: what `aud` must contain. algorithms: those accepted, whatever a
    token says. keys_url: the key set; None = what the issuer's discovery document names.
    role_claim, tenants_claim: claims with a role (or several) and with tenant ids, or "*"; a dotted name goes into
    objects. roles: other words for roles, by word. name_claim: who it is, for the audit.
    ca_file: certificates trusted besides the usual, for the issuer.
    client_id: of the dashboard at the issuer, a public client; None = people bring a token. scope: what it asks for.
    Raises InvalidDefinition for what cannot be.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    keys_url: str | None = None
    role_claim: str = "noontide_role"
    tenants_claim: str = "noontide_tenants"
    name_claim: str = "sub"
    roles: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    ca_file: Path | None = None
    client_id: str | None = None
    scope: str = "openid"
    leeway_sec: int = 30
    """How far the clocks of issuer and API may differ."""
    keys_fresh_sec: int = 300
    """After so long the keys are fetched anew, while the old ones go on."""
    keys_kept_sec: int = 86_400
    """How long keys count while the issuer does not answer."""
    keys_retry_sec: int = 10
    """Shortest time between two fetches, whatever unknown keys are named."""
    fetch_timeout_sec: int = 5
    """Longest time for a fetch."""
    keys_max_bytes: int = 262_144
    """Largest discovery document and largest key set."""
    token_max_chars: int = 8_192
    """Longest token that is looked at."""
    remembered_max: int = 10_000
    """Tokens whose signature is not checked again for `remembered_sec`."""
    remembered_sec: int = 60
    """How long a signature that was checked counts."""

    def __post_init__(self) -> None:
        if problems := tuple(_problems(self)):
            raise InvalidDefinition(problems)


def _problems(settings: OidcSettings) -> list[Problem]:
    problems = []
    for name in ("issuer", "keys_url"):
        url = getattr(settings, name)
        if url is not None and not is_safe(url):
            problems.append(Problem(f"/{name}", "must be an https URL (http only on this machine)"))
    if not settings.audience:
        problems.append(Problem("/audience", "is missing: what the issuer's tokens for this API have in `aud`"))
    unknown = sorted(set(settings.algorithms) - set(ALGORITHMS))
    if unknown or not settings.algorithms:
        problems.append(Problem("/algorithms", f"must be some of {', '.join(ALGORITHMS)}"))
    return problems


def is_safe(url: str) -> bool:
    """https, or http that does not leave this machine: who can change the keys can be anybody."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    return parts.scheme == "http" and is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own, so that nobody else can reach it."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
