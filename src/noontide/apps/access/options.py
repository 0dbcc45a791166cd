"""How an API process is told who may use it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from noontide.adapters.oidc.login import OidcLogin
from noontide.adapters.oidc.settings import OidcSettings, is_loopback
from noontide.adapters.oidc.verifier import OidcVerifier
from noontide.apps.access.bearer import BearerAccess, LocalAccess
from noontide.apps.access.token_table import tokens_of
from noontide.apps.api.principal import Authenticate
from noontide.apps.api.settings import ApiSettings
from noontide.core.errors import InvalidDefinition
from noontide.records.config import ConfigView

log = logging.getLogger("noontide.access")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """required: a token is asked for; otherwise everybody who can reach the API is an admin.

    issuer: one whose tokens are accepted besides our own.
    """

    required: bool = False
    issuer: OidcSettings | None = None


def check_exposure(host: str, access: AccessOptions) -> None:
    """Refuse an open API where others can reach it. Raises InvalidDefinition."""
    if not access.required and not is_loopback(host):
        raise InvalidDefinition.of(
            "/host", f"{host} can be reached from elsewhere: an API without access control listens on 127.0.0.1 only"
        )


@asynccontextmanager
async def open_access(
    options: AccessOptions, config: Callable[[], ConfigView], settings: ApiSettings
) -> AsyncIterator[Authenticate]:
    """What finds out who asks, closed at the end."""
    if not options.required:
        yield LocalAccess()
        return
    verifier = None if options.issuer is None else OidcVerifier(options.issuer)
    if verifier is None and not tokens_of(config()):
        log.warning("there is no token yet: nobody can use this API; make one with `noontide tokens create`")
    try:
        yield BearerAccess(config, settings, issuer=verifier)
    finally:
        if verifier is not None:
            await verifier.close()


def browser_login(options: AccessOptions) -> OidcLogin | None:
    """What lets people in at the issuer with a browser; None where no client is named for it."""
    issuer = options.issuer
    return OidcLogin(issuer) if options.required and issuer is not None and issuer.client_id is not None else None
