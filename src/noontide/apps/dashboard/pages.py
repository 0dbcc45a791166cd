"""`/` and `/assets/...`: the page and its files. Nothing of anybody's is in them, so nobody is asked who they are."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from noontide.apps.api.problems import not_found
from noontide.apps.dashboard.assets import Asset, read_assets

PAGE: Final = "index.html"
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # text never becomes markup, not even by mistake
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",  # kept, but asked for again: a new version is seen at once
}


def dashboard_router() -> APIRouter:
    """The routes, for `create_app`."""
    assets = read_assets()
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page(request: Request) -> Response:
        return _answer(request, assets[PAGE])

    @router.get("/assets/{path:path}")
    async def asset(request: Request, path: str) -> Response:
        found = assets.get(path)
        if found is None or path == PAGE:
            raise not_found(f"file {path[:200]!r}")
        return _answer(request, found)

    return router


def _answer(request: Request, asset: Asset) -> Response:
    headers = {**HEADERS, "etag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=headers, media_type=asset.media_type)
