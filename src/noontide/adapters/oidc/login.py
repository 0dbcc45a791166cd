"""Signing in at the issuer with a browser: the code flow of a public client with PKCE (RFC 7636, RFC 9700).

The page goes to the issuer and comes back with a code; this node, not the page, gives the code to the issuer for a
token. So the page speaks to nobody but its own site.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import orjson

from noontide.adapters.oidc.keys import Unavailable, trust_of
from noontide.adapters.oidc.settings import OidcSettings, is_safe
from noontide.adapters.oidc.verifier import Untrusted
from noontide.adapters.system_clock import boot_ms

AT_ONCE_MAX: Final = 8
"""Questions to the issuer at a time; more people wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the issuer lets people in, and where it gives tokens."""

    authorization: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What the issuer gave. expires_sec: how long the token is good, as far as it says; refresh: for the next one."""

    token: str
    expires_sec: int | None = None
    refresh: str | None = None


class OidcLogin:
    """Asks one issuer; for one event loop. The settings name a client."""

    def __init__(self, settings: OidcSettings) -> None:
        assert settings.client_id is not None
        self.settings = settings
        self.client_id = settings.client_id
        self._client = httpx.AsyncClient(
            timeout=settings.fetch_timeout_sec, follow_redirects=False, verify=trust_of(settings), trust_env=False
        )
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)
        self._known: Endpoints | None = None
        self._known_ms = 0

    async def endpoints(self) -> Endpoints:
        """As the issuer's discovery document names them. Raises Unavailable."""
        if self._known is None or boot_ms() - self._known_ms > self.settings.keys_fresh_sec * 1000:
            url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            found = await self._asked("GET", url)
            named = [found.get(name) for name in ("authorization_endpoint", "token_endpoint")]
            if found.get("issuer") != self.settings.issuer or not all(isinstance(each, str) for each in named):
                raise Unavailable(f"the discovery document of {self.settings.issuer} names no endpoints of its own")
            authorization, token = map(str, named)
            if not is_safe(authorization) or not is_safe(token):
                raise Unavailable(f"the endpoints of {self.settings.issuer} are not https")
            self._known, self._known_ms = Endpoints(authorization=authorization, token=token), int(boot_ms())
        return self._known

    async def by_code(self, code: str, *, verifier: str, redirect: str) -> Granted:
        """The token for a code. Raises Untrusted when the issuer refuses, Unavailable when it does not answer."""
        return await self._granted(
            grant_type="authorization_code", code=code, code_verifier=verifier, redirect_uri=redirect
        )

    async def by_refresh(self, refresh: str) -> Granted:
        """The next token. Raises as `by_code`."""
        return await self._granted(grant_type="refresh_token", refresh_token=refresh)

    async def close(self) -> None:
        """End its connections."""
        await self._client.aclose()

    async def _granted(self, **form: str) -> Granted:
        endpoints = await self.endpoints()
        found = await self._asked("POST", endpoints.token, {**form, "client_id": self.client_id})
        token, expires, refresh = (found.get(name) for name in ("access_token", "expires_in", "refresh_token"))
        if not isinstance(token, str) or not token:
            raise Unavailable(f"{self.settings.issuer} gave no token")
        return Granted(
            token=token,
            expires_sec=expires if type(expires) is int else None,
            refresh=refresh if isinstance(refresh, str) else None,
        )

    async def _asked(self, method: str, url: str, form: dict[str, str] | None = None) -> dict[str, Any]:
        settings = self.settings
        try:
            async with self._gate, asyncio.timeout(settings.fetch_timeout_sec):
                answer = await self._client.request(method, url, data=form, headers={"accept": "application/json"})
            found = orjson.loads(answer.content[: settings.keys_max_bytes])
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            raise Unavailable(f"{urlsplit(url).netloc}: {type(error).__name__}") from None
        if answer.status_code in (400, 401, 403):
            reason = found.get("error") if isinstance(found, dict) else None
            raise Untrusted(f"the issuer refuses: {str(reason or answer.status_code)[:100]}")
        if answer.status_code != 200 or not isinstance(found, dict):
            raise Unavailable(f"{urlsplit(url).netloc} answered {answer.status_code}")
        return found
