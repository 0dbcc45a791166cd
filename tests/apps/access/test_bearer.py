"""Who asks, over HTTP: tokens of our own and of an issuer, roles, rates, and an API without either."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import httpx
import pytest
from fastapi import APIRouter, Response
from tests.adapters.oidc.issuer import Issuer, ec_key, running_issuer

from noontide.adapters.oidc.settings import OidcSettings
from noontide.apps.access.options import AccessOptions, check_exposure, open_access
from noontide.apps.api.app import create_app
from noontide.apps.api.bodies import json_response
from noontide.apps.api.principal import Admin, Operator, Principal, Supervisor, Viewer
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.core.access import Role
from noontide.core.errors import InvalidDefinition
from noontide.records.config import ConfigView, updated_view
from noontide.records.tokens import SECRET_CHARS, SecretHash, Token, encode_token, hash_of, token_text
from noontide.records.topics import Layout

NOW_MS = 1_772_463_601_003
KEY = ec_key("k1")


def token_of(name: str, role: Role, tenants: set[str], **fields: object) -> tuple[str, bytes]:
    """A token's text, and what is kept of it."""
    text = token_text(name, name.encode().ljust(32, b"."))
    kept = Token(
        id=name, role=role, tenants=frozenset(tenants), secrets=(SecretHash(sha256=hash_of(text)),), created_ms=NOW_MS
    )
    return text, encode_token(replace(kept, **fields))  # type: ignore[arg-type] # by name


@dataclass(slots=True)
class Scene:
    """An application with routes that say who asked; configure and revoke change what it knows."""

    client: httpx.AsyncClient
    view: list[ConfigView]
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, role: Role, tenants: set[str], **fields: object) -> str:
        """Make a token."""
        self.texts[name], kept = token_of(name, role, tenants, **fields)
        self.view[0] = updated_view(self.view[0], [(f"token/{name}", kept)], offset=self.view[0].offset + 1)
        return self.texts[name]

    def revoke(self, name: str) -> None:
        """Take one back."""
        self.view[0] = updated_view(self.view[0], [(f"token/{name}", None)], offset=self.view[0].offset + 1)

    async def get(self, path: str = "/viewer", token: str | None = None, **headers: str) -> httpx.Response:
        """Ask."""
        given = {} if token is None else {"authorization": f"Bearer {token}"}
        return await self.client.get(path, headers={**given, **headers})


def routes() -> APIRouter:
    """One per need."""
    router = APIRouter()

    def shown(who: Principal) -> Response:
        return json_response({"name": who.name, "role": who.role, "tenants": sorted(who.tenants)})

    @router.get("/viewer")
    async def viewer(who: Viewer) -> Response:
        return shown(who)

    @router.get("/operator")
    async def operator(who: Operator) -> Response:
        return shown(who)

    @router.get("/admin")
    async def admin(who: Admin) -> Response:
        return shown(who)

    @router.get("/supervisor")
    async def supervisor(who: Supervisor) -> Response:
        return shown(who)

    return router


@asynccontextmanager
async def scene_of(options: AccessOptions, *, host: str = "api", **settings: int) -> AsyncIterator[Scene]:
    """An application with this access."""
    view = [ConfigView()]
    chosen = ApiSettings(**settings)  # type: ignore[arg-type] # by name
    async with open_access(options, lambda: view[0], chosen) as authenticate:
        services = Services(layout=Layout(), config=lambda: view[0], now_ms=lambda: NOW_MS)
        app = create_app(services, settings=chosen, authenticate=authenticate, routers=[routes()])
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            yield Scene(client, view)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scene_of(AccessOptions(required=True)) as opened:
        yield opened


# --- tokens of our own


async def test_a_token_stands_for_its_role_and_tenants(scene: Scene) -> None:
    text = scene.add("ci", Role.OPERATOR, {"billing", "orders"})
    answer = await scene.get("/operator", text)
    assert answer.json() == {"name": "token:ci", "role": "operator", "tenants": ["billing", "orders"]}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "noontide_ci_x", "Bearer x, Bearer y"])
async def test_without_a_token_nothing_is_answered_but_how_to_ask(scene: Scene, header: str | None) -> None:
    scene.add("ci", Role.ADMIN, {"*"})
    answer = await scene.client.get("/viewer", headers={} if header is None else {"authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith('Bearer realm="noontide"')
    assert answer.headers["content-type"] == "application/problem+json"


async def test_two_credentials_are_none(scene: Scene) -> None:
    text = scene.add("ci", Role.ADMIN, {"*"})
    headers = [("authorization", f"Bearer {text}"), ("authorization", "Bearer other")]
    assert (await scene.client.get("/viewer", headers=headers)).status_code == 401


async def test_a_token_that_is_wrong_old_or_revoked_is_refused_at_once(scene: Scene) -> None:
    valid = scene.add("ci", Role.VIEWER, {"billing"})
    expired = scene.add("old", Role.VIEWER, {"billing"}, expires_ms=NOW_MS + 1)
    wrong = token_text("ci", b"x" * 32)
    assert [(await scene.get("/viewer", each)).status_code for each in (valid, expired, wrong)] == [200, 401, 401]
    scene.revoke("ci")
    assert (await scene.get("/viewer", valid)).status_code == 401


@pytest.mark.parametrize(
    "role, tenants, allowed",
    [
        (Role.VIEWER, {"billing"}, ["/viewer"]),
        (Role.OPERATOR, {"billing"}, ["/viewer", "/operator"]),
        (Role.ADMIN, {"billing"}, ["/viewer", "/operator"]),
        (Role.VIEWER, {"*"}, ["/viewer", "/supervisor"]),
        (Role.ADMIN, {"*"}, ["/viewer", "/operator", "/admin", "/supervisor"]),
    ],
)
async def test_a_role_may_what_those_below_it_may_and_what_all_share_needs_all_tenants(
    scene: Scene, role: Role, tenants: set[str], allowed: list[str]
) -> None:
    text = scene.add("ci", role, tenants)
    paths = ["/viewer", "/operator", "/admin", "/supervisor"]
    answers = {path: (await scene.get(path, text)).status_code for path in paths}
    assert answers == {path: 200 if path in allowed else 403 for path in paths}


async def test_nothing_that_was_presented_is_answered_or_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    text = scene.add("ci", Role.VIEWER, {"billing"})
    said = ""
    for presented in (text, text + "x", "eyJhbGciOiJub25lIn0.e30.", token_text("ci", b"x" * 32)):
        for path in ("/viewer", "/admin", "/nowhere"):
            said += (await scene.get(path, presented)).text + caplog.text
    assert text[-SECRET_CHARS:] not in said
    assert "eyJhbGciOiJub25lIn0" not in said


# --- rates


async def test_more_than_the_rate_is_429_with_a_time_to_come_back() -> None:
    async with scene_of(AccessOptions(required=True), requests_per_second=2, request_burst_sec=2) as scene:
        text = scene.add("ci", Role.VIEWER, {"billing"})
        other = scene.add("cd", Role.VIEWER, {"billing"})
        answers = [await scene.get("/viewer", text) for _ in range(8)]
        assert [each.status_code for each in answers[:4]] == [200] * 4
        assert answers[-1].status_code == 429
        assert answers[-1].headers["retry-after"] == "1"
        assert (await scene.get("/viewer", other)).status_code == 200


async def test_a_token_may_have_a_rate_of_its_own() -> None:
    async with scene_of(AccessOptions(required=True), requests_per_second=1, request_burst_sec=1) as scene:
        text = scene.add("ci", Role.VIEWER, {"billing"}, requests_per_second=1_000)
        assert {(await scene.get("/viewer", text)).status_code for _ in range(20)} == {200}


# --- tokens of an issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer(KEY) as running:
        yield running


async def test_a_users_token_and_one_of_ours_both_count(issuer: Issuer) -> None:
    async with scene_of(AccessOptions(required=True, issuer=issuer.settings())) as scene:
        ours = scene.add("ci", Role.VIEWER, {"billing"})
        theirs = await scene.get("/operator", issuer.token(KEY))
        assert theirs.json() == {"name": "user:ada", "role": "operator", "tenants": ["billing"]}
        assert (await scene.get("/viewer", ours)).status_code == 200


async def test_a_users_token_that_does_not_count(issuer: Issuer) -> None:
    async with scene_of(AccessOptions(required=True, issuer=issuer.settings())) as scene:
        expired = await scene.get("/viewer", issuer.token(KEY, {"exp": 1}))
        roleless = await scene.get("/viewer", issuer.token(KEY, {"noontide_role": None}))
        forged = await scene.get("/viewer", issuer.token(ec_key("k1")))
    assert [each.status_code for each in (expired, roleless, forged)] == [401, 403, 401]
    assert "expired" in expired.json()["detail"]


async def test_an_issuer_that_does_not_answer_is_503(issuer: Issuer) -> None:
    issuer.down = True
    async with scene_of(AccessOptions(required=True, issuer=issuer.settings())) as scene:
        answer = await scene.get("/viewer", issuer.token(KEY))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


async def test_without_an_issuer_users_tokens_are_refused(scene: Scene, issuer: Issuer) -> None:
    assert (await scene.get("/viewer", issuer.token(KEY))).status_code == 401


# --- no access control


async def test_an_open_api_is_for_its_own_machine_and_not_for_pages_of_other_sites() -> None:
    async with scene_of(AccessOptions(), host="localhost:8480") as scene:
        assert (await scene.get("/admin")).json()["role"] == "admin"
        own = await scene.get("/admin", origin="http://localhost:8480")
        foreign = await scene.get("/admin", origin="https://evil.example")
        sandboxed = await scene.get("/admin", origin="null")
        rebound = await scene.get("/admin", host="evil.example:8480")
    assert [each.status_code for each in (own, foreign, sandboxed, rebound)] == [200, 403, 403, 403]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "api.example", ""])
def test_an_open_api_does_not_listen_where_others_are(host: str) -> None:
    with pytest.raises(InvalidDefinition, match="/host"):
        check_exposure(host, AccessOptions())
    check_exposure(host, AccessOptions(required=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_an_open_api_may_listen_on_its_own_machine(host: str) -> None:
    check_exposure(host, AccessOptions())


def test_settings_of_an_issuer_are_checked() -> None:
    with pytest.raises(InvalidDefinition, match="/algorithms"):
        OidcSettings(issuer="https://id.example", audience="noontide", algorithms=("none",))
