"""Who asks, by the bearer token of the request (RFC 6750), and whether they ask too often."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import ceil
from typing import Final

from fastapi import Request

from noontide.adapters.oidc.keys import Unavailable
from noontide.adapters.oidc.settings import is_loopback
from noontide.adapters.oidc.verifier import NoAccess, OidcVerifier, Untrusted
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.access.rates import Rates
from noontide.apps.access.token_table import TokenTable
from noontide.apps.api.principal import EVERYBODY
from noontide.apps.api.problems import ApiProblem, unavailable
from noontide.apps.api.settings import ApiSettings
from noontide.core.access import Principal
from noontide.records.config import ConfigView
from noontide.records.tokens import token_id_of

log = logging.getLogger("noontide.access")
NAMES_MAX: Final = 100_000
_SCHEME: Final = "bearer "


class BearerAccess:
    """`Authenticate` by tokens: our own, and those of an issuer if there is one.

    Nothing that was presented is logged or answered.
    """

    def __init__(
        self,
        config: Callable[[], ConfigView],
        settings: ApiSettings,
        *,
        issuer: OidcVerifier | None = None,
        now_ms: Callable[[], int] = wall_now_ms,
    ) -> None:
        self._tokens = TokenTable(config)
        self._issuer = issuer
        self._settings = settings
        self._rates = Rates(names_max=NAMES_MAX)
        self._now_ms = now_ms

    async def __call__(self, request: Request) -> Principal:
        """Who asks. Raises ApiProblem: 401, 403, 429 or 503."""
        found = await self._found(_presented(request))
        per_second = found.requests_per_second or self._settings.requests_per_second
        burst = max(1, per_second * self._settings.request_burst_sec)
        wait_s = self._rates.take(found.name, per_second=per_second, burst=burst)
        if wait_s:
            raise ApiProblem(
                429, "too-many", f"{found.name} may ask {per_second} times per second",
                headers={"retry-after": str(ceil(wait_s))},
            )  # fmt: skip
        return found

    async def _found(self, presented: str) -> Principal:
        if self._issuer is None or token_id_of(presented) is not None:
            found = self._tokens.principal(presented, now_ms=self._now_ms())
            if found is None:
                raise _unauthorised("the token is unknown, was revoked, or its time is over", error="invalid_token")
            return found
        try:
            return await self._issuer.principal(presented)
        except Untrusted as refused:
            raise _unauthorised(f"the token is not accepted: {refused}", error="invalid_token") from None
        except NoAccess as refused:
            raise ApiProblem(403, "forbidden", str(refused)) from None
        except Unavailable as error:
            raise unavailable(str(error), retry_after_sec=self._settings.retry_after_sec) from None


class LocalAccess:
    """`Authenticate` without access control, for an API that only this machine can reach: everybody is an admin.

    A web page that somebody of this machine looks at is not everybody: what a browser sends for another site is
    refused, and so is a name that somebody made to point here.
    """

    async def __call__(self, request: Request) -> Principal:
        """Everybody. Raises ApiProblem (403) for pages of other sites."""
        host = request.url.hostname or ""
        origin = request.headers.get("origin")
        if not is_loopback(host):
            raise ApiProblem(403, "forbidden", "this API is for its own machine: ask for localhost")
        if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host', '')}":
            raise ApiProblem(403, "forbidden", "this API is not for pages of other sites")
        return EVERYBODY


def _presented(request: Request) -> str:
    """The token of the one Authorization header."""
    given = request.headers.getlist("authorization")
    if not given:
        raise _unauthorised("a token is needed: Authorization: Bearer ...")
    scheme, token = given[0][: len(_SCHEME)], given[0][len(_SCHEME) :].strip()
    if len(given) > 1 or scheme.lower() != _SCHEME or not token:
        raise _unauthorised("one header is needed: Authorization: Bearer <token>", error="invalid_request")
    return token


def _unauthorised(detail: str, *, error: str | None = None) -> ApiProblem:
    challenge = 'Bearer realm="noontide"' + (f', error="{error}"' if error else "")
    return ApiProblem(401, "unauthorised", detail, headers={"www-authenticate": challenge})
