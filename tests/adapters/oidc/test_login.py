"""Signing in with a browser: what the node asks the issuer, and what it does when that refuses or is away."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from tests.adapters.oidc.issuer import Issuer, ec_key, running_issuer

from noontide.adapters.oidc.keys import Unavailable
from noontide.adapters.oidc.login import OidcLogin
from noontide.adapters.oidc.verifier import OidcVerifier, Untrusted
from noontide.apps.api.app import create_app
from noontide.apps.api.services import Services
from noontide.records.config import ConfigView
from noontide.records.topics import Layout

BACK = "https://api.example/"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer(ec_key("k1")) as running:
        yield running


@asynccontextmanager
async def opened(issuer: Issuer) -> AsyncIterator[OidcLogin]:
    login = OidcLogin(issuer.settings(client_id="dashboard"))
    try:
        yield login
    finally:
        await login.close()


@asynccontextmanager
async def client_of(login: OidcLogin | None) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Services(layout=Layout(), config=ConfigView, login=login))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://api.example") as client:
        yield client


def code_of(issuer: Issuer, *, verifier: str = VERIFIER) -> str:
    """What a browser brings back."""
    challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {"redirect_uri": BACK, "state": "s", "client_id": "dashboard", "code_challenge": challenge}
    back = issuer.let_in(urlencode(asked))
    return parse_qs(urlsplit(back).query)["code"][0]


async def test_a_code_becomes_a_token_that_the_api_takes(issuer: Issuer) -> None:
    async with opened(issuer) as login, client_of(login) as client:
        how = (await client.get("/v1/login")).json()
        assert how == {
            "issuer": issuer.url, "authorize": f"{issuer.url}/authorize", "client_id": "dashboard", "scope": "openid",
        }  # fmt: skip
        said = {"code": code_of(issuer), "verifier": VERIFIER, "redirect": BACK}
        answer = await client.post("/v1/login", json=said)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        verifier = OidcVerifier(issuer.settings())
        assert (await verifier.principal(answer.json()["token"])).name == "user:ada"
        await verifier.close()
        again = await client.post("/v1/login", json={"refresh_token": answer.json()["refresh_token"]})
        assert again.json()["token"]
        for refused in (said, {**said, "code": code_of(issuer), "verifier": "another"}, {"refresh_token": "stolen"}):
            answer = await client.post("/v1/login", json=refused)
            assert (answer.status_code, answer.json()["detail"]) == (401, "the issuer refuses: invalid_grant")


async def test_an_issuer_that_is_away_or_says_what_cannot_be(issuer: Issuer) -> None:
    async with opened(issuer) as login, client_of(login) as client:
        issuer.down = True
        assert (await client.get("/v1/login")).status_code == 503
        issuer.down = False
        issuer.discovery = {"token_endpoint": "http://elsewhere.example/token"}
        with pytest.raises(Unavailable, match="not https"):
            await login.endpoints()
        issuer.discovery = {"issuer": "https://other.example"}
        with pytest.raises(Unavailable, match="of its own"):
            await login.endpoints()
        issuer.discovery = {}
        with pytest.raises(Untrusted):
            await login.by_refresh("unknown")


async def test_without_an_issuer_there_is_nothing_to_sign_in_at(issuer: Issuer) -> None:
    async with client_of(None) as client:
        assert (await client.get("/v1/login")).json() == {"issuer": None}
        assert (await client.post("/v1/login", json={"refresh_token": "x"})).status_code == 404
    async with opened(issuer) as login, client_of(login) as client:
        for body in ({}, {"code": "c"}, {"refresh_token": "r", "code": "c"}, {"other": 1}, {"refresh_token": 5}):
            assert (await client.post("/v1/login", json=body)).status_code == 422
