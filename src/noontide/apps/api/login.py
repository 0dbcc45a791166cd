"""`/v1/login`: how people sign in at the issuer with a browser. Nobody is asked here who they are."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from noontide.adapters.oidc.keys import Unavailable
from noontide.adapters.oidc.login import Granted, OidcLogin
from noontide.adapters.oidc.verifier import Untrusted
from noontide.apps.api.bodies import body_of, json_response, object_of
from noontide.apps.api.problems import ApiProblem, not_found, unavailable
from noontide.apps.api.services import services_of, settings_of
from noontide.core.errors import InvalidDefinition
from noontide.core.fields import Findings, members, text

router = APIRouter(prefix="/v1", tags=["access"])
FIELD_MAX_CHARS = 4_096
_CODE, _REFRESH = ("code", "verifier", "redirect"), ("refresh_token",)


@router.get("/login", summary="How to sign in")
async def how(request: Request) -> Response:
    """`issuer`: null, or where a browser goes for a code (`authorize`), with the `client_id` and `scope` to give."""
    login = services_of(request).login
    if login is None:
        return json_response({"issuer": None})
    try:
        endpoints = await login.endpoints()
    except Unavailable as error:
        raise unavailable(str(error), retry_after_sec=settings_of(request).retry_after_sec) from None
    settings = login.settings
    found = {"authorize": endpoints.authorization, "client_id": login.client_id, "scope": settings.scope}
    return json_response({"issuer": settings.issuer, **found})


@router.post("/login", summary="A token for a code, or the next one")
async def sign_in(request: Request) -> Response:
    """Body: `code`, `verifier` (PKCE) and `redirect` (as given to the issuer), or `refresh_token`. Answers `token`,
    `expires_sec`, `refresh_token`; the token is used as any other.
    """
    login = services_of(request).login
    if login is None:
        raise not_found("an issuer to sign in at")
    said = _read(object_of(await body_of(request)), request)
    try:
        granted = await _granted(login, said)
    except Untrusted as refused:
        raise ApiProblem(401, "unauthorised", str(refused)) from None
    except Unavailable as error:
        raise unavailable(str(error), retry_after_sec=settings_of(request).retry_after_sec) from None
    found = {"token": granted.token, "expires_sec": granted.expires_sec, "refresh_token": granted.refresh}
    return json_response(found, headers={"cache-control": "no-store"})


async def _granted(login: OidcLogin, said: dict[str, str]) -> Granted:
    if "refresh_token" in said:
        return await login.by_refresh(said["refresh_token"])
    return await login.by_code(said["code"], verifier=said["verifier"], redirect=said["redirect"])


def _read(said: dict[str, Any], request: Request) -> dict[str, str]:
    """The body. Raises InvalidDefinition."""
    findings = Findings(settings_of(request).definition)
    given = members(said, "", (*_CODE, *_REFRESH), findings)
    found = {name: findings.read(text(FIELD_MAX_CHARS), value, f"/{name}") for name, value in given.items()}
    problems = (*findings.problems, *findings.unknown)
    if problems:
        raise InvalidDefinition(problems)
    read = {name: value for name, value in found.items() if value}
    if set(read) not in (set(_CODE), set(_REFRESH)):
        raise InvalidDefinition.of("", 'must have "code", "verifier" and "redirect", or "refresh_token" alone')
    return read
