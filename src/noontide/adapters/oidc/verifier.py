"""A bearer token of an issuer (JWT, RFC 7519, checked as RFC 8725 advises), and the principal it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import jwt

from noontide.adapters.oidc.keys import IssuerKeys
from noontide.adapters.oidc.settings import OidcSettings
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.access import Principal, Role
from noontide.core.errors import InvalidDefinition, NoontideError
from noontide.records.tokens import read_tenants

NAME_MAX_CHARS = 200
_TYPES = (None, "JWT", "AT+JWT")
_REQUIRED = ["exp", "iat", "iss", "aud", "sub"]
_unprintable = re.compile(r"[^\x21-\x7e]").search


class Untrusted(NoontideError):
    """A token that stands for nobody; the message says why, without showing any of it."""


class NoAccess(NoontideError):
    """A good token of somebody who has no role or no tenant here."""


class _Remembered(NamedTuple):
    principal: Principal
    until_ms: int
    version: int


class OidcVerifier:
    """Checks tokens of one issuer; for one event loop."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._keys = IssuerKeys(settings)
        self._remembered: dict[bytes, _Remembered] = {}

    async def principal(self, token: str) -> Principal:
        """Who presents it. Raises Untrusted, NoAccess, or Unavailable when the issuer's keys cannot be had."""
        if len(token) > self._settings.token_max_chars:
            raise Untrusted(f"longer than {self._settings.token_max_chars} characters")
        digest = sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._remembered.get(digest)
        if known is not None and known.version == self._keys.version and wall_now_ms() < known.until_ms:
            return known.principal
        claims = await self._claims(token)
        found = _principal(claims, self._settings)
        self._remember(digest, found, claims)
        return found

    async def close(self) -> None:
        """Stop following the issuer."""
        await self._keys.close()

    async def _claims(self, token: str) -> Mapping[str, Any]:
        settings = self._settings
        algorithm, key_id = _named(token, settings)
        key = await self._keys.key(key_id)
        if key is None:
            raise Untrusted("signed with a key that the issuer does not have")
        if algorithm not in key.algorithms:
            raise Untrusted("its algorithm is not the key's")
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[algorithm],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_sec,
                options={"require": _REQUIRED},
            )
        except jwt.PyJWTError as error:
            raise Untrusted(str(error)) from None
        except (TypeError, ValueError) as error:  # a key that does not fit the algorithm
            raise Untrusted(type(error).__name__) from None
        return claims

    def _remember(self, digest: bytes, found: Principal, claims: Mapping[str, Any]) -> None:
        if len(self._remembered) >= self._settings.remembered_max:
            self._remembered.clear()
        now_ms = wall_now_ms()
        expires_ms = int(claims["exp"]) * 1000
        until_ms = min(expires_ms, now_ms + self._settings.remembered_sec * 1000)
        self._remembered[digest] = _Remembered(found, until_ms, self._keys.version)


def _named(token: str, settings: OidcSettings) -> tuple[str, str | None]:
    """Algorithm and key id that a token names, of those we accept."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError):
        raise Untrusted("not a signed token") from None
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if algorithm not in settings.algorithms:
        raise Untrusted("its algorithm is not accepted")
    if "crit" in header or (isinstance(kind, str) and kind.upper().removeprefix("APPLICATION/") not in _TYPES):
        raise Untrusted("not a token of a kind that is accepted")
    if key_id is not None and not isinstance(key_id, str):
        raise Untrusted("its key id is no text")
    return str(algorithm), key_id


def _principal(claims: Mapping[str, Any], settings: OidcSettings) -> Principal:
    name = _claim(claims, settings.name_claim) or claims["sub"]
    if not isinstance(name, str) or not name or len(name) > NAME_MAX_CHARS or _unprintable(name):
        raise Untrusted(f"{settings.name_claim!r} is not 1 to {NAME_MAX_CHARS} visible ASCII characters")
    role = _role(_claim(claims, settings.role_claim), settings.roles)
    if role is None:
        raise NoAccess(f"{name} has no role here (claim {settings.role_claim!r})")
    listed = _claim(claims, settings.tenants_claim)
    try:
        tenants = read_tenants([listed] if isinstance(listed, str) else listed, "/tenants")
    except InvalidDefinition:
        raise NoAccess(f"{name} has no tenant here (claim {settings.tenants_claim!r})") from None
    return Principal(name=f"user:{name}", role=role, tenants=tenants)


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim of this name; a dotted one may also lie inside objects, as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _role(said: object, words: Mapping[str, Role]) -> Role | None:
    """The highest role among what is said."""
    listed = said if isinstance(said, list) else [said]
    known = {**{role.value: role for role in Role}, **words}
    found = [known[word] for word in listed if isinstance(word, str) and word in known]
    return max(found, key=lambda role: list(Role).index(role), default=None)
