"""What is served under `/`, and what is in the files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from noontide.apps.access.bearer import BearerAccess
from noontide.apps.api.app import create_app
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.apps.dashboard.assets import read_assets
from noontide.apps.dashboard.pages import dashboard_router
from noontide.records.config import ConfigView
from noontide.records.topics import Layout

STATIC = Path(__file__).parents[3] / "src" / "noontide" / "apps" / "dashboard" / "static"
OWN = sorted(path for path in STATIC.rglob("*.*") if "vendor" not in path.parts)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """An application that knows nobody."""
    settings = ApiSettings()
    app = create_app(
        Services(layout=Layout(), config=ConfigView),
        settings=settings,
        authenticate=BearerAccess(ConfigView, settings),
        routers=(dashboard_router(),),
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as opened:
        yield opened


async def test_the_page_is_for_everybody_and_holds_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"https?://", policy + answer.text) == []
    again = await client.get("/", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_data_is_not(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/me")).status_code == 401


@pytest.mark.parametrize("path", ["../pages.py", "%2e%2e/pages.py", "vendor/LICENSE-htm", "index.html", "nothing.js"])
async def test_only_assets_are_served(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(f"/assets/{path}")
    assert answer.status_code == 404


async def test_every_file_that_a_page_names_is_there(client: httpx.AsyncClient) -> None:
    named = {name for path in OWN for name in re.findall(r'"(/assets/[^"]+)"', path.read_text("utf-8"))}
    assert {f"/assets/{name}" for name in read_assets()} - named == {"/assets/index.html"}
    for name in named:
        answer = await client.get(name)
        assert (name, answer.status_code) == (name, 200)
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_text_never_becomes_markup_or_leaves_the_site() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerously|document\.write|\beval\(|style=|https?://(?!www\.w3\.org)[a-z]"
    )
    found = [f"{path.name}: {match[0]}" for path in OWN for match in forbidden.finditer(path.read_text("utf-8"))]
    assert found == []


def test_what_is_vendored_has_its_licence() -> None:
    assert {path.name for path in (STATIC / "vendor").iterdir()} == {"preact-htm.js", "LICENSE-htm", "LICENSE-preact"}
