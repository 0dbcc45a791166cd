"""The files of the dashboard, read once, with what the browser needs to know about each."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is served; other files of the package, such as licences, are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file. etag: quoted, of its content."""

    body: bytes
    media_type: str
    etag: str


def read_assets() -> dict[str, Asset]:
    """All files by their path below `static`, such as `pages/jobs.js`."""
    return dict(_below(files("noontide.apps.dashboard") / "static", ""))


def _below(folder: Traversable, path: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for each in folder.iterdir():
        name = f"{path}{each.name}"
        if each.is_dir():
            found += _below(each, f"{name}/")
        elif (media_type := MEDIA_TYPES.get(f".{name.rpartition('.')[2]}")) is not None:
            body = each.read_bytes()
            found.append((name, Asset(body=body, media_type=media_type, etag=f'"{sha256(body).hexdigest()[:20]}"')))
    return found
